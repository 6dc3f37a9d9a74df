//! Prices of one form that bound all forms of a program (`spec/certificate.md`, *Forms bounded
//! together*).

use std::collections::BTreeSet;

use egg::Id;
use shard_certificate::{
    AlternativePrices, CertificateError, Choices, Common, Extent, Form, Ground, PriceSet, Reader,
    ReaderPrices, Region, Solved, Space, Together,
};
use shard_ir::{Layout, Plan, Program, ValueId};

use super::certify::{SWEEPS_OF_A_CERTIFICATE, factors_of, scale_of, scopes, swept};
use super::prices::{PROHIBITIVE, levelled, runs, side_prices};
use crate::kernel::Kernels;
use crate::memory::DeviceMemory;
use crate::relax::Setting;
use crate::relax::apart::{Apart, Classed, PartPrices};
use crate::relax::factors::{Factors, ValueUse};
use crate::relax::prices::{Part, Prices, use_index};
use crate::{Limits, LowerError};

/// The most forms that are solved on the way to the best prices.
const MOST_SOLVED: usize = 12;

/// The best prices found, and the bound that they show on all forms. The form of the plan is solved
/// first; the next form is made of the alternatives that the prices find cheapest, until that form
/// was solved before.
pub(super) fn bound_together(
    choices: &Choices<'_>,
    plan: Option<&Plan>,
    ground: Ground<'_>,
    enough: u64,
    limits: &Limits,
) -> Result<(Together, u64), CertificateError> {
    let of_plan = plan.and_then(|plan| choices.picks_of(plan)).unwrap_or_default();
    let mut picks: Vec<usize> = of_plan.into_iter().map(Option::unwrap_or_default).collect();
    picks.resize(choices.alternatives().len(), 0);
    let mut best: Option<(Together, u64)> = None;
    let mut seen = BTreeSet::new();
    while seen.len() < MOST_SOLVED && seen.insert(picks.clone()) {
        let (together, shown, cheapest) = solve(choices, &picks, ground, enough, limits)?;
        if best.as_ref().is_none_or(|(_, known)| *known < shown) {
            best = Some((together, shown));
        }
        if shown >= enough {
            break;
        }
        picks = cheapest;
    }
    best.ok_or_else(|| CertificateError::new("no form could be bounded"))
}

/// Solves a form and bounds all others at its prices. Returns the prices, the bound that they show,
/// and the cheapest alternative of each cluster.
fn solve(
    choices: &Choices<'_>,
    picks: &[usize],
    ground: Ground<'_>,
    enough: u64,
    limits: &Limits,
) -> Result<(Together, u64, Vec<usize>), CertificateError> {
    let Ground { joint, hardware, loops } = ground;
    let form = choices
        .form(picks)
        .ok_or_else(|| CertificateError::new("choices of several clusters need each other"))?;
    let program = &form.program;
    let kernels = Kernels::of_program(program.clone(), program.strict, loops, hardware);
    let factors = factors_of(&kernels, hardware, limits)?.in_fine_ticks();
    let scopes = scopes(program, &joint.present, hardware.hbm_bytes);
    let memory = DeviceMemory::new(program, hardware.hbm_bytes).within(scopes.as_ref());
    let sweeps = limits.sweeps.saturating_mul(SWEEPS_OF_A_CERTIFICATE);
    let mut prices = swept(&kernels, None, &factors, enough, sweeps);
    if picoseconds(prices.bound(), &factors) < enough && !Part::all_fits(&kernels, &memory) {
        let within_memory = swept(&kernels, Some(&memory), &factors, enough, sweeps);
        if within_memory.bound() > prices.bound() {
            prices = within_memory;
        }
    }
    let set = prices_of(&form, ground, &factors, &prices, choices.alternatives().len())?;
    let mut solved = Solved::new(choices, picks, &set, ground)?;
    let ids: Vec<Id> = form.classes.iter().map(|class| Id::from(*class)).collect();
    let setting = Setting::of(program, hardware, program.strict, limits);
    let mut apart = Apart::at_prices(Classed::new(&kernels, &ids), factors, prices, setting);
    let (mut alternatives, mut cheapest, mut least) = (Vec::new(), Vec::new(), Vec::new());
    for (cluster, count) in choices.alternatives().into_iter().enumerate() {
        let mut best = (solved.own(cluster), picks[cluster]);
        for alternative in (0..count).filter(|alternative| *alternative != picks[cluster]) {
            let mut given = Vec::new();
            let sum = solved.alternative(cluster, alternative, |space, form| {
                given = within(&mut apart, space, form, cluster, ground)?;
                Ok(given.clone())
            })?;
            best = best.min((sum, alternative));
            if !given.is_empty() {
                let (cluster, alternative) = (cluster as u32, alternative as u32);
                alternatives.push(AlternativePrices { cluster, alternative, readers: given });
            }
        }
        least.push(best.0);
        cheapest.push(best.1);
    }
    let shown = solved.in_picoseconds(least).unwrap_or(u64::MAX);
    let picks = picks.iter().map(|pick| *pick as u32).collect();
    Ok((Together { picks, prices: set, alternatives }, shown, cheapest))
}

