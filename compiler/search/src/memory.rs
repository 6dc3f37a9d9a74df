//! Memory as a constraint: bounds on what a plan needs, known before the plan is there.
//!
//! What a plan needs is one figure, [`Memory::peak`]. Two parts of it are known beforehand, and
//! never too high: what weights and caches take, in the layouts chosen so far or else in the
//! smallest that their types allow; and what each kernel or move has to hold beside them while it
//! runs.

mod of_tables;

use shard_cost::Memory;
use shard_ir::{Def, Layout, MeshShape, Op, ParameterKind, Plan, Program, ValueId};

use crate::kernel::Kernels;
use crate::passing::Passing;
use crate::relax::factors::Factors;
use crate::space::layouts_allowed;

/// What a plan needs on each device, over the whole stack, in bytes.
pub(crate) fn needed(plan: &Plan) -> u64 {
    Memory::of(plan).peak().0
}

/// The memory of a device, and bounds on what the plans of a program need of it. All in bytes.
#[derive(Debug)]
pub(crate) struct DeviceMemory<'a> {
    program: &'a Program,
    /// The memory of a device.
    capacity: u64,
    /// For each weight and cache, what it takes at least, over the whole stack; 0 for other values.
    least: Vec<u64>,
    /// The most that some op holds at least, whatever the plan.
    activations: u64,
    /// What the activations given to the layer take at least: all of them are there at the first
    /// step. Prices do not know of it, so that it is not counted in what a relaxation has room for.
    given: u64,
    /// An op or a move may hold what is free, divided by this.
    share: u64,
    /// The phases that the program consists of, where it is several side by side.
    scopes: Option<&'a Scopes>,
}

/// The phases of a program that is several phases side by side, of which one runs at a time. In the
/// memory of each are the weights that phases share, and its own weights and caches.
#[derive(Clone, Debug)]
pub(crate) struct Scopes {
    /// For each parameter of the program, in order, the phase that it belongs to; `None` for one
    /// that all phases share.
    pub(crate) of_parameter: Vec<Option<usize>>,
    /// For each phase, the bytes that its weights and caches may take.
    pub(crate) most: Vec<u64>,
}

impl<'a> DeviceMemory<'a> {
    /// The memory that all plans of a program have to fit in.
    pub(crate) fn new(program: &'a Program, capacity: u64) -> DeviceMemory<'a> {
        let mut memory = DeviceMemory {
            program,
            capacity,
            least: vec![0; program.values.len()],
            activations: 0,
            given: 0,
            share: 1,
            scopes: None,
        };
        let least = |id: ValueId| {
            let pattern = program.value(id).def.pattern().filter(|_| memory.is_kept(id))?;
            layouts_allowed(program, id, pattern).into_iter().map(|l| memory.kept(id, l)).min()
        };
        memory.least = program.value_ids().map(|id| least(id).unwrap_or(0)).collect();
        let given = |id: ValueId| {
            let pattern = program.value(id).def.pattern().filter(|_| is_given(program, id))?;
            layouts_allowed(program, id, pattern).into_iter().map(|l| memory.bytes(id, l)).min()
        };
        memory.given = program.value_ids().filter_map(given).fold(0, u64::saturating_add);
        memory
    }

    /// The same, where the program is several phases side by side.
    pub(crate) fn within(self, scopes: Option<&'a Scopes>) -> DeviceMemory<'a> {
        // The activations of all phases are not there at once.
        let given = if scopes.is_some() { 0 } else { self.given };
        DeviceMemory { scopes, given, ..self }
    }

    /// The memories that plans have to fit in, one for each phase where there are several: the
    /// weights and caches in it, and what they may take together.
    pub(crate) fn memories(&self) -> Vec<(Vec<ValueId>, u64)> {
        let kept = |id: &ValueId| self.is_kept(*id);
        let Some(Scopes { of_parameter, most }) = self.scopes else {
            return vec![(self.program.value_ids().filter(kept).collect(), self.most_kept())];
        };
        let parameters: Vec<(ValueId, Option<usize>)> =
            self.program.parameters().zip(of_parameter.iter().copied()).collect();
        let of = |phase: usize| {
            let here =
                parameters.iter().filter(|(id, of)| of.is_none_or(|of| of == phase) && kept(id));
            here.map(|(id, _)| *id).collect()
        };
        most.iter().enumerate().map(|(phase, most)| (of(phase), *most)).collect()
    }

    /// The same memory for plans whose weights and caches take at least this, value by value.
    pub(crate) fn beside(&self, least: Vec<u64>) -> DeviceMemory<'a> {
        DeviceMemory { least, ..*self }
    }

    /// What the weights and caches of any plan take at least, over the whole stack.
    pub(crate) fn least(&self) -> u64 {
        self.least.iter().fold(0, |sum, n| sum.saturating_add(*n))
    }

    /// What any plan needs at least.
    pub(crate) fn needed(&self) -> u64 {
        self.least().saturating_add(self.activations())
    }

    /// What weights and caches may take beside the activations that every plan has.
    pub(crate) fn most_kept(&self) -> u64 {
        self.capacity.saturating_sub(self.activations)
    }

    /// Whether a plan that needs so many bytes fits.
    pub(crate) fn holds(&self, needed: u64) -> bool {
        needed <= self.capacity
    }

    /// What weights and caches may take beyond their least.
    pub(crate) fn spare(&self) -> u64 {
        self.most_kept().saturating_sub(self.least())
    }

    /// What weights and caches may take beyond their least, beside the activations of any plan,
    /// also those that prices do not know of.
    fn room(&self) -> u64 {
        self.capacity.saturating_sub(self.needed())
    }

    /// The same memory, where an op or a move may hold no more than what is free divided by
    /// `share`. Plans that are found so leave room for what is held beside an op; some plans that
    /// fit are left out.
    pub(crate) fn sparing(&self, share: u64) -> DeviceMemory<'a> {
        DeviceMemory { least: self.least.clone(), share, ..*self }
    }

