//! The sizes of a shrunk plan: variables for its dims, relations between them, and the search for
//! sizes that meet all relations.

use std::collections::{BTreeMap, BTreeSet};

use shard_ir::attention::unmoved;
use shard_ir::op::{Argument, Fit};
use shard_ir::{DimId, Groups, InstrId, InstrKind, Op, Plan, gcd, never};

/// How many assignments the search for the sizes of related dims may try.
const MAX_TRIES: usize = 20_000;

/// How small sizes are to be.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Style {
    /// Two or more elements in each block of a split dim.
    Roomy,
    /// One element in each block, or more.
    Lean,
}

/// The most that the number of variables of a group of related dims times the number of their
/// relations may be; the dims of a larger group keep their sizes.
const MAX_RELATED: usize = 1 << 13;

/// How many elements a dim that is normalised or reduced in a folded block has at least, if it had
/// as many: a norm over few elements magnifies roundings, and each application of the block
/// magnifies those of the one before it.
const NORMALISED: u64 = 16;

/// Dims that have one size because renames make them equal.
struct Variable {
    /// The size in the plan.
    size: u64,
    /// What the new size is to be a multiple of.
    unit: u64,
    /// Sizes that are smaller than this are tried last.
    least: u64,
}

/// A condition on the sizes of variables, which it names by their indices.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
enum Relation {
    /// The whole is the product of the parts.
    Product { whole: usize, parts: Vec<usize> },
    /// The whole is the sum of the parts.
    Sum { whole: usize, parts: [usize; 2] },
    /// One is at most the other.
    AtMost { small: usize, large: usize },
}

impl Relation {
    fn variables(&self) -> Vec<usize> {
        match self {
            Relation::Product { whole, parts } => parts.iter().copied().chain([*whole]).collect(),
            Relation::Sum { whole, parts } => parts.iter().copied().chain([*whole]).collect(),
            Relation::AtMost { small, large } => vec![*small, *large],
        }
    }

    /// Whether the sizes that are known meet the relation, or some sizes of it are not known.
    fn allows(&self, sizes: &[Option<u64>]) -> bool {
        let known = |list: &[usize]| list.iter().map(|v| sizes[*v]).collect::<Option<Vec<u64>>>();
        match self {
            Relation::Product { whole, parts } => match (sizes[*whole], known(parts)) {
                (Some(whole), Some(parts)) => product(&parts) == Some(whole),
                _ => true,
            },
            Relation::Sum { whole, parts } => match (sizes[*whole], known(parts)) {
                (Some(whole), Some(parts)) => parts.iter().sum::<u64>() == whole,
                _ => true,
            },
            Relation::AtMost { small, large } => match (sizes[*small], sizes[*large]) {
                (Some(small), Some(large)) => small <= large,
                _ => true,
            },
        }
    }

    /// The size of a variable that follows from the sizes of the others: `None` if none follows,
    /// `Some(None)` if no size meets the relation.
    fn determines(&self, variable: usize, sizes: &[Option<u64>]) -> Option<Option<u64>> {
        let others = |list: &[usize]| -> Option<Vec<u64>> {
            (list.iter().filter(|v| **v == variable).count() <= 1).then_some(())?;
            list.iter().filter(|v| **v != variable).map(|v| sizes[*v]).collect()
        };
        match self {
            Relation::Product { whole, parts } if *whole == variable => {
                Some(product(&others(parts)?))
            }
            Relation::Product { whole, parts } if parts.contains(&variable) => {
                let (whole, others) = (sizes[*whole]?, product(&others(parts)?)?);
                Some((whole % others == 0).then(|| whole / others))
            }
            Relation::Sum { whole, parts } if *whole == variable => {
                Some(Some(others(parts)?.iter().sum()))
            }
            Relation::Sum { whole, parts } if parts.contains(&variable) => {
                Some(sizes[*whole]?.checked_sub(others(parts)?.iter().sum()).filter(|s| *s > 0))
            }
            Relation::Product { .. } | Relation::Sum { .. } | Relation::AtMost { .. } => None,
        }
    }
}

fn product(sizes: &[u64]) -> Option<u64> {
    sizes.iter().try_fold(1u64, |n, s| n.checked_mul(*s))
}

/// The sizes that are to be found for a plan.
pub(super) struct Problem {
    /// The variable of each dim, as an index.
    variable_of: Vec<usize>,
    variables: Vec<Variable>,
    relations: BTreeSet<Relation>,
}

