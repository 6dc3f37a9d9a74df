//! The forms of a program (`spec/search.md`): the programs that the logical rules turn it into.

mod blocks;
mod clusters;
mod equal;
mod laws;
mod matched;
mod neighbours;
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
    /// The form that is written comes first, then the others, those of fewest flops first.
    pub all: Vec<Program>,
    /// The limit of the enumeration that the program passes, if any: `all` then lacks forms, which
    /// nothing bounds.
    pub cut: Option<TooMany>,
}

/// The most nodes that rules may add, and the most forms, before the enumeration gives up.
const MOST_NODES: usize = 1 << 13;
const MOST_FORMS: usize = 1 << 12;

type Law = fn(&Equal<'_>, Class, &mut Vec<laws::Found>);

/// The forms of a program. In a strict layer everything stays as written, except for the order in
/// which einsums of more than two operands are multiplied.
pub fn forms(program: &Program) -> Forms {
    let (equal, limit) = equal_ways(program);
    let others = read::forms(&equal, MOST_FORMS);
    let cut = limit.or(others.is_none().then_some(TooMany::Forms));
    let mut others = others.unwrap_or_default();
    others.sort_by_cached_key(flops);
    Forms { all: std::iter::once(as_written(program)).chain(others).collect(), cut }
}

/// The classes of a program with everything that the rules find for them; and the limit that ended
/// this too early, if any.
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

/// The form that a plan may compute, where it is not the form that is written.
pub(crate) fn form_of(plan: &Plan, program: &Program) -> Option<Program> {
    let (equal, _) = equal_ways(program);
    let choice = matched::choice_of(&equal, plan)?;
    read::write(&equal, &choice).map(|form| form.program)
}

/// The limit that a program passes, so that its forms are not bounded.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum TooMany {
    /// Ways of computing something.
    #[error("the rules find more than {MOST_NODES} new ways of computing something")]
    Ways,
    /// Operands of an einsum.
    #[error("an einsum has more than {} operands", laws::MOST_OPERANDS)]
    Operands,
    /// Forms that are listed one by one.
    #[error("there are more than {MOST_FORMS} forms")]
    Forms,
    /// Alternatives of a cluster.
    #[error("a cluster has more than {} alternatives", clusters::MOST_ALTERNATIVES)]
    Alternatives,
}

/// The forms of a program as independent choices: one alternative for each cluster.
pub struct Choices<'p> {
    equal: Equal<'p>,
    clusters: Clusters,
}

/// Where a class belongs.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Region {
    /// It is a constant, which every reader has for nothing.
    Number,
    /// It is outside of clusters: every form has it in the same way.
    Rest,
    /// It is in a cluster, by number.
    Cluster(usize),
}

/// A form, with the class and the region of each value.
#[derive(Clone, Debug)]
pub struct Form {
    /// The program.
    pub program: Program,
    /// The class of each value.
    pub classes: Vec<usize>,
    /// The region of each value.
    pub regions: Vec<Region>,
}

impl<'p> Choices<'p> {
    /// The choices of a program; the error is the limit that the program passes.
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

    /// How many forms these choices make; the written form is not among them where
    /// [`Choices::written_is_apart`].
    pub fn count(&self) -> usize {
        self.alternatives().into_iter().fold(1, usize::saturating_mul)
    }

    /// Whether the source computes a value twice that all other forms compute once. Then none of
    /// these forms is the written one.
    pub fn written_is_apart(&self) -> bool {
        read::merges(&self.equal)
    }

    /// The form that the source writes.
    pub fn written(&self) -> Program {
        as_written(self.equal.program)
    }

    /// The form with these alternatives, one for each cluster by number; `None` where there is no
    /// such form.
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

    /// The alternatives of the form that a plan computes, one for each cluster; `None` for a
    /// cluster of which the plan has no alternative. `None` where the plan computes no form.
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

/// Applies rules until they find nothing new; `false` where they find too much.
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

/// The flops of an einsum on all devices together, at least, in any layout.
///
/// An einsum of a single operand adds up entries. A device that holds a part of the sum leaves the
/// remaining additions to the move behind it, so that on every device as many additions as the
/// result has elements may be missing.
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

/// The flops of all einsums of a program on all devices together, at least, in any layout.
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

/// More flops than this on a device are bounded by 0: their time could only be rounded coarsely.
const MOST_FLOPS: u128 = 1 << 80;

/// A lower bound on the time of every plan of a form in picoseconds, from its flops alone, however
/// they are spread over the devices.
pub fn least_time(form: &Program, hardware: &Hardware) -> u64 {
    let mut on_a_device = flops(form) / u128::from(form.mesh.devices().max(1));
    // The attention kernel skips the pairs of queries and keys that its mask hides.
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
    // The flops of each op on each device are rounded to a whole number.
    let times: u64 = form.values.iter().fold(0, |n, value| n.saturating_add(value.times));
    Dtype::ALL.iter().map(time_in).min().unwrap_or(0).saturating_sub(times)
}
