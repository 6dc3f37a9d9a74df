//! The forms of a program (`spec/search.md`): the programs that the logical rules make of it.

mod blocks;
mod clusters;
mod equal;
mod laws;
mod matched;
mod read;
mod written;

use shard_cost::{Bytes, Flops, Hardware, Work, roofline};
use shard_ir::{Def, DimId, Dtype, Op, Plan, Program};

use clusters::Clusters;
pub(crate) use equal::Class;
use equal::Equal;
use read::Choice;
pub(crate) use written::as_written;

/// The forms of a program.
#[derive(Clone, Debug)]
pub struct Forms {
    /// The one written first; then by flops.
    pub all: Vec<Program>,
    /// What the rules give more of than this enumeration goes through: then nothing bounds those.
    pub cut: Option<TooMany>,
}

/// What rules may add before the enumeration gives up, and forms.
const MOST_NODES: usize = 1 << 13;
const MOST_FORMS: usize = 1 << 12;

type Law = fn(&Equal<'_>, Class, &mut Vec<laws::Found>);

/// The forms of a program. In a strict layer all is as written, but for the order of einsums of
/// more than two operands.
pub fn forms(program: &Program) -> Forms {
    let (equal, limit) = equal_ways(program);
    let others = read::forms(&equal, MOST_FORMS);
    let cut = limit.or(others.is_none().then_some(TooMany::Forms));
    let mut others = others.unwrap_or_default();
    others.sort_by_cached_key(flops);
    Forms { all: std::iter::once(as_written(program)).chain(others).collect(), cut }
}

/// The classes of a program with all that the rules say of them; and what ended that too early, if
/// anything did.
fn equal_ways(program: &Program) -> (Equal<'_>, Option<TooMany>) {
    let laws: &[Law] = if program.strict {
        &[laws::long_einsum]
    } else {
        &[
            laws::long_einsum,
            laws::reassociation,
            laws::sum_of_einsum,
            laws::shared_operand,
            laws::mask_of_nothing,
            laws::located,
            blocks::cumsum,
            blocks::scan,
            blocks::shift,
            blocks::conv,
            blocks::largest_few,
        ]
    };
    let mut equal = Equal::of(program);
    let is_whole = close_under(&mut equal, laws);
    let too_long = |value: &shard_ir::Value| {
        matches!(&value.def, Def::Op { op: Op::Einsum, .. })
            && value.def.operands().len() > laws::MOST_OPERANDS
    };
    let limit = if !is_whole {
        Some(TooMany::Ways)
    } else if program.values.iter().any(too_long) {
        Some(TooMany::Operands)
    } else {
        None
    };
    (equal, limit)
}

/// The form of a program that a plan may be one of, where it is another than the one written.
pub(crate) fn form_of(plan: &Plan, program: &Program) -> Option<Program> {
    let (equal, _) = equal_ways(program);
    let choice = matched::choice_of(&equal, plan)?;
    read::write(&equal, &choice).map(|form| form.program)
}

/// What there is too much of for forms to be bounded.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum TooMany {
    /// Ways of computing something.
    #[error("the rules find more than {MOST_NODES} new ways of computing something")]
    Ways,
    /// Operands of an einsum.
    #[error("an einsum has more than {} operands", laws::MOST_OPERANDS)]
    Operands,
    /// Forms, where they are listed one by one.
    #[error("there are more than {MOST_FORMS} forms")]
    Forms,
    /// Alternatives of a cluster.
    #[error("a cluster has more than {} alternatives", clusters::MOST_ALTERNATIVES)]
    Alternatives,
}

/// The forms of a program as choices that are made apart from each other.
pub struct Choices<'p> {
    equal: Equal<'p>,
    clusters: Clusters,
}

/// Where a class is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Region {
    /// It is a number, which whoever reads it has for nothing.
    Number,
    /// Every form has it alike.
    Rest,
    /// It is in a cluster, by number.
    Cluster(usize),
}

/// A form, and where each of its values is.
#[derive(Clone, Debug)]
pub struct Form {
    /// The program.
    pub program: Program,
    /// The class of each value.
    pub classes: Vec<usize>,
    /// Where it is.
    pub regions: Vec<Region>,
}

