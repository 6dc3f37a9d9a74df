//! [`Plan`]: a lowered layer, instruction by instruction, as every device runs it.

use crate::attention::{Ring, local_statistics, partial_softmax, rings};
use crate::never;
use shard_words::Span;

use crate::collective::Collective;
use crate::collective_einsum::{Fused, LoopLayouts};
use crate::layout::{Layout, MeshShape};
use crate::layout_rule::Operand;
use crate::mesh::Mesh;
use crate::op::{Argument, Op};
use crate::program::{FoldId, ParameterKind};
use crate::reason::Reason;
use crate::rules::Rules;
use crate::schedule::Stream;
use crate::tensor::{Dim, DimId, Dtype};

/// An instruction, as an index into [`Plan::instructions`]; dense, in program order.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct InstrId(pub u32);

/// A lowered layer: per-device ops and inserted collectives. Verified by
/// [`verify`](crate::verify::verify); its text is `.shir` ([`text`](crate::text)).
#[derive(Clone, PartialEq, Debug)]
pub struct Plan {
    /// The layer's name.
    pub name: String,
    /// How many times the layer is stacked.
    pub repeat: u64,
    /// The name of the phase whose sizes the dims have; `None` in a file without phases.
    pub phase: Option<String>,
    /// The hardware it was lowered for.
    pub hardware: Option<String>,
    /// The mesh.
    pub mesh: Mesh,
    /// The dims.
    pub dims: Vec<Dim>,
    /// Operands come before their uses.
    pub instructions: Vec<Instruction>,
    /// The results.
    pub outputs: Vec<PlanOutput>,
    /// The folded blocks of a model.
    pub folds: Vec<PlanFold>,
}

/// A folded block: its instructions stand together and run `repeat` times one after another, each
/// time on their own weights and caches. The first application reads `from`; every other reads `to`
/// of the application before in its place. Outside of the block, `to` is what the last application
/// gives.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PlanFold {
    /// The layer's name.
    pub layer: String,
    /// How many applications there are; more than one.
    pub repeat: u64,
    /// The instruction before the block whose value the first application takes.
    pub from: InstrId,
    /// The instruction of the block whose value is handed on; it has the type and the layout of
    /// `from`.
    pub to: InstrId,
}

/// One instruction of a [`Plan`]; it makes one value in one layout.
#[derive(Clone, PartialEq, Debug)]
pub struct Instruction {
    /// What it does.
    pub kind: InstrKind,
    /// What it reads: earlier instructions.
    pub operands: Vec<InstrId>,
    /// The value's name in the source, if it has one.
    pub name: Option<String>,
    /// The value's dims, in memory order.
    pub dims: Vec<DimId>,
    /// The value's dtype.
    pub dtype: Dtype,
    /// The value's layout after this instruction.
    pub layout: Layout,
    /// Where the instruction comes from.
    pub origin: Origin,
    /// The folded block that it is in. A parameter of one stands for as many tensors as there are
    /// applications.
    pub fold: Option<FoldId>,
}

/// What an instruction does.
#[derive(Clone, PartialEq, Debug)]
pub enum InstrKind {
    /// A parameter of the layer.
    Parameter(ParameterKind),
    /// A number, the same everywhere.
    Constant(Number),
    /// An op on what each device holds.
    Op(Op),
    /// A move of its one operand.
    Move(Collective),
    /// An einsum with a collective inside its loop.
    CollectiveEinsum(Fused),
}

/// A number of a plan.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Number {
    /// As it stands.
    Given(f64),
    /// The size of a dim, whatever it is.
    SizeOf(DimId),
}

impl Number {
    /// Its value, where these are the dims.
    pub fn value(self, dims: &[Dim]) -> f64 {
        match self {
            Number::Given(value) => value,
            Number::SizeOf(dim) => dims[dim.index()].size as f64,
        }
    }
}