fn picoseconds(bound: i64, factors: &Factors) -> u64 {
    u64::try_from(bound).unwrap_or(0).div_ceil(factors.ticks.unsigned_abs().max(1))
}

/// The prices of a solved form: those of readers across the borders of clusters, and of readers
/// that share a value.
fn prices_of(
    form: &Form,
    Ground { joint, hardware, loops }: Ground<'_>,
    factors: &Factors,
    prices: &Prices,
    clusters: usize,
) -> Result<PriceSet, CertificateError> {
    let scale = scale_of(factors);
    let mut set = PriceSet { scale, ..PriceSet::default() };
    let common = Common::default();
    let price = |value: ValueId, reader: &Reader, layout: Layout| {
        let of = match *reader {
            Reader::Operand(by, place) => ValueUse::Operand(by, place),
            Reader::Result(i) => ValueUse::Output(i),
        };
        let paid = &prices.paid[value.index()][use_index(factors, value, of)];
        factors.graphs[value.index()].node(layout).map_or(PROHIBITIVE, |node| paid[node as usize])
    };
    for of in std::iter::once(Region::Rest).chain((0..clusters).map(Region::Cluster)) {
        let extent = Extent { regions: &form.regions, of };
        let space =
            Space::of_part(&form.program, hardware, loops, &joint.present, Some(extent), &common)?;
        if of == Region::Rest {
            set.sides = side_prices(&space, prices);
        }
        for id in space.live() {
            set.readers.extend(readers_of(&space, *id, |_| true, &|reader, layout| {
                price(*id, reader, layout)
            }));
        }
    }
    Ok(set)
}

/// The prices of those readers of a value whose prices do not follow from others.
fn readers_of(
    space: &Space<'_>,
    id: ValueId,
    wanted: impl Fn(&Reader) -> bool,
    price: &dyn Fn(&Reader, Layout) -> i64,
) -> Vec<ReaderPrices> {
    let readers = space.readers(id);
    let asked = readers.iter().enumerate().filter(|(_, reader)| {
        let follows = readers.len() == 1 && !space.crosses(id, reader);
        !follows && wanted(reader)
    });
    let prices = asked.map(|(number, reader)| {
        let wanted = space.wanted(id, number).map(|layout| price(reader, layout));
        let paid = levelled(wanted.collect());
        ReaderPrices { value: id.0, reader: number as u32, paid: runs(&paid) }
    });
    prices.filter(|of| of.paid.iter().any(|run| !is_zero(run))).collect()
}

fn is_zero(run: &shard_certificate::Run) -> bool {
    matches!(run, shard_certificate::Run::One(0) | shard_certificate::Run::Many(0, _))
}

/// The prices within an alternative of a cluster.
fn within(
    apart: &mut Apart<'_, '_>,
    space: &Space<'_>,
    form: &Form,
    cluster: usize,
    Ground { hardware, loops, .. }: Ground<'_>,
) -> Result<Vec<ReaderPrices>, CertificateError> {
    let program: &Program = &form.program;
    let kernels = Kernels::of_program(program.clone(), program.strict, loops, hardware);
    let ids: Vec<Id> = form.classes.iter().map(|class| Id::from(*class)).collect();
    let other = Classed::new(&kernels, &ids);
    let is_inside = |id: ValueId| {
        form.regions[id.index()] == Region::Cluster(cluster) && kernels.live[id.index()]
    };
    let of: Vec<bool> = program.value_ids().map(is_inside).collect();
    let priced: Option<PartPrices> =
        apart.prices_within(&of, &other).map_err(|error: LowerError| {
            CertificateError::new(format!("a cluster cannot be bounded: {error}"))
        })?;
    let Some(priced) = priced else { return Ok(Vec::new()) };
    let mut all = Vec::new();
    for id in space.live() {
        let inside = |reader: &Reader| !space.crosses(*id, reader);
        let price = |reader: &Reader, layout: Layout| match reader {
            Reader::Operand(by, place) => priced.paid(program, *id, *by, *place, layout),
            Reader::Result(i) => apart.paid_by_result(&other, *id, *i, layout),
        };
        all.extend(readers_of(space, *id, inside, &price));
    }
    Ok(all)
}
