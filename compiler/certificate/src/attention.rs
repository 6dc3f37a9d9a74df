//! Attention as one kernel (`spec/cost.md`, *Attention*): which ops of a program are such a kernel,
//! and in which layouts it can be had.
//!
//! The layout of the result decides all other layouts. An axis that splits a dim of the result
//! splits this dim in every member; an axis over which the result is `partialsoftmax` splits the
//! keys, in any order among such axes; no other axis splits anything. Nothing else is partial.
//!
//! With loops an attention can also be a ring (`spec/cost.md`, *Rings*): the operands of its
//! products that have the keys are then given split by axes that split no other dim of them.
//!
//! Where concats join its keys and values, an attention can also have these concats as members. A
//! concat then has the layout in which it is read, and axes that split the keys split each part of
//! what is joined.

mod ways;

use shard_cost::Hardware;
use shard_ir::attention::{
    Ops, attention_of, may_split_keys, softmax_over, statistics_of, with_joined,
};
use shard_ir::{Def, DimId, DimSet, Op, Program, ValueId};

use crate::moves::Node;

pub(crate) use ways::find_ways;

/// An attention as one kernel.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Attention {
    /// The values that its ops make, first to last.
    pub(crate) members: Vec<ValueId>,
    /// The pins of values that pass from member to member.
    pub(crate) pins: Vec<ValueId>,
    /// What it reads from outside: the member that reads it, and the place among its operands.
    pub(crate) reads: Vec<(ValueId, usize)>,
    /// For each of these reads the place of the keys among the dims of the operand, if the operand
    /// travels in a ring: a product reads it, and it has the keys.
    travels: Vec<Option<usize>>,
    /// The dim that the softmax is over.
    keys: DimId,
    /// The places of the dims of its statistics in the result, if axes may split the keys.
    pub(crate) statistics: Option<DimSet>,
    /// The ways of having it.
    pub(crate) ways: Vec<AttentionWay>,
    /// The same attention with the concats of its keys and values as members.
    joined: Option<Box<Attention>>,
}

impl Attention {
    /// This attention, and the same with the concats of its keys and values as members.
    pub(crate) fn variants(&self) -> impl Iterator<Item = &Attention> {
        std::iter::once(self).chain(self.joined.as_deref())
    }

    /// The variant with the most members.
    pub(crate) fn widest(&self) -> &Attention {
        self.joined.as_deref().unwrap_or(self)
    }

    /// What it reads from outside, past pins.
    pub(crate) fn origins(&self, program: &Program) -> Vec<ValueId> {
        let operand = |(by, place): &(ValueId, usize)| program.value(*by).def.operands()[*place];
        self.reads.iter().map(|read| program.unpinned(operand(read))).collect()
    }

    /// Whether a value is a member, or a pin between members.
    pub(crate) fn has(&self, id: ValueId) -> bool {
        self.members.contains(&id) || self.pins.contains(&id)
    }
}

/// A way of having an attention as one kernel.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct AttentionWay {
    /// The layout that is made.
    pub(crate) out: Node,
    /// The layouts that are read, in the order of [`Attention::reads`].
    pub(crate) reads: Vec<Node>,
    /// The layouts that pins let through, in the order of [`Attention::pins`].
    pub(crate) pinned: Vec<Node>,
    /// The number of the kernel.
    pub(crate) kernel: u32,
}

/// For each value of a program the attention that it ends; none where the chip has no such kernel.
pub(crate) fn attentions(
    program: &Program,
    hardware: &Hardware,
    live: &[ValueId],
    readers: &[usize],
) -> Vec<Option<Attention>> {
    let mut all: Vec<Option<Attention>> = vec![None; program.values.len()];
    if hardware.has_attention() {
        let graph = InProgram { program, readers };
        for id in live {
            let Some(members) = attention_of(&graph, *id) else { continue };
            let joined = with_joined(&graph, &members).and_then(|all| attention(program, all));
            let found = attention(program, members);
            let joined = joined.map(|all| {
                let splits = keys_in_any_order(program, &all);
                Box::new(Attention { statistics: all.statistics.filter(|_| splits), ..all })
            });
            all[id.index()] = found.map(|found| Attention { joined, ..found });
        }
    }
    all
}