impl InstrKind {
    /// The `op` of JSON output: `parameter`, `einsum`, `all-gather`.
    pub fn name(&self) -> &'static str {
        match self {
            InstrKind::Parameter(_) => "parameter",
            InstrKind::Constant(_) => "constant",
            InstrKind::Op(op) => op.row().op,
            InstrKind::Move(collective) => collective.name(),
            InstrKind::CollectiveEinsum(_) => "collective-einsum",
        }
    }

    /// The op that each device does on what it holds; for a collective einsum the einsum.
    pub fn op(&self) -> Option<&Op> {
        match self {
            InstrKind::Op(op) => Some(op),
            InstrKind::CollectiveEinsum(_) => Some(&Op::Einsum),
            InstrKind::Parameter(_) | InstrKind::Constant(_) | InstrKind::Move(_) => None,
        }
    }

    /// Its collective: a move, or the one that is fused into its loop.
    pub fn collective(&self) -> Option<Collective> {
        match self {
            InstrKind::Move(collective) => Some(*collective),
            InstrKind::CollectiveEinsum(fused) => Some(fused.collective()),
            InstrKind::Parameter(_) | InstrKind::Constant(_) | InstrKind::Op(_) => None,
        }
    }

    /// Its kind, if it is a parameter.
    pub fn parameter(&self) -> Option<ParameterKind> {
        if let InstrKind::Parameter(kind) = self { Some(*kind) } else { None }
    }

    /// The collective in its loop, if it is a collective einsum.
    pub fn fused(&self) -> Option<Fused> {
        if let InstrKind::CollectiveEinsum(fused) = self { Some(*fused) } else { None }
    }

    /// The stream that it keeps busy. A move without traffic is done by the device itself; a
    /// collective einsum multiplies while it sends.
    pub fn stream(&self) -> Stream {
        match self {
            InstrKind::Move(collective) if collective.has_traffic() => Stream::Network,
            InstrKind::Move(_)
            | InstrKind::Parameter(_)
            | InstrKind::Constant(_)
            | InstrKind::Op(_)
            | InstrKind::CollectiveEinsum(_) => Stream::Compute,
        }
    }

    /// Whether it is a collective einsum that gathers.
    pub fn gathers_in_a_loop(&self) -> bool {
        self.fused().is_some_and(|fused| fused.gathered().is_some())
    }
}

/// Why an instruction is there.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Origin {
    /// The rewrite rules that made it: `axis_on_a_contracted_dim_leaves_a_partial_sum`.
    pub rules: Rules,
    /// For a move, and for an op that differs from the source: why it is there. `.shir` leaves it
    /// out.
    pub reason: Option<Reason>,
    /// The place in the source that caused it.
    pub span: Option<Span>,
    /// The inlined layers it is in, outermost first.
    pub in_layers: Vec<String>,
    /// The mark of a piece: of one of several instructions that compute a composite (`softmax`,
    /// `rmsnorm`, `layernorm`) whose dim is split. It is the name of the composite's value, or the
    /// composite's word where the value has no name. Since prices depend on the mark, it is checked
    /// against what the instructions compute ([`in_pieces`](crate::composite::in_pieces)).
    pub piece_of: Option<String>,
    /// The mark of a softmax, or a concat, that runs as one kernel with the ops around it. Since
    /// prices depend on the mark, it is checked against what the instructions compute
    /// ([`attentions`](crate::attention::attentions)).
    pub attention: bool,
    /// Whether it is a move that a `reshard` of the source asks for.
    pub written: bool,
}

/// The memory of the chunks that are under way in the loop of a collective einsum, or in a ring.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LoopHeld {
    /// The first instruction of the loop.
    pub first: InstrId,
    /// Its last instruction.
    pub last: InstrId,
    /// Bytes on one device, held from the first to the last.
    pub bytes: u64,
}

/// One result of a [`Plan`].
#[derive(Clone, PartialEq, Debug)]
pub struct PlanOutput {
    /// Its name.
    pub name: String,
    /// The instruction that makes it.
    pub id: InstrId,
    /// The dims in the declared order, a permutation of the instruction's.
    pub dims: Vec<DimId>,
    /// Whether it is a cache after the step, which stays in memory and is not returned.
    pub state: bool,
}

