//! Cases: distinctions of which one holds in every schedule.

use std::cmp::Reverse;

use shard_ir::{Def, ParameterKind, ValueId};

use super::{FirstOrLast, MovesToReaders, Steps};
use crate::relax::factors::ValueUse;
use crate::relax::graph::FAR;

/// The most cases.
const CASES: usize = 8;
/// An op is long if it takes more than one part in this many of the time of the longest op.
const LONG: i64 = 8;

impl Steps<'_> {
    /// The longest way from an activation to the first result through ops that wait for each other,
    /// the last value first: what a layer does whatever moves meanwhile. Weights and caches are
    /// there from the beginning, so no way begins with one.
    pub(super) fn trunk(&self) -> Vec<ValueId> {
        let program = self.kernels.program.as_ref();
        let mut longest: Vec<Option<i64>> = Vec::with_capacity(program.values.len());
        let mut before: Vec<Option<ValueId>> = vec![None; program.values.len()];
        for id in program.value_ids() {
            let value = program.value(id);
            let way =
                value.def.operands().iter().filter_map(|by| Some((longest[by.index()]?, *by)));
            let last = way.max_by_key(|(time, by)| (*time, Reverse(*by)));
            let least = || self.costs.whole[id.index()].iter().copied().min().unwrap_or(0);
            longest.push(match &value.def {
                Def::Parameter { kind: ParameterKind::Activation, .. } => Some(0),
                Def::Parameter { .. } | Def::Constant(_) => None,
                Def::Pin { .. } | Def::Op { .. } => {
                    last.map(|(time, _)| time.saturating_add(least().min(FAR)))
                }
            });
            before[id.index()] = last.map(|(_, by)| by);
        }
        let last = program.outputs.first().map(|output| output.value);
        std::iter::successors(last, |id| before[id.index()]).collect()
    }

    /// The cases along a way. Where several long ops read a value of the way, the cases are which
    /// of these begins first; where several long ops go into a value, they are which of these is
    /// done last. All of these ops are outside of blocks, so that each is done once in a layer.
    pub(super) fn choices(&self, trunk: &[ValueId]) -> Vec<Vec<FirstOrLast>> {
        let least = |id: ValueId| {
            let is_counted = self.is_op(id) && !self.is_fetch(id);
            let least = self.costs.whole[id.index()].iter().copied().min();
            least.filter(|least| is_counted && *least < FAR)
        };
        let longest = self.problem.live.iter().filter_map(|id| least(*id)).max().unwrap_or(0);
        let is_once = |id: ValueId| self.kernels.program.value(id).fold.is_none();
        let is_long =
            |id: ValueId| is_once(id) && least(id).is_some_and(|least| least > longest / LONG);
        let trunk = || trunk.iter().filter(|id| is_once(**id));
        let firsts = trunk().rev().map(|id| {
            let readers = self.problem.uses[id.index()].iter().filter_map(|of| match of {
                ValueUse::Operand(by, _) if is_long(*by) => Some((*id, *by)),
                ValueUse::Operand(..) | ValueUse::Output(_) => None,
            });
            (true, readers.collect::<Vec<_>>())
        });
        let lasts = trunk().map(|id| (false, self.long_before(*id, &is_long)));
        let mut cases: Vec<Vec<FirstOrLast>> = vec![Vec::new()];
        for (is_first, mut moves) in firsts.chain(lasts) {
            moves.sort_unstable();
            moves.dedup();
            let of_move =
                |(value, reader): &(ValueId, ValueId)| if is_first { *reader } else { *value };
            let of: Vec<ValueId> = moves.iter().map(of_move).collect();
            let is_known =
                cases[0].iter().any(|known| (known.is_first, &known.of) == (is_first, &of));
            if moves.len() < 2 || is_known || cases.len() * moves.len() > CASES {
                continue;
            }
            let with = |case: Vec<FirstOrLast>| {
                let of = of.clone();
                moves.clone().into_iter().map(move |(value, reader)| {
                    let moved = MovesToReaders { value, only: Some(reader) };
                    let chosen = FirstOrLast { is_first, moved, of: of.clone() };
                    case.iter().cloned().chain([chosen]).collect()
                })
            };
            cases = cases.into_iter().flat_map(with).collect();
        }
        cases.retain(|case| !case.is_empty());
        cases
    }

    /// The long ops that go into a value through short ops alone, each with its reader on the way.
    fn long_before(
        &self,
        value: ValueId,
        is_long: &dyn Fn(ValueId) -> bool,
    ) -> Vec<(ValueId, ValueId)> {
        let program = self.kernels.program.as_ref();
        let mut found = Vec::new();
        let mut seen = vec![false; program.values.len()];
        let mut left = vec![value];
        while let Some(by) = left.pop() {
            let is_once = program.value(by).fold.is_none();
            for operand in program.value(by).def.operands().iter().filter(|_| is_once) {
                if is_long(*operand) {
                    found.push((*operand, by));
                } else if !std::mem::replace(&mut seen[operand.index()], true) {
                    left.push(*operand);
                }
            }
        }
        found
    }
}