fn attention(program: &Program, members: Vec<ValueId>) -> Option<Attention> {
    let (keys, op, softmax) = members.iter().find_map(|id| {
        let value = program.value(*id);
        value.def.op().and_then(|op| Some((softmax_over(op)?, op, value)))
    })?;
    let by = statistics_of(&program.value(*members.last()?).dims, &softmax.dims, keys);
    // A strict layer has no syntax for the merge that a split of the keys would need.
    let statistics = (may_split_keys(op, softmax.dtype) && !program.strict).then_some(by);
    let (mut pins, mut reads, mut travels) = (Vec::new(), Vec::new(), Vec::new());
    for id in &members {
        let is_product = matches!(program.value(*id).def, Def::Op { op: Op::Einsum, .. });
        for (place, operand) in program.value(*id).def.operands().iter().enumerate() {
            if members.contains(&program.unpinned(*operand)) {
                pins.extend(pins_of(program, *operand));
            } else {
                let of_keys = program.value(*operand).dims.iter().position(|dim| *dim == keys);
                reads.push((*id, place));
                travels.push(of_keys.filter(|_| is_product));
            }
        }
    }
    pins.sort_unstable();
    pins.dedup();
    let (ways, joined) = (Vec::new(), None);
    Some(Attention { members, pins, reads, travels, keys, statistics, ways, joined })
}

/// Whether a device may have a block of each part of what concats join, which is no block of the
/// whole: no mask asks for the positions of the keys, nothing that is read has the keys as a dim,
/// and no pin states the layout of what is joined.
fn keys_in_any_order(program: &Program, found: &Attention) -> bool {
    let op = |id: ValueId| program.value(id).def.op();
    let has_keys = |(reader, place): &(ValueId, usize)| {
        let operand = program.value(*reader).def.operands()[*place];
        program.value(operand).dims.contains(&found.keys)
    };
    let is_concat = |id: ValueId| matches!(op(id), Some(Op::Concat { .. }));
    !found.members.iter().any(|id| matches!(op(*id), Some(Op::Mask { .. })))
        && !found.reads.iter().any(has_keys)
        && !found.pins.iter().any(|pin| is_concat(program.unpinned(*pin)))
}

/// The pins from a value back to the value that is not pinned, the value itself first if it is a
/// pin.
pub(crate) fn pins_of(program: &Program, mut id: ValueId) -> Vec<ValueId> {
    let mut pins = Vec::new();
    while let Def::Pin { operand, .. } = &program.value(id).def {
        pins.push(id);
        id = *operand;
    }
    pins
}

struct InProgram<'a> {
    program: &'a Program,
    readers: &'a [usize],
}

impl<'a> Ops<'a> for InProgram<'a> {
    type Id = ValueId;

    fn op(&self, id: ValueId) -> Option<&'a Op> {
        self.program.value(id).def.op()
    }

    fn operands(&self, id: ValueId) -> Vec<ValueId> {
        let operands = self.program.value(id).def.operands();
        operands.iter().map(|operand| self.program.unpinned(*operand)).collect()
    }

    fn dims(&self, id: ValueId) -> &'a [DimId] {
        &self.program.value(id).dims
    }

    fn passes_to_all(&self, from: ValueId, to: &[ValueId]) -> bool {
        let program = self.program;
        let fed = to.iter().flat_map(|to| program.value(*to).def.operands());
        let fed: Vec<ValueId> =
            fed.copied().filter(|operand| program.unpinned(*operand) == from).collect();
        let mut passed: Vec<ValueId> =
            fed.iter().flat_map(|operand| pins_of(program, *operand)).collect();
        passed.sort_unstable();
        passed.dedup();
        let all: usize = passed.iter().chain([&from]).map(|id| self.readers[id.index()]).sum();
        let fold = program.value(from).fold;
        to.iter().all(|to| program.value(*to).fold == fold) && all == fed.len() + passed.len()
    }

    fn may_join(&self, _: ValueId) -> bool {
        true
    }
}