impl Plan {
    /// Whether a value lies in host memory: a parameter that is kept there, or a slice of one
    /// before it is fetched.
    pub fn in_host_memory(&self, mut id: InstrId) -> bool {
        loop {
            let instr = self.instruction(id);
            match (&instr.kind, instr.operands.first()) {
                (InstrKind::Parameter(kind), _) => return *kind == ParameterKind::HostWeight,
                (InstrKind::Move(_), Some(operand)) => id = *operand,
                (
                    InstrKind::Move(_)
                    | InstrKind::Constant(_)
                    | InstrKind::Op(_)
                    | InstrKind::CollectiveEinsum(_),
                    _,
                ) => return false,
            }
        }
    }
    /// The instruction of an id.
    pub fn instruction(&self, id: InstrId) -> &Instruction {
        &self.instructions[id.index()]
    }
    /// The results that are returned, without the caches that stay.
    pub fn results(&self) -> impl Iterator<Item = &PlanOutput> {
        self.outputs.iter().filter(|output| !output.state)
    }
    /// All instruction ids, in program order.
    pub fn ids(&self) -> impl DoubleEndedIterator<Item = InstrId> + use<> {
        (0..self.instructions.len() as u32).map(InstrId)
    }
    /// How many times an instruction is run in one step of the layer.
    pub fn repeat_of(&self, id: InstrId) -> u64 {
        self.instruction(id)
            .fold
            .and_then(|fold| self.folds.get(fold.index()))
            .map_or(1, |fold| fold.repeat)
    }
    /// How many tensors are in memory for an instruction: one for each application of its folded
    /// block, if it is a parameter that stays there; else one, since the applications run one after
    /// another.
    pub fn copies_of(&self, id: InstrId) -> u64 {
        match self.instruction(id).kind.parameter() {
            Some(ParameterKind::Activation) | None => 1,
            Some(ParameterKind::Weight | ParameterKind::HostWeight | ParameterKind::Cache) => {
                self.repeat_of(id)
            }
        }
    }
    /// The folded block in which an instruction runs; `None` outside of blocks, and for parameters
    /// and constants, which do not run.
    pub fn runs_in(&self, id: InstrId) -> Option<FoldId> {
        let instr = self.instruction(id);
        match instr.kind {
            InstrKind::Parameter(_) | InstrKind::Constant(_) => None,
            InstrKind::Op(_) | InstrKind::Move(_) | InstrKind::CollectiveEinsum(_) => instr.fold,
        }
    }
    /// For each folded block the first and the last instruction that runs in it; `None` for an
    /// empty block.
    pub fn fold_ranges(&self) -> Vec<Option<(InstrId, InstrId)>> {
        let mut ranges: Vec<Option<(InstrId, InstrId)>> = vec![None; self.folds.len()];
        for id in self.ids() {
            if let Some(range) = self.runs_in(id).and_then(|fold| ranges.get_mut(fold.index())) {
                *range = Some((range.map_or(id, |(first, _)| first), id));
            }
        }
        ranges
    }
    /// The value of a number.
    pub fn number(&self, number: Number) -> f64 {
        number.value(&self.dims)
    }
    /// The number that an instruction makes; `None` of any other instruction.
    pub fn constant(&self, id: InstrId) -> Option<f64> {
        match self.instruction(id).kind {
            InstrKind::Constant(number) => Some(self.number(number)),
            InstrKind::Parameter(_)
            | InstrKind::Op(_)
            | InstrKind::Move(_)
            | InstrKind::CollectiveEinsum(_) => None,
        }
    }
    /// The global sizes of some dims.
    pub fn sizes(&self, dims: &[DimId]) -> Vec<u64> {
        dims.iter().map(|d| self.dims[d.index()].size).collect()
    }
    /// The names of some dims.
    pub fn dim_names(&self, dims: &[DimId]) -> Vec<&str> {
        dims.iter().map(|d| self.dims[d.index()].name.as_str()).collect()
    }
    /// Some dims as text: `BLE`, `[Batch, Seq]`.
    pub fn dims_text(&self, dims: &[DimId]) -> String {
        Layout::REPLICATED.text(&self.mesh, &self.dim_names(dims))
    }
    /// What fills a slot of an op: `Seq`, `BL`, `128`, `f32`.
    pub fn argument_text(&self, argument: &Argument) -> String {
        match argument {
            Argument::Dim(dim) => self.dims[dim.index()].name.clone(),
            Argument::Dims(dims) => self.dims_text(dims),
            Argument::Number(number) => number.to_string(),
            Argument::Dtype(dtype) => dtype.to_string(),
        }
    }
    /// The sizes of an instruction's value on one device.
    pub fn local_sizes(&self, id: InstrId) -> Vec<u64> {
        let instr = self.instruction(id);
        MeshShape { mesh: &self.mesh, sizes: &self.sizes(&instr.dims) }.local_sizes(instr.layout)
    }
    /// How many elements of an instruction's value one device holds.
    pub fn local_elements(&self, id: InstrId) -> u64 {
        self.local_sizes(id).iter().product()
    }
    /// The bytes of an instruction's value on one device, the statistics of a `partialsoftmax`
    /// value included.
    pub fn local_bytes(&self, id: InstrId) -> u64 {
        let bytes = self.instruction(id).dtype.bytes(self.local_elements(id));
        bytes + Dtype::F32.bytes(self.local_statistics(id))
    }
    /// How many statistics one device holds beside an instruction's value: 0 unless it is
    /// `partialsoftmax`.
    pub fn local_statistics(&self, id: InstrId) -> u64 {
        let Some((_, statistics)) = partial_softmax(self, id) else { return 0 };
        let instr = self.instruction(id);
        let shape = MeshShape { mesh: &self.mesh, sizes: &self.sizes(&instr.dims) };
        local_statistics(shape, instr.layout, statistics)
    }
    /// The canonical text of an instruction's layout.
    pub fn layout_text(&self, id: InstrId) -> String {
        let instr = self.instruction(id);
        instr.layout.text(&self.mesh, &self.dim_names(&instr.dims))
    }
    /// The canonical text of a result's layout, dims in the declared order.
    pub fn output_layout_text(&self, output: &PlanOutput) -> String {
        self.output_layout(output).text(&self.mesh, &self.dim_names(&output.dims))
    }
    /// A result's layout, dims in the declared order.
    pub fn output_layout(&self, output: &PlanOutput) -> Layout {
        let instr = self.instruction(output.id);
        let order: Vec<usize> =
            output.dims.iter().filter_map(|d| instr.dims.iter().position(|i| i == d)).collect();
        instr.layout.permuted(&order)
    }
    /// An instruction's value as the layout rule sees it.
    pub fn operand(&self, id: InstrId) -> Operand<'_> {
        let instr = self.instruction(id);
        Operand { dims: &instr.dims, dtype: instr.dtype, layout: instr.layout }
    }
    /// The operand of a move; any other instruction itself.
    pub fn moved(&self, id: InstrId) -> InstrId {
        match (&self.instruction(id).kind, self.instruction(id).operands.as_slice()) {
            (InstrKind::Move(_), [source]) => *source,
            (InstrKind::Move(_), _) => never!("a move of no value, or of several", id),
            (
                InstrKind::Parameter(_)
                | InstrKind::Constant(_)
                | InstrKind::Op(_)
                | InstrKind::CollectiveEinsum(_),
                _,
            ) => id,
        }
    }

    /// The collective of a collective einsum, and the layouts inside its loop; `None` for any other
    /// instruction, and where the layouts are not legal.
    pub fn loop_layouts(&self, id: InstrId) -> Option<(Fused, LoopLayouts)> {
        let instr = self.instruction(id);
        let InstrKind::CollectiveEinsum(fused) = instr.kind else { return None };
        let operands: Vec<Operand<'_>> = instr.operands.iter().map(|o| self.operand(*o)).collect();
        let layouts = fused.layouts(&operands, &instr.dims, &self.mesh, &self.dims).ok()?;
        Some((fused, layouts))
    }
    /// The fused collective of a collective einsum, the instruction whose value it moves, and the
    /// layout of this value before: the operand that is gathered, or the product, for which the
    /// instruction itself stands.
    pub fn fused_collective(&self, id: InstrId) -> Option<(Collective, InstrId, Layout)> {
        let (fused, layouts) = self.loop_layouts(id)?;
        Some(match fused.gathered() {
            Some(place) => {
                let operand = *self.instruction(id).operands.get(place)?;
                (fused.collective(), operand, self.instruction(operand).layout)
            }
            None => (fused.collective(), id, layouts.product),
        })
    }
    /// What the loops of a plan hold on one device besides operands and results: the chunk in use
    /// and the chunk that arrives, but no more chunks than there are besides the device's own.
    pub fn loops_held(&self) -> Vec<LoopHeld> {
        let rings = rings(self);
        let in_ring = |id: &InstrId| rings.iter().any(|ring| ring.members.contains(id));
        let alone = self.ids().filter(|id| !in_ring(id)).filter_map(|id| {
            let instr = self.instruction(id);
            let InstrKind::CollectiveEinsum(fused) = &instr.kind else { return None };
            let moved = fused.gathered().and_then(|place| instr.operands.get(place));
            let chunk = self.local_bytes(moved.copied().unwrap_or(id));
            let beside = fused.chunks(&self.mesh).saturating_sub(1).min(2);
            Some(LoopHeld { first: id, last: id, bytes: chunk.saturating_mul(beside) })
        });
        let of_ring = |ring: &Ring| LoopHeld {
            first: ring.first(),
            last: ring.last(),
            bytes: ring.bytes(self),
        };
        alone.chain(rings.iter().map(of_ring)).collect()
    }
    /// The instructions that read each instruction, in program order.
    pub fn uses(&self) -> Vec<Vec<InstrId>> {
        let mut uses = vec![Vec::new(); self.instructions.len()];
        for id in self.ids() {
            for operand in &self.instruction(id).operands {
                uses[operand.index()].push(id);
            }
        }
        uses
    }
    /// An einsum's subscripts: `BLE,EF->BLF`, or `[Batch,E],[E,F]->[Batch,F]` where a name is
    /// longer than a letter and digits.
    pub fn equation(&self, id: InstrId) -> String {
        let instr = self.instruction(id);
        self.equation_of(&instr.operands, &instr.dims)
    }

    /// The dtype that an einsum, or a collective einsum, has to state; `None` where it is the dtype
    /// of the operands' product.
    pub fn stated_dtype(&self, id: InstrId) -> Option<Dtype> {
        let instr = self.instruction(id);
        if instr.kind.op() != Some(&Op::Einsum) {
            return None;
        }
        let mut dtypes = instr.operands.iter().map(|o| self.instruction(*o).dtype);
        let first = dtypes.next()?;
        let product = dtypes.try_fold(first, Dtype::product);
        (product != Some(instr.dtype)).then_some(instr.dtype)
    }

    pub(crate) fn equation_of(&self, operands: &[InstrId], result: &[DimId]) -> String {
        let sides: Vec<&[DimId]> =
            operands.iter().map(|o| self.instruction(*o).dims.as_slice()).chain([result]).collect();
        let compact = sides.iter().all(|dims| {
            self.dim_names(dims).iter().all(|n| n.chars().skip(1).all(|c| c.is_ascii_digit()))
        });
        let word = |dims: &[DimId]| {
            if compact {
                self.dim_names(dims).concat()
            } else {
                format!("[{}]", self.dim_names(dims).join(","))
            }
        };
        let (result, operands) = sides.split_last().map_or((&[][..], &[][..]), |(r, o)| (*r, o));
        format!(
            "{}->{}",
            operands.iter().map(|d| word(d)).collect::<Vec<_>>().join(","),
            word(result)
        )
    }
}
