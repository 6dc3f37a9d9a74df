//! The ways of having each value of a program: for an op, its strategies and its loops.

use std::rc::Rc;

use rustc_hash::FxHashMap;
use shard_ir::composite::composite_dim;
use shard_ir::{Def, Layout, Op, Program, ValueId};

use crate::attention;
use crate::carried::{PartialSoftmax, bytes};
use crate::format::CertificateError;
use crate::kernel::{self, Adds, Joins, Kernel, Works, may_be_joined};
use crate::loops::Loops;
use crate::moves::Node;
use crate::pieces::last_kernel;
use crate::space::Space;

/// Strategies of all ops together, beyond which a space is refused.
const MOST_WAYS: usize = 1 << 24;

/// The ways of having a value before any move of it, in flat arrays. A parameter or a constant has
/// one for each layout in which it may be given, a pin one for each layout that it allows, and an
/// op one for each strategy and each loop.
#[derive(Debug, Default)]
pub(crate) struct Ways {
    /// For each way the layout that is made.
    pub(crate) out: Vec<Node>,
    /// For each way the layouts that are read, one for each of `arity` operands.
    pub(crate) reads: Vec<Node>,
    pub(crate) arity: usize,
    /// For each way of an op the number of the kernel that it runs as if it joins none.
    pub(crate) kernel: Vec<u32>,
    /// For each way of an op whether elementwise ops may join that kernel.
    pub(crate) joinable: Vec<bool>,
    /// For each way of an op the bytes that it adds to the kernel of its operand, if it may join
    /// it.
    pub(crate) adds: Vec<Option<Adds>>,
    /// For each way whether a plan may have it in a kernel of its own, and joined to the kernel of
    /// its operand.
    pub(crate) in_own_kernel: Vec<bool>,
    pub(crate) joins_kernel: Vec<bool>,
}

impl Ways {
    pub(crate) fn len(&self) -> usize {
        self.out.len()
    }

    pub(crate) fn reads_of(&self, way: usize) -> &[Node] {
        &self.reads[way * self.arity..(way + 1) * self.arity]
    }

    fn simple(nodes: Vec<Node>, arity: usize) -> Ways {
        let count = nodes.len();
        let reads = if arity == 0 { Vec::new() } else { nodes.clone() };
        Ways {
            out: nodes,
            reads,
            arity,
            in_own_kernel: vec![true; count],
            joins_kernel: vec![false; count],
            ..Ways::default()
        }
    }
}