impl Problem {
    pub(super) fn of(plan: &Plan) -> Problem {
        let count = plan.dims.len();
        let mut alike = Groups::default();
        for instr in &plan.instructions {
            if let InstrKind::Op(Op::Rename { from, to }) = instr.kind {
                alike.join(from.index(), to.index());
            }
        }
        let leader: Vec<usize> = (0..count).map(|dim| alike.first_of(dim)).collect();
        let mut units = vec![1u64; count];
        let mut used = vec![false; count];
        for instr in &plan.instructions {
            for (at, dim) in instr.dims.iter().enumerate() {
                let devices = plan.mesh.group_size(instr.layout.axes_of(at).iter());
                let unit = &mut units[leader[dim.index()]];
                *unit = lcm(*unit, devices);
                used[dim.index()] = true;
            }
            if let InstrKind::Op(op) = &instr.kind {
                op.dims().iter().for_each(|d| used[d.index()] = true);
                for (dim, parts) in op.parts() {
                    let unit = &mut units[leader[dim.index()]];
                    *unit = lcm(*unit, parts);
                }
            }
        }
        for id in plan.ids() {
            if let Some(kept) = handed_on(plan, id) {
                let unit = &mut units[leader[kept.index()]];
                *unit = lcm(*unit, plan.dims[kept.index()].size);
            }
        }
        let normalised: BTreeSet<usize> = plan
            .ids()
            .filter(|id| plan.runs_in(*id).is_some())
            .filter_map(|id| match &plan.instruction(id).kind {
                InstrKind::Op(Op::Norm { over, .. }) => Some(leader[over.index()]),
                InstrKind::Op(Op::Reduce { over, .. }) => over.first().map(|d| leader[d.index()]),
                InstrKind::Op(_)
                | InstrKind::Parameter(_)
                | InstrKind::Constant(_)
                | InstrKind::Move(_)
                | InstrKind::CollectiveEinsum(_) => None,
            })
            .collect();
        let mut numbers: BTreeMap<usize, usize> = BTreeMap::new();
        let mut variables: Vec<Variable> = Vec::new();
        let variable_of: Vec<usize> = (0..count)
            .map(|d| {
                *numbers.entry(leader[d]).or_insert_with(|| {
                    let size = plan.dims[d].size;
                    // A dim of no tensor keeps its size.
                    let unit = if (0..count).any(|o| leader[o] == leader[d] && used[o]) {
                        units[leader[d]]
                    } else {
                        size
                    };
                    let least = if normalised.contains(&leader[d]) { NORMALISED } else { 1 };
                    variables.push(Variable { size, unit, least });
                    variables.len() - 1
                })
            })
            .collect();
        let relations = relations(plan, &variable_of);
        Problem { variable_of, variables, relations }
    }

    /// The new size of each dim.
    pub(super) fn solve(&self, style: Style) -> Vec<u64> {
        let count = self.variables.len();
        let mut sizes: Vec<Option<u64>> = vec![None; count];
        for component in self.components() {
            let mut tries = 0;
            let relations: Vec<&Relation> = self
                .relations
                .iter()
                .filter(|r| r.variables().iter().any(|v| component.contains(v)))
                .collect();
            // The size of a whole follows from those of its parts, so that parts go first.
            let wholes = |v: &usize| {
                relations.iter().any(|r| match r {
                    Relation::Product { whole, .. } | Relation::Sum { whole, .. } => whole == v,
                    Relation::AtMost { .. } => false,
                })
            };
            let mut order = component.clone();
            order.sort_by_key(|v| (wholes(v), *v));
            let few = component.len() * relations.len() <= MAX_RELATED;
            if !few || !self.assign(&order, &relations, &mut sizes, style, &mut tries) {
                component.iter().for_each(|v| sizes[*v] = Some(self.variables[*v].size));
            }
        }
        self.variable_of
            .iter()
            .map(|v| {
                sizes[*v].unwrap_or_else(|| {
                    never!("a dim that is in no component", self.variables[*v].size)
                })
            })
            .collect()
    }

    /// The groups of variables that relations tie to one another. Groups are assigned in this
    /// order, and a size that one group has taken is tried last by the others, so that the order of
    /// the groups decides which sizes `run` uses. It is that of the labels, which start as the
    /// variables' own indices: where a relation ties two groups, the label of its first variable
    /// stays.
    fn components(&self) -> Vec<Vec<usize>> {
        let mut labels: Vec<usize> = (0..self.variables.len()).collect();
        for relation in &self.relations {
            let tied = relation.variables();
            for pair in tied.windows(2) {
                let (first, other) = (labels[pair[0]], labels[pair[1]]);
                labels.iter_mut().filter(|l| **l == other).for_each(|l| *l = first);
            }
        }
        let mut components: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
        for (variable, label) in labels.into_iter().enumerate() {
            components.entry(label).or_default().push(variable);
        }
        components.into_values().collect()
    }

