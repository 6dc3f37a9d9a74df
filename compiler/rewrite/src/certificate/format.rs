//! Prices as numbers in a file.

use shard_ir::ValueId;

use super::bound::{Given, MAX_PRICES};
use super::choices::Choices;
use super::{CertificateError, PriceSet, Run, UsePrices};
use crate::relax::graph::{FAR, Node};
use crate::relax::prices::Prices;

/// What stands for an infinite price: more than any plan that a certificate is written for costs.
const PROHIBITIVE: i64 = 1 << 48;

/// The prices of a dual, less what can be left out.
///
/// Prices of the only use of a value follow from the others. Where single terms of the bound are amended (`keep_all`,
/// for labels), they are given all the same, so that an amendment does not spread.
pub(super) fn price_set(choices: &Choices<'_>, prices: &Prices, keep_all: bool) -> PriceSet {
    let mut set = PriceSet::default();
    for id in &choices.factors.live {
        let v = id.index();
        let wanted = &choices.wanted[v];
        if wanted.len() == 1 && !keep_all {
            continue;
        }
        for (reader, nodes) in wanted.iter().enumerate() {
            let paid = levelled(nodes.iter().map(|n| prices.paid[v][reader][*n as usize]).collect());
            let is_default = wanted.len() > 1 && paid.iter().all(|p| *p == 0);
            if !is_default {
                set.0.push(UsePrices { value: id.0, reader: reader as u32, paid: runs(&paid) });
            }
        }
    }
    set
}

/// The prices at the nodes of the plan space's graphs.
pub(super) fn read(set: &PriceSet, choices: &Choices<'_>) -> Result<Given, CertificateError> {
    let mut paid: Vec<Vec<Option<Vec<i64>>>> = vec![Vec::new(); choices.wanted.len()];
    for id in &choices.factors.live {
        let (v, nodes) = (id.index(), choices.factors.nodes(*id));
        let free = |wanted: &Vec<Node>| (choices.wanted[v].len() > 1).then(|| at_nodes(nodes, wanted, |_| 0));
        paid[v] = choices.wanted[v].iter().map(free).collect();
    }
    let mut seen = std::collections::BTreeSet::new();
    let mut sum = 0u64;
    for UsePrices { value, reader, paid: listed } in &set.0 {
        let (v, u) = (*value as usize, *reader as usize);
        let wanted = choices.wanted.get(v).and_then(|uses| uses.get(u)).ok_or_else(|| {
            CertificateError::new(format!("there are prices for use {u} of value {v}, which the program does not have"))
        })?;
        if !seen.insert((v, u)) {
            return Err(CertificateError::new(format!("use {u} of value {v} has prices twice")));
        }
        let prices = expanded(listed, wanted.len()).ok_or_else(|| {
            let n = wanted.len();
            CertificateError::new(format!("use {u} of value {v} has {n} layouts, and another number of prices"))
        })?;
        let most = prices.iter().map(|p| p.unsigned_abs()).max().unwrap_or(0);
        sum = sum.saturating_add(most);
        if sum > MAX_PRICES {
            return Err(CertificateError::new("the prices are too large to be added up"));
        }
        let nodes = choices.factors.nodes(ValueId(*value));
        paid[v][u] = Some(at_nodes(nodes, wanted, |i| prices[i]));
    }
    Ok(Given { paid })
}

fn at_nodes(nodes: usize, wanted: &[Node], price: impl Fn(usize) -> i64) -> Vec<i64> {
    let mut all = vec![-FAR; nodes];
    for (i, node) in wanted.iter().enumerate() {
        all[*node as usize] = price(i);
    }
    all
}

/// The same prices less a constant, which changes no bound: every way of serving a reader is paid exactly one of them.
fn levelled(mut paid: Vec<i64>) -> Vec<i64> {
    let finite = |p: &i64| -PROHIBITIVE < *p && *p < PROHIBITIVE;
    let least = paid.iter().copied().filter(finite).min().unwrap_or(0);
    for price in &mut paid {
        *price = if finite(price) { *price - least } else { PROHIBITIVE * price.signum() };
    }
    paid
}

fn runs(paid: &[i64]) -> Vec<Run> {
    let mut runs: Vec<Run> = Vec::new();
    for price in paid {
        match runs.last_mut() {
            Some(Run::Many(last, times)) if last == price => *times += 1,
            Some(last @ Run::One(_)) if *last == Run::One(*price) => *last = Run::Many(*price, 2),
            _ => runs.push(Run::One(*price)),
        }
    }
    runs
}

/// The prices one by one, if there are so many.
fn expanded(runs: &[Run], count: usize) -> Option<Vec<i64>> {
    let mut prices = Vec::with_capacity(count);
    for run in runs {
        let (price, times) = match run {
            Run::One(price) => (*price, 1),
            Run::Many(price, times) => (*price, *times as usize),
        };
        if times > count - prices.len() {
            return None;
        }
        prices.extend(std::iter::repeat_n(price, times));
    }
    (prices.len() == count).then_some(prices)
}