    /// What a weight or cache takes at least in one layer of the stack.
    pub(crate) fn smallest(&self, value: ValueId) -> u64 {
        let times = self.program.repeat.saturating_mul(self.program.copies(value)).max(1);
        self.least[value.index()] / times
    }

    /// What activations take at least, whatever the plan.
    pub(crate) fn activations(&self) -> u64 {
        self.activations.max(self.given)
    }

    /// What one op or move may hold beside the smallest weights and caches.
    fn free(&self) -> u64 {
        self.capacity.saturating_sub(self.least()) / self.share.max(1)
    }

    /// Whether a value is in memory from the first step to the last: a weight or a cache.
    pub(crate) fn is_kept(&self, value: ValueId) -> bool {
        self.program.value(value).def.parameter().is_some_and(ParameterKind::is_kept)
    }

    /// What a weight or cache that is stored in a layout takes beyond its least; 0 for activations
    /// and weights of the host, which come and go.
    pub(crate) fn beyond_least(&self, value: ValueId, layout: Layout) -> u64 {
        if self.is_kept(value) {
            self.kept(value, layout).saturating_sub(self.least[value.index()])
        } else {
            0
        }
    }

    /// The problem without the strategies of ops that do not fit even beside the smallest weights
    /// and caches, and the memory with the bound on activations that follows.
    pub(crate) fn fitting(
        self,
        kernels: &Kernels,
        problem: &Factors,
    ) -> (DeviceMemory<'a>, Factors) {
        let mut fits = problem.clone();
        // A program of several phases does not record which op is of which phase.
        if self.scopes.is_some() {
            return (self, fits);
        }
        let (free, mut activations) = (self.free(), self.activations);
        // Where there is no room to store a value in a layout, it is read in that layout from a
        // copy.
        let spare = self.spare();
        let stored = |id: ValueId| {
            let mut given = problem.given(self.program, id);
            given.retain(|layout| self.beyond_least(id, *layout) <= spare);
            given
        };
        let stored: Vec<Vec<Layout>> = self.program.value_ids().map(stored).collect();
        let passing = Passing::of(kernels, &self, &|id: ValueId| {
            let layouts = (0..problem.nodes(id) as u32).filter_map(|node| problem.layout(id, node));
            layouts.map(|layout| self.bytes(id, layout)).min()
        });
        for value in &problem.live {
            let Some(held) = self.held_by_op(kernels, problem, *value, &stored) else { continue };
            let passes = self.passes(&passing, *value, self.program.value(*value).def.operands());
            let held: Vec<u64> = held.into_iter().map(|held| held.saturating_add(passes)).collect();
            fits.keep(*value, &|strategy| held[strategy] <= free);
            let least = held.into_iter().filter(|held| *held <= free).min();
            activations = activations.max(least.unwrap_or(0));
        }
        (DeviceMemory { activations, ..self }, fits)
    }

