//! The forms of a program (`spec/search.md`): the programs that the logical rules make of it.

mod equal;
mod laws;
mod read;
mod written;

use shard_cost::{Bytes, Flops, Hardware, Work, roofline};
use shard_ir::{Def, DimId, Dtype, Op, Program};

use equal::{Class, Equal};

/// The forms of a program.
#[derive(Clone, Debug)]
pub struct Forms {
    /// The one written first; then by flops.
    pub all: Vec<Program>,
    /// Whether the rules give more than this enumeration goes through: then nothing bounds those.
    pub cut: bool,
}

/// What rules may add before the enumeration gives up, and forms.
const MOST_NODES: usize = 1 << 13;
const MOST_FORMS: usize = 1 << 12;

type Law = fn(&Equal<'_>, Class, &mut Vec<laws::Found>);

/// The forms of a program. In a strict layer all is as written, but for the order of einsums of more than two operands.
pub fn forms(program: &Program) -> Forms {
    let laws: &[Law] = match program.strict {
        true => &[laws::long_einsum],
        false => &[laws::long_einsum, laws::reassociation, laws::sum_of_einsum, laws::shared_operand],
    };
    let mut equal = Equal::of(program);
    let is_whole = close_under(&mut equal, laws);
    let too_long = |value: &shard_ir::Value| matches!(&value.def, Def::Op { op: Op::Einsum, operands } if operands.len() > laws::MOST_OPERANDS);
    let others = read::forms(&equal, MOST_FORMS);
    let cut = !is_whole || program.values.iter().any(too_long) || others.is_none();
    let mut others = others.unwrap_or_default();
    others.sort_by_cached_key(flops);
    Forms { all: std::iter::once(written::as_written(program)).chain(others).collect(), cut }
}

/// Applies rules until nothing new comes of them; `false` where there is too much of it.
fn close_under(equal: &mut Equal<'_>, laws: &[Law]) -> bool {
    let most = MOST_NODES + equal.count();
    loop {
        let before = (equal.count(), equal.classes().len());
        let mut found = Vec::new();
        for class in equal.classes() {
            laws.iter().for_each(|law| law(equal, class, &mut found));
        }
        for (class, expr) in &found {
            equal.add_found(*class, expr);
            if equal.count() > most {
                equal.close();
                return false;
            }
        }
        equal.close();
        if before == (equal.count(), equal.classes().len()) {
            return true;
        }
    }
}

/// The flops of an einsum on all devices together, as few as any layout asks for.
///
/// One of a single operand adds up what its result has not. A device that holds a part of what is summed leaves the rest of
/// the additions to the move behind it, so that a result's worth of them may be missing on every device.
fn flops_of(program: &Program, operands: &[&[DimId]], result: &[DimId]) -> u128 {
    let mut space: Vec<DimId> = operands.concat();
    space.sort_unstable();
    space.dedup();
    let points = |dims: &[DimId]| program.sizes(dims).into_iter().fold(1u128, |n, s| n.saturating_mul(u128::from(s)));
    let contracts = space.iter().any(|dim| !result.contains(dim));
    match operands.len() {
        1 => points(&space).saturating_sub(points(result).saturating_mul(u128::from(program.mesh.devices()))),
        _ if contracts => points(&space).saturating_mul(2),
        _ => points(&space),
    }
}

/// The flops of the einsums of a program, on all devices together, as few as any layout asks for.
fn flops(program: &Program) -> u128 {
    let of = |value: &shard_ir::Value| match &value.def {
        Def::Op { op: Op::Einsum, operands } => {
            let operands: Vec<&[DimId]> = operands.iter().map(|o| program.value(*o).dims.as_slice()).collect();
            flops_of(program, &operands, &value.dims).saturating_mul(u128::from(value.times))
        }
        Def::Op { .. } | Def::Parameter { .. } | Def::Constant(_) | Def::Pin { .. } => 0,
    };
    program.values.iter().map(of).fold(0, u128::saturating_add)
}

/// More flops than this are not bounded: their time is rounded to seconds.
const MOST_FLOPS: u128 = 1 << 80;

/// What every plan of a form takes at least, from its flops alone, however they are spread over the devices.
pub fn least_time(form: &Program, hardware: &Hardware) -> u64 {
    let on_a_device = flops(form) / u128::from(form.mesh.devices().max(1));
    if on_a_device > MOST_FLOPS {
        return 0;
    }
    let time_in = |arithmetic: &Dtype| {
        let (matmul, read, write, fetched) = (None, Bytes(0), Bytes(0), Bytes(0));
        let work = Work { flops: Flops(on_a_device), arithmetic: *arithmetic, matmul, read, write, fetched };
        roofline(hardware, &work).0.0
    };
    // The flops of each op are a whole number on each device.
    let times: u64 = form.values.iter().fold(0, |n, value| n.saturating_add(value.times));
    Dtype::ALL.iter().map(time_in).min().unwrap_or(0).saturating_sub(times)
}
