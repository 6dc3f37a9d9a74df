//! The logical layer: the equal ways of computing a program, before any layout.
//!
//! An e-graph of the program ([`graph`]) is saturated with the rules of [`LAWS`]; each way of
//! reading a whole program off it is a [`Form`]. The search bounds every form and searches the
//! promising ones ([`lower`](crate::lower)). Most programs have one form, the one written: a
//! softmax, a norm or an activation stands between products that could otherwise be done in another
//! order, and the cap on flops excludes most other orders.

mod blocks;
mod choices;
mod extract;
mod fewest;
mod graph;
#[cfg(test)]
mod held_to_checker;
mod laws;
#[cfg(test)]
mod tests;
mod writer;
mod written;

use std::collections::BTreeMap;

use egg::Id;
use shard_cost::{Bytes, Flops, Hardware, Work, one_pair_in, roofline};
use shard_ir::reason::Rewriting;
use shard_ir::{Def, Dtype, Op, Program, ValueId, never};

pub(crate) use choices::Choices;

use crate::lower::within_limits;
use crate::rules::{self, Rule};
use crate::{Limits, SearchLimit};
use graph::Logical;
pub(crate) use laws::MAX_OPERANDS;
use laws::Rewrites;

/// One way of computing a program.
#[derive(Clone, Debug)]
pub(crate) struct Form {
    /// The program: the same parameters, pins, labels and results; einsums of two operands at most.
    pub(crate) program: Program,
    /// Whether it differs from the source in more than the order of einsums of more than two
    /// operands.
    pub(crate) rewritten: bool,
    /// The values that are not computed as the source says.
    pub(crate) made: BTreeMap<ValueId, Rewritten>,
    /// The flops of its einsums, on all devices together; 0 for the form that is written, which is
    /// a lower bound as well.
    flops: u128,
}

/// Why a value is computed as it is.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Rewritten {
    pub(crate) rule: Rule,
    /// How the value is computed, where there is something to say.
    pub(crate) reason: Option<Rewriting>,
}

/// The forms of a program, at least one.
#[derive(Debug)]
pub(crate) struct Forms {
    /// The one written comes first, then the others by flops.
    pub(crate) all: Vec<Form>,
    /// What was left out, if anything was.
    pub(crate) cut: Option<Cut>,
}

/// Forms that were left out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Cut {
    /// The limit that left them out.
    pub(crate) limit: SearchLimit,
    /// Each of them takes at least so many flops.
    flops: u128,
}