impl Space<'_> {
    /// Finds the ways of having each value, and the time of each kernel. The layouts that
    /// parameters and pins outside of the part declare are found with `has_sides`.
    pub(crate) fn find_ways(
        &mut self,
        loops: bool,
        has_sides: bool,
    ) -> Result<(), CertificateError> {
        let program = self.program;
        let mut all = 0;
        for id in self.present.clone() {
            let is_within = self.is_within[id.index()];
            let ways = match &program.value(id).def {
                Def::Parameter { pattern, .. } if is_within || has_sides => {
                    Ways::simple(self.allowed(id, pattern), 0)
                }
                Def::Pin { pattern, .. } if is_within || has_sides => {
                    Ways::simple(self.allowed(id, pattern), 1)
                }
                Def::Parameter { .. } | Def::Pin { .. } => continue,
                Def::Constant(_) | Def::Op { .. } if !is_within => continue,
                Def::Constant(_) => {
                    let whole = self.moves[id.index()].node(Layout::REPLICATED);
                    Ways::simple(whole.into_iter().collect(), 0)
                }
                Def::Op { op, .. } => self.ways_of_op(id, op, loops),
            };
            all += ways.len();
            if all > MOST_WAYS {
                return Err(CertificateError::new(
                    "the program has too many strategies to be checked",
                ));
            }
            self.ways[id.index()] = ways;
        }
        attention::find_ways(self, loops);
        self.times = self.kernels.times(self.hardware);
        Ok(())
    }

    /// The ways of an op: its strategies, and with `loops` the loops of each.
    fn ways_of_op(&mut self, id: ValueId, op: &Op, loops: bool) -> Ways {
        let (program, hardware) = (self.program, self.hardware);
        let Some(mut site) = kernel::site(program, id) else { return Ways::default() };
        let partial_softmaxes = Rc::clone(&self.partial_softmaxes);
        site.carries = partial_softmaxes[id.index()].and_then(|of| of.carries);
        let operands = program.value(id).def.operands();
        let mut ways = Ways { arity: operands.len(), ..Ways::default() };
        let mut works = Works::new(program, id, op, &partial_softmaxes);
        let mut loops =
            (loops && matches!(op, Op::Einsum)).then(|| Loops::new(program, hardware, id));
        let joins = self.joins[id.index()].clone();
        let mut in_pieces: FxHashMap<Layout, Option<Kernel>> = FxHashMap::default();
        let kernels = &mut self.kernels;
        let moves = &self.moves;
        let mut push =
            |read: &[Layout], out: Layout, kernel: Kernel, joinable: bool, adds: Option<Adds>| {
                let nodes =
                    operands.iter().zip(read).map(|(o, layout)| moves[o.index()].node(*layout));
                let (Some(nodes), Some(out)) =
                    (nodes.collect::<Option<Vec<Node>>>(), moves[id.index()].node(out))
                else {
                    return;
                };
                ways.reads.extend(nodes);
                ways.out.push(out);
                ways.kernel.push(kernels.number(kernel));
                ways.joinable.push(joinable);
                ways.adds.push(adds);
            };
        site.for_each_strategy(&mut |read, out| {
            let pieces = match (composite_dim(op), read.first()) {
                (Some(_), Some(layout)) => *in_pieces
                    .entry(*layout)
                    .or_insert_with(|| last_kernel(program, hardware, id, *layout)),
                _ => None,
            };
            let alone = || Kernel { work: works.of(read, out), before: 0, in_loop: None };
            let kernel = pieces.unwrap_or_else(alone);
            let adds = joins.as_ref().and_then(|joins| {
                adds_to_kernel(program, joins, operands, read, &partial_softmaxes)
            });
            push(read, out, kernel, may_be_joined(program, id, out), adds);
            // No loop reads or makes a `partialsoftmax` value.
            if !out.softmax_axes().is_empty() {
                return;
            }
            for looped in loops.iter_mut().flat_map(|loops| loops.of(read, out)) {
                let mut given = read.to_vec();
                if let Some((operand, layout)) = looped.given {
                    given[operand] = layout;
                }
                let kernel = Kernel { in_loop: Some(looped.collective), ..kernel };
                push(&given, looped.result, kernel, looped.given.is_some(), None);
            }
        });
        ways.in_own_kernel = vec![true; ways.len()];
        ways.joins_kernel = ways.adds.iter().map(Option::is_some).collect();
        ways
    }
}

/// The bytes that an op adds to the kernel that it joins, if it reads its operands in the layouts
/// `read`; `None` where it may not join the kernel in these.
fn adds_to_kernel(
    program: &Program,
    joins: &Joins,
    operands: &[ValueId],
    read: &[Layout],
    partial_softmaxes: &[Option<PartialSoftmax>],
) -> Option<Adds> {
    let between = read[joins.from_maker[0]];
    let fits = joins.from_maker.iter().all(|i| read[*i] == between)
        && may_be_joined(program, joins.maker, between);
    let size =
        |i: usize| bytes(program, operands[i], read[i], partial_softmaxes[operands[i].index()]);
    let of = |reads: &[bool]| (0..read.len()).filter(|i| reads[*i]).map(size).sum();
    fits.then(|| Adds {
        alone: of(&joins.reads),
        beside_attention: of(&joins.reads_beside_attention),
    })
}