impl<'p> Choices<'p> {
    /// Those of a program.
    pub fn of(program: &'p Program) -> Result<Choices<'p>, TooMany> {
        let (equal, limit) = equal_ways(program);
        match (limit, clusters::clusters(&equal)) {
            (None, Some(clusters)) => Ok(Choices { equal, clusters }),
            (Some(limit), _) => Err(limit),
            (None, None) => Err(TooMany::Alternatives),
        }
    }

    /// How many alternatives each cluster has.
    pub fn alternatives(&self) -> Vec<usize> {
        self.clusters.all.iter().map(|cluster| cluster.alternatives.len()).collect()
    }

    /// How many forms there are, but for the one written where that is apart.
    pub fn count(&self) -> usize {
        self.alternatives().into_iter().fold(1, usize::saturating_mul)
    }

    /// Whether the source computes something twice, which every other form computes once: then none
    /// of these forms is the one written.
    pub fn written_is_apart(&self) -> bool {
        read::merges(&self.equal)
    }

    /// The form that the source writes.
    pub fn written(&self) -> Program {
        as_written(self.equal.program)
    }

    /// The form of an alternative of each cluster; `None` where there is none.
    pub fn form(&self, picks: &[usize]) -> Option<Form> {
        if picks.len() != self.clusters.all.len() {
            return None;
        }
        let mut choice = self.clusters.fixed.clone();
        for (cluster, pick) in self.clusters.all.iter().zip(picks) {
            choice.extend(cluster.alternatives.get(*pick)?.clone());
        }
        let read::Written { program, classes } = read::write(&self.equal, &choice)?;
        let regions: Vec<Region> =
            program.value_ids().map(|id| self.region(&program, id, classes[id.index()])).collect();
        Some(Form { program, classes, regions })
    }

    fn region(&self, program: &Program, id: shard_ir::ValueId, class: Class) -> Region {
        if matches!(program.value(id).def, Def::Constant(_)) {
            return Region::Number;
        }
        let at = self.clusters.all.iter().position(|cluster| cluster.classes.contains(&class));
        at.map_or(Region::Rest, Region::Cluster)
    }

    /// The alternatives of the form that a plan is one of; none for those of which it has nothing.
    pub fn picks_of(&self, plan: &Plan) -> Option<Vec<Option<usize>>> {
        let choice: Choice = matched::choice_of(&self.equal, plan)?;
        let is_taken = |alternative: &Choice| {
            alternative.iter().all(|(class, node)| choice.get(class) == Some(node))
        };
        Some(
            self.clusters
                .all
                .iter()
                .map(|cluster| cluster.alternatives.iter().position(is_taken))
                .collect(),
        )
    }
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
/// One of a single operand adds up what its result has not. A device that holds a part of what is
/// summed leaves the rest of the additions to the move behind it, so that a result's worth of them
/// may be missing on every device.
fn flops_of(program: &Program, operands: &[&[DimId]], result: &[DimId]) -> u128 {
    let mut space: Vec<DimId> = operands.concat();
    space.sort_unstable();
    space.dedup();
    let points = |dims: &[DimId]| {
        program.sizes(dims).into_iter().fold(1u128, |n, s| n.saturating_mul(u128::from(s)))
    };
    let contracts = space.iter().any(|dim| !result.contains(dim));
    match operands.len() {
        1 => points(&space)
            .saturating_sub(points(result).saturating_mul(u128::from(program.mesh.devices()))),
        _ if contracts => points(&space).saturating_mul(2),
        _ => points(&space),
    }
}

/// The flops of the einsums of a program, on all devices together, as few as any layout asks for.
fn flops(program: &Program) -> u128 {
    let of = |value: &shard_ir::Value| match &value.def {
        Def::Op { op: Op::Einsum, operands } => {
            let operands: Vec<&[DimId]> =
                operands.iter().map(|o| program.value(*o).dims.as_slice()).collect();
            flops_of(program, &operands, &value.dims).saturating_mul(u128::from(value.times))
        }
        Def::Op { .. } | Def::Parameter { .. } | Def::Constant(_) | Def::Pin { .. } => 0,
    };
    program.values.iter().map(of).fold(0, u128::saturating_add)
}

/// More flops than this are not bounded: their time is rounded to seconds.
const MOST_FLOPS: u128 = 1 << 80;

/// What every plan of a form takes at least, from its flops alone, however they are spread over the
/// devices.
pub fn least_time(form: &Program, hardware: &Hardware) -> u64 {
    let mut on_a_device = flops(form) / u128::from(form.mesh.devices().max(1));
    // An attention leaves out the pairs that its mask hides.
    if hardware.has_attention() {
        on_a_device /= shard_cost::one_pair_in(form);
    }
    if on_a_device > MOST_FLOPS {
        return 0;
    }
    let time_in = |arithmetic: &Dtype| {
        let (matmul, read, write, fetched) = (None, Bytes(0), Bytes(0), Bytes(0));
        let work = Work {
            flops: Flops(on_a_device),
            arithmetic: *arithmetic,
            matmul,
            attention: false,
            ring: None,
            read,
            write,
            fetched,
        };
        roofline(hardware, &work).0.0
    };
    // The flops of each op are a whole number on each device.
    let times: u64 = form.values.iter().fold(0, |n, value| n.saturating_add(value.times));
    Dtype::ALL.iter().map(time_in).min().unwrap_or(0).saturating_sub(times)
}