    /// What an op holds with each of its strategies while it runs, beside the stored weights and
    /// caches; `None` for a value that no op makes.
    ///
    /// The op may be part of any kernel, so what may pass between members of a kernel counts as
    /// nothing. A weight or cache is read where it is stored, in one of the layouts in `stored`, or
    /// from a copy.
    fn held_by_op(
        &self,
        kernels: &Kernels,
        problem: &Factors,
        value: ValueId,
        stored: &[Vec<Layout>],
    ) -> Option<Vec<u64>> {
        let Def::Op { operands, .. } = &self.program.value(value).def else { return None };
        let ends_a_kernel = !self.shares_memory(value) && !is_passed_on(kernels, value);
        let made = self.bytes_of_nodes(problem, value, &|_| ends_a_kernel);
        let read = operands.iter().map(|operand| {
            let (origin, viewed) = self.origin(*operand);
            let is_held = match &self.program.value(origin).def {
                Def::Op { .. } => !is_passed_on(kernels, self.program.unpinned(*operand)),
                Def::Parameter { kind, .. } => match kind {
                    ParameterKind::Activation => true,
                    ParameterKind::Weight | ParameterKind::Cache => !viewed,
                    ParameterKind::HostWeight => false,
                },
                Def::Constant(_) | Def::Pin { .. } => false,
            };
            let is_stored =
                |layout| self.is_kept(origin) && stored[origin.index()].contains(&layout);
            let held = |layout| is_held && !is_stored(layout);
            (origin, self.bytes_of_nodes(problem, *operand, &held))
        });
        let read: Vec<(ValueId, Vec<u64>)> = read.collect();
        // Of the operands with one memory the largest counts.
        let is_first = |at: usize| !read[..at].iter().any(|(origin, _)| *origin == read[at].0);
        let firsts: Vec<usize> = (0..read.len()).filter(|at| is_first(*at)).collect();
        let factor = &problem.factors[value.index()];
        let of_strategy = |strategy: usize| {
            let nodes = factor.reads_of(strategy);
            let of_memory = |first: &usize| {
                let same =
                    read.iter().zip(nodes).filter(|((origin, _), _)| *origin == read[*first].0);
                same.map(|((_, bytes), node)| bytes[*node as usize]).max().unwrap_or(0)
            };
            let made = made[factor.out[strategy] as usize];
            firsts.iter().map(of_memory).fold(made, u64::saturating_add)
        };
        Some((0..factor.out.len()).map(of_strategy).collect())
    }

    /// The bytes of a value at each of its nodes, on each device; 0 where it is not held in the
    /// layout of the node. A hub is no layout, and no memory holds a value there.
    fn bytes_of_nodes(
        &self,
        problem: &Factors,
        value: ValueId,
        is_held: &dyn Fn(Layout) -> bool,
    ) -> Vec<u64> {
        let sizes = self.program.sizes(&self.program.value(value).dims);
        let of_node = |node| match problem.layout(value, node) {
            Some(layout) if is_held(layout) => self.bytes_of(value, &sizes, layout),
            Some(_) => 0,
            None => u64::MAX,
        };
        (0..problem.nodes(value) as u32).map(of_node).collect()
    }

    /// What passes the step that reads these values and makes one.
    fn passes(&self, passing: &Passing, made: ValueId, read: &[ValueId]) -> u64 {
        let own = read.iter().chain([&made]).map(|value| self.origin(*value).0);
        passing.at(made, own)
    }

    /// Whether the program is several phases side by side, of which one runs at a time.
    pub(crate) fn is_of_phases(&self) -> bool {
        self.scopes.is_some()
    }

    /// The bytes of a value in a layout, on each device.
    pub(crate) fn bytes(&self, value: ValueId, layout: Layout) -> u64 {
        self.bytes_of(value, &self.program.sizes(&self.program.value(value).dims), layout)
    }

    /// The same for a value of these sizes.
    fn bytes_of(&self, value: ValueId, sizes: &[u64], layout: Layout) -> u64 {
        let shape = MeshShape { mesh: &self.program.mesh, sizes };
        self.program.value(value).dtype.bytes(shape.local_elements(layout))
    }

    /// The bytes of a weight or cache in a layout, over the whole stack.
    pub(crate) fn kept(&self, value: ValueId, layout: Layout) -> u64 {
        self.bytes(value, layout)
            .saturating_mul(self.program.repeat)
            .saturating_mul(self.program.copies(value))
    }

    /// Whether a value is made by an op that may give the memory of its first operand another name,
    /// and take no memory of its own.
    pub(crate) fn shares_memory(&self, value: ValueId) -> bool {
        matches!(
            &self.program.value(value).def,
            Def::Op {
                op: Op::Rename { .. } | Op::Split { .. } | Op::Merge { .. } | Op::Append { .. },
                ..
            }
        )
    }

    /// The value whose memory this one may be another name of, and whether an op lies between.
    pub(crate) fn origin(&self, mut value: ValueId) -> (ValueId, bool) {
        let mut viewed = false;
        loop {
            match &self.program.value(value).def {
                Def::Pin { operand, .. } => value = *operand,
                Def::Op { operands, .. } if self.shares_memory(value) && !operands.is_empty() => {
                    viewed = true;
                    value = operands[0];
                }
                Def::Op { .. } | Def::Parameter { .. } | Def::Constant(_) => {
                    return (value, viewed);
                }
            }
        }
    }
}

/// Whether a value is an activation given to the layer.
fn is_given(program: &Program, value: ValueId) -> bool {
    program.value(value).def.parameter() == Some(ParameterKind::Activation)
}

/// Whether a value may pass from op to op within a kernel, so that it is in no memory.
pub(crate) fn is_passed_on(kernels: &Kernels, value: ValueId) -> bool {
    kernels
        .of
        .iter()
        .flatten()
        .any(|kernel| kernel.chain.iter().rev().skip(1).any(|link| *link == value))
}
