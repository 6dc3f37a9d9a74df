//! Checking a certificate. Nothing is searched and nothing in the file is believed.

use shard_cost::Hardware;
use shard_ir::{InstrKind, Layout, Picoseconds, Plan, Program};

use super::bound::MAX_COST;
use super::certify::{as_bound, choices, derive};
use super::choices::Choices;
use super::computes::computes;
use super::format::read;
use super::{Certificate, CertificateError, Claim, LayerCertificate, PriceSet, SCHEMA, SpaceLimits, Verified};
use crate::kernel::Kernels;
use crate::logical::forms;
use crate::memory::needed;
use crate::{Limits, Proof};

/// Forms that are checked.
const MAX_FORMS: usize = 1 << 12;

/// Layouts of labels that are checked one by one.
const MAX_LABEL_LAYOUTS: usize = 1 << 20;

/// Checks the text of a certificate: for every layer that its plan is legal, computes the layer and takes the time claimed,
/// and that the prices bound every plan of the plan space by the bound claimed.
pub fn verify_certificate(text: &str) -> Result<Vec<Verified>, CertificateError> {
    let certificate: Certificate =
        serde_json::from_str(text).map_err(|error| CertificateError::new(format!("this is no `{SCHEMA}`: {error}")))?;
    if certificate.schema != SCHEMA {
        let found = certificate.schema;
        return Err(CertificateError::new(format!("the schema is `{found}`; this checker reads `{SCHEMA}`")));
    }
    let (programs, hardware) = derive(&certificate.inputs)?;
    if certificate.layers.is_empty() {
        return Err(CertificateError::new("it is about no layer"));
    }
    let check = |claim: &LayerCertificate| {
        let program = programs
            .iter()
            .find(|p| p.name == claim.layer)
            .ok_or_else(|| CertificateError::new("the source has no such layer"))?;
        verify_layer(claim, program, &hardware, certificate.inputs.fuse && !program.strict)
    };
    for (i, claim) in certificate.layers.iter().enumerate() {
        if certificate.layers[..i].iter().any(|other| other.layer == claim.layer) {
            return Err(CertificateError::new("it is about the layer twice").of(&claim.layer));
        }
    }
    certificate.layers.iter().map(|claim| check(claim).map_err(|error| error.of(&claim.layer))).collect()
}

fn verify_layer(
    claim: &LayerCertificate,
    program: &Program,
    hardware: &Hardware,
    loops: bool,
) -> Result<Verified, CertificateError> {
    let plan = read_plan(&claim.plan)?;
    if plan.hardware.as_deref() != Some(hardware.name.as_str()) {
        let (named, chip) = (plan.hardware.as_deref().unwrap_or("no chip"), &hardware.name);
        return Err(CertificateError::new(format!("the plan is for {named}, and the inputs are for {chip}")));
    }
    if !loops && plan.instructions.iter().any(|i| matches!(i.kind, InstrKind::CollectiveEinsum(_))) {
        return Err(CertificateError::new("the plan has loops, and the plan space that is bounded has none"));
    }
    computes(&plan, program).map_err(CertificateError::new)?;
    let cost = shard_cost::price(&plan, hardware).totals.serial_time.0;
    if cost != claim.cost_ps {
        return Err(CertificateError::new(format!("the plan takes {cost} ps, not {} ps", claim.cost_ps)));
    }
    let (needs, has) = (needed(&plan), hardware.hbm_bytes);
    if needs > has {
        // What does not fit is no plan: it can be the best of none.
        return Err(CertificateError::new(format!(
            "the plan does not fit: it needs {needs} bytes on each device, and `{}` has {has}",
            hardware.name
        )));
    }
    if cost >= MAX_COST {
        return Err(CertificateError::new("the plan takes too long to be bounded"));
    }
    let (bound, inequalities) = bound(claim, program, hardware, loops)?;
    if bound > cost {
        // Not to be explained away: no plan of the space can be below a bound on all of them.
        return Err(CertificateError::new(format!(
            "the plan takes {cost} ps, below the bound of {bound} ps on all plans"
        )));
    }
    if bound != claim.lower_bound_ps {
        let claimed = claim.lower_bound_ps;
        return Err(CertificateError::new(format!("the prices show a bound of {bound} ps, not {claimed} ps")));
    }
    let proof = match claim.proof {
        // Where the prices prove it, nothing rests on the search, whatever the file says.
        _ if bound == cost => Some(Proof::Certificate),
        Claim::Certificate => {
            let message =
                format!("the prices show a bound of {bound} ps, which does not prove a plan of {cost} ps best");
            return Err(CertificateError::new(message));
        }
        Claim::Search => Some(Proof::Search),
        Claim::None => None,
    };
    Ok(Verified {
        layer: claim.layer.clone(),
        cost: Picoseconds(cost),
        lower_bound: Picoseconds(claim.lower_bound_ps),
        proof,
        chip: hardware.name.clone(),
        built_in: Hardware::built_in(&hardware.name).as_ref() == Some(hardware),
        inequalities,
    })
}