/// A rule, and the function that finds other ways of computing a class by it.
type Law = (Rule, fn(&Logical<'_>, Id, &mut Rewrites));

/// The logical rules. No law is needed for equal ops to be one value, since equal ops are one
/// e-node.
const LAWS: &[Law] = &[
    (rules::LONG_EINSUM, laws::long_einsum),
    (rules::REASSOCIATED, laws::reassociation),
    (rules::SUM_OF_EINSUM, laws::sum_of_einsum),
    (rules::SHARED_OPERAND, laws::shared_operand),
    (rules::UNMASKED, laws::mask_of_nothing),
    (rules::LOCATED, laws::located),
    (rules::CUMSUM_IN_PARTS, blocks::cumsum),
    (rules::SCAN_IN_PARTS, blocks::scan),
    (rules::SHIFT_IN_PARTS, blocks::shift),
    (rules::CONV_IN_PARTS, blocks::conv),
    (rules::LARGEST_OF_PARTS, blocks::largest_few),
];

/// The logical e-graph of a program, with all that the rules find.
pub(crate) struct Saturated<'p> {
    logical: Logical<'p>,
    /// The limit that ended the rules, or that kept a rule from looking at an einsum.
    cut: Option<SearchLimit>,
    strict: bool,
}

impl<'p> Saturated<'p> {
    /// Saturates the e-graph of a program. In a strict layer nothing is rewritten but the order of
    /// einsums of more than two operands, which the source leaves open.
    pub(crate) fn new(program: &'p Program, strict: bool, limits: &Limits) -> Saturated<'p> {
        let mut logical = Logical::new(program);
        let laws = if strict { &LAWS[..1] } else { LAWS };
        let saturated = saturate(&mut logical, laws, limits.logical_nodes);
        debug_assert!(!logical.has_clash(), "a logical rule made one class of two types");
        let mut cut = (!saturated).then_some(SearchLimit::LogicalNodes);
        if program.values.iter().any(|v| is_einsum_of_more_than(v, laws::MAX_OPERANDS)) {
            cut = Some(SearchLimit::EinsumOperands);
        }
        Saturated { logical, cut, strict }
    }

    /// The forms of the program.
    pub(crate) fn forms(&self, limits: &Limits) -> Forms {
        let written = written::as_written(self.logical.program);
        let mut cut = self.cut.map(|limit| Cut { limit, flops: 0 });
        let read = extract::read_off(
            &self.logical,
            self.strict,
            limits.enumerated_forms,
            limits.forms.max(1) - 1,
        );
        if let Some(flops) = read.cut {
            let flops = if cut.is_some() { 0 } else { flops };
            cut = Some(Cut { limit: SearchLimit::EnumeratedForms, flops });
        }
        cut = cut.or(read.beyond.map(|flops| Cut { limit: SearchLimit::Forms, flops }));
        // A form may have too many layouts where the one written has not.
        let too_large =
            |form: &Form| form.rewritten && within_limits(&form.program, limits).is_err();
        let (too_large, others): (Vec<Form>, Vec<Form>) =
            read.forms.into_iter().partition(too_large);
        if let Some(flops) = too_large.iter().map(|form| form.flops).min() {
            let known = cut.unwrap_or(Cut { limit: SearchLimit::Layouts, flops });
            cut = Some(Cut { flops: known.flops.min(flops), ..known });
        }
        let mut all = vec![written];
        all.extend(others);
        Forms { all, cut }
    }

    /// The choices of the program, if it has more forms than may be searched one by one; `None`
    /// where it has fewer, or where a cluster of choices has too many alternatives.
    pub(crate) fn choices(&self, limits: &Limits) -> Option<Choices<'_>> {
        Choices::of(&self.logical).filter(|choices| choices.count() > limits.forms)
    }

    /// The form that is written.
    pub(crate) fn written(&self) -> Form {
        written::as_written(self.logical.program)
    }

    /// The limit that left forms out of the e-graph.
    pub(crate) fn cut(&self) -> Option<SearchLimit> {
        self.cut
    }
}

/// The forms of a program.
#[cfg(test)]
pub(crate) fn forms(program: &Program, strict: bool, limits: &Limits) -> Forms {
    Saturated::new(program, strict, limits).forms(limits)
}

fn is_einsum_of_more_than(value: &shard_ir::Value, most: usize) -> bool {
    matches!(&value.def, Def::Op { op: Op::Einsum, operands } if operands.len() > most)
}

/// Applies the rules until they find nothing new; `false` where the limit on e-nodes ended it.
fn saturate(logical: &mut Logical<'_>, laws: &[Law], limit: usize) -> bool {
    // The rule on orders that the source leaves open is applied first, by itself: what it finds is
    // no rewriting, even if another rule finds it too.
    (1..=laws.len())
        .filter(|count| [1, laws.len()].contains(count))
        .all(|count| run(logical, &laws[..count], limit))
}

fn run(logical: &mut Logical<'_>, laws: &[Law], limit: usize) -> bool {
    // The e-nodes of the program itself do not count.
    let limit = limit + logical.size().0;
    loop {
        let mut found: Vec<(Rewrites, Rule)> = Vec::new();
        for (rule, law) in laws {
            let mut all = Rewrites::new();
            for class in logical.classes() {
                law(logical, class, &mut all);
            }
            found.push((all, *rule));
        }
        let before = logical.size();
        let mut any = false;
        for (all, rule) in &found {
            for (class, made) in all {
                any = true;
                logical.add(*class, made, *rule);
                // Some e-nodes are counted twice until classes are merged.
                if logical.size().0 > limit {
                    logical.rebuild();
                }
                if logical.size().0 > limit {
                    return false;
                }
            }
        }
        if !any {
            return true;
        }
        logical.rebuild();
        if before == logical.size() {
            return true;
        }
    }
}

/// More flops than this get no bound, since their time is rounded to seconds.
const MAX_FLOPS: u128 = 1 << 80;

/// The least time of so many flops, in picoseconds, however they are spread over the devices.
fn least_time(flops: u128, program: &Program, hardware: &Hardware) -> u64 {
    let on_one_device = flops / u128::from(program.mesh.devices().max(1));
    // An attention does not multiply pairs that its mask hides.
    let hidden = if hardware.has_attention() { one_pair_in(program) } else { 1 };
    let on_one_device = on_one_device / hidden;
    if on_one_device > MAX_FLOPS {
        return 0;
    }
    let at = |arithmetic: &Dtype| {
        let work = Work {
            matmul: None,
            attention: false,
            ring: None,
            flops: Flops(on_one_device),
            arithmetic: *arithmetic,
            read: Bytes(0),
            write: Bytes(0),
            fetched: Bytes(0),
        };
        roofline(hardware, &work).0.0
    };
    let fastest = Dtype::ALL.iter().map(at).min().unwrap_or_else(|| never!("no dtype", 0));
    // The time of each op is rounded by itself.
    fastest.saturating_sub(program.values.len() as u64)
}

impl Form {
    /// A lower bound on its plans from flops alone, in picoseconds.
    pub(crate) fn first_bound(&self, hardware: &Hardware) -> u64 {
        least_time(self.flops, &self.program, hardware)
    }
}

impl Cut {
    /// A lower bound on the plans of all forms that were left out, from flops alone, in
    /// picoseconds.
    pub(crate) fn first_bound(&self, program: &Program, hardware: &Hardware) -> u64 {
        least_time(self.flops, program, hardware)
    }
}