    /// Finds sizes for the variables of `rest` with which all relations hold, one variable after
    /// the other: first those whose size follows from others. Whether it has found some.
    fn assign(
        &self,
        rest: &[usize],
        relations: &[&Relation],
        sizes: &mut Vec<Option<u64>>,
        style: Style,
        tries: &mut usize,
    ) -> bool {
        if rest.is_empty() {
            return true;
        }
        let forced = rest.iter().enumerate().find_map(|(at, v)| {
            relations.iter().find_map(|r| r.determines(*v, sizes)).map(|size| (at, size))
        });
        let (at, candidates) = match forced {
            Some((at, size)) => (at, size.into_iter().collect()),
            None => (0, self.candidates(rest[0], sizes, style)),
        };
        let variable = rest[at];
        let mut others = rest.to_vec();
        others.remove(at);
        for size in candidates {
            *tries += 1;
            if *tries > MAX_TRIES {
                return false;
            }
            let Variable { size: was, unit, .. } = self.variables[variable];
            if size % unit != 0 || size > was || (was == 1) != (size == 1) {
                continue;
            }
            sizes[variable] = Some(size);
            let allowed = relations.iter().all(|r| r.allows(sizes));
            if allowed && self.assign(&others, relations, sizes, style, tries) {
                return true;
            }
            sizes[variable] = None;
        }
        false
    }

    /// The sizes to try for a variable, best first: small multiples of the unit that no other
    /// variable has, then small multiples of the unit, then the size in the plan.
    fn candidates(&self, variable: usize, sizes: &[Option<u64>], style: Style) -> Vec<u64> {
        let Variable { size, unit, least } = self.variables[variable];
        let step = unit * least.div_ceil(2 * unit);
        let first: &[u64] = match style {
            Style::Roomy => &[2, 3, 4, 5],
            Style::Lean => &[1, 2, 3],
        };
        let later = [1, 2, 3, 4, 5, 6, 8, 12, 16, 24, 32, 64, 128];
        let taken = |s: &u64| sizes.iter().flatten().any(|t| t == s);
        let mut out: Vec<u64> =
            first.iter().map(|m| m * step).filter(|s| !taken(s) && *s > 1).collect();
        out.extend(first.iter().chain(&later).map(|m| m * unit));
        out.retain(|s| *s <= size);
        out.push(size);
        out
    }
}

/// A dim that has to keep its size since its size follows from how far a shift or a convolution of
/// the source looks back, which no dim of the source says. Where a line is cut into parts, each
/// part hands its last positions on to the next: the dim of these positions keeps its size, and so
/// does the dim of a convolution over them and as many zeros.
fn handed_on(plan: &Plan, id: InstrId) -> Option<DimId> {
    let instr = plan.instruction(id);
    let made_by = |of: InstrId| plan.instruction(unmoved(plan, of)).kind.op();
    let operand = *instr.operands.first()?;
    let (op, before) = (instr.kind.op()?, made_by(operand)?);
    if let (Op::Shift { over, .. }, Op::SliceDim { to, .. }) = (op, before) {
        return (to != over).then_some(*to);
    }
    let (Op::SliceDim { from, to, .. }, Op::Conv { over, .. }) = (op, before) else { return None };
    let padded = *plan.instruction(unmoved(plan, operand)).operands.first()?;
    let is_pad = |op: &Op| matches!(op, Op::Pad { from, .. } if from == to);
    (from == over && made_by(padded).is_some_and(is_pad)).then_some(*from)
}

/// Each relation once, in a fixed order.
fn relations(plan: &Plan, variable_of: &[usize]) -> BTreeSet<Relation> {
    let variable = |d: &DimId| variable_of[d.index()];
    let mut out = BTreeSet::new();
    for instr in &plan.instructions {
        let InstrKind::Op(op) = &instr.kind else { continue };
        let of = |slot: &str| op.dim_in(slot).map(|dim| variable(&dim));
        for fit in op.row().fits {
            out.extend(match *fit {
                Fit::Product { parts, whole } => {
                    let parts = op.filling(parts);
                    let parts = parts.iter().flat_map(Argument::dims).map(variable).collect();
                    of(whole).map(|whole| Relation::Product { whole, parts })
                }
                Fit::Sum { parts: [a, b], whole } => of(a)
                    .zip(of(b))
                    .zip(of(whole))
                    .map(|((a, b), whole)| Relation::Sum { whole, parts: [a, b] }),
                Fit::AtMost { small, large, what: _ }
                | Fit::CutOf { small, large, offset: _ }
                | Fit::PutInto { small, large, offset: _ } => {
                    of(small).zip(of(large)).map(|(small, large)| Relation::AtMost { small, large })
                }
                // These say nothing about the size of one dim beside another: dims of one size are
                // one variable already, and the number of parts is in the unit.
                Fit::SameSize(..)
                | Fit::Even(_)
                | Fit::InParts { .. }
                | Fit::Choices { .. }
                | Fit::Different(..)
                | Fit::New(_)
                | Fit::NewOr(..)
                | Fit::InSecond(_) => None,
            });
        }
    }
    out
}

fn lcm(a: u64, b: u64) -> u64 {
    (a / gcd(a, b).max(1)).saturating_mul(b)
}