fn read_plan(text: &str) -> Result<Plan, CertificateError> {
    let plans = shard_ir::text::parse(text)
        .map_err(|error| CertificateError::new(format!("the plan cannot be read: {error}")))?;
    let Ok([plan]) = <[Plan; 1]>::try_from(plans) else {
        return Err(CertificateError::new("there must be one plan"));
    };
    if let Some(error) = shard_ir::verify::verify(&plan).err().into_iter().flatten().next() {
        return Err(CertificateError::new(format!("the plan is not legal: {error}")));
    }
    Ok(plan)
}

/// The least bound over all forms of the program and all layouts of labels, and how many alternatives it rests on.
fn bound(
    claim: &LayerCertificate,
    program: &Program,
    hardware: &Hardware,
    loops: bool,
) -> Result<(u64, u64), CertificateError> {
    let SpaceLimits { orders: most, label_layouts } = claim.limits;
    if most > MAX_FORMS || label_layouts > MAX_LABEL_LAYOUTS {
        return Err(CertificateError::new("its limits are beyond those of this checker"));
    }
    let candidates = forms(program, program.strict, &Limits { forms: most, ..Limits::default() });
    if candidates.all.len() != claim.orders.len() {
        let (has, priced) = (candidates.all.len(), claim.orders.len());
        return Err(CertificateError::new(format!("there are {has} forms of the program, and prices for {priced}")));
    }
    // What the limits leave out is bounded by its flops.
    let left_out = candidates.cut.map_or(u64::MAX, |cut| cut.first_bound(program, hardware).min(claim.cost_ps));
    let (mut least, mut inequalities) = (left_out, 0);
    for (form, sets) in candidates.all.into_iter().zip(&claim.orders) {
        let kernels = Kernels::of_form(form, program.strict, loops);
        let (choices, cases) = choices(&kernels, hardware, label_layouts)?;
        let (bound, alternatives) = bound_of_form(&choices, &cases, sets, claim.lower_bound_ps)?;
        least = least.min(bound);
        inequalities += alternatives;
    }
    Ok((least, inequalities))
}

/// The least over all layouts of labels of the best that any set of prices says of it; a set that says `enough` ends it.
fn bound_of_form(
    choices: &Choices<'_>,
    cases: &[Vec<Layout>],
    sets: &[PriceSet],
    enough: u64,
) -> Result<(u64, u64), CertificateError> {
    let mut bounds = vec![0; cases.len()];
    let mut inequalities = 0;
    for set in sets {
        let given = read(set, choices)?;
        let base = choices.evaluate(&given);
        inequalities += base.alternatives;
        for (best, labels) in bounds.iter_mut().zip(cases).filter(|(best, _)| **best < enough) {
            let (bound, alternatives) = choices.bound_under(&given, &base, labels);
            *best = (*best).max(as_bound(bound));
            inequalities += if labels.is_empty() { 0 } else { alternatives };
        }
    }
    Ok((bounds.into_iter().min().unwrap_or(u64::MAX), inequalities))
}
