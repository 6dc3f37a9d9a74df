//! Why a move is there, in one clause that names the dims and the axes.

use shard_ir::{AxisId, AxisSet, Collective, Def, Layout, Op, Place, Program, Reduction, ValueId};

use crate::emit::{name_of, op_in_words};
use crate::kernel::Kernels;
use crate::search::Solution;
use crate::table::{Arc, LayoutId, Source, Tables};

/// Who asks for a value in a layout.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Reader {
    /// Nobody yet: the move follows the op that makes the value.
    Maker,
    /// An op or a pin.
    Value(ValueId),
    /// A result of the layer.
    Output(usize),
}

/// For each value, who reads it in which layout.
#[derive(Debug)]
pub(crate) struct Readers {
    of: Vec<Vec<(Reader, LayoutId)>>,
}

impl Readers {
    pub(crate) fn new(kernels: &Kernels, tables: &Tables, solution: &Solution) -> Readers {
        let program = kernels.program.as_ref();
        let mut of = vec![Vec::new(); program.values.len()];
        for (id, settled) in program.value_ids().zip(&solution.values) {
            let Some(settled) = settled else { continue };
            let producer = &tables.of(id).producers[settled.made_in as usize][settled.producer];
            for (i, (operand, layout)) in producer.reads.iter().enumerate() {
                let reader = match producer.source {
                    Source::Kernel(number) => {
                        let kernel = &kernels.of[id.index()][number];
                        // The reads are those of the first op of the chain, then of each later one.
                        let first = program.value(kernel.chain[0]).def.operands().len();
                        let at = if i < first { 0 } else { op_of_read(kernels, kernel, i) };
                        kernel.chain[at]
                    }
                    Source::Given | Source::Pin => id,
                };
                of[operand.index()].push((Reader::Value(reader), *layout));
            }
        }
        for (i, (output, layout)) in program.outputs.iter().zip(&solution.outputs).enumerate() {
            of[output.value.index()].push((Reader::Output(i), *layout));
        }
        Readers { of }
    }

    /// The first reader of a value that is reached through a move, and the layout that it reads.
    fn first_through(&self, solution: &Solution, value: ValueId, step: Step) -> Option<(Reader, LayoutId)> {
        self.of[value.index()].iter().copied().find(|(_, wanted)| leads_to(solution, value, step, *wanted))
    }

    /// Every reader of a value that is reached through a move.
    pub(crate) fn through(&self, solution: &Solution, value: ValueId, step: Step) -> Vec<Reader> {
        let all = self.of[value.index()].iter();
        all.filter(|(_, wanted)| leads_to(solution, value, step, *wanted)).map(|(reader, _)| *reader).collect()
    }
}

/// A move as the layouts before and after it.
type Step = (LayoutId, LayoutId);

/// Whether a move lies on the way of a value to a layout.
fn leads_to(solution: &Solution, value: ValueId, step: Step, wanted: LayoutId) -> bool {
    let Some(settled) = &solution.values[value.index()] else { return false };
    let mut at = wanted;
    while at != settled.made_in {
        let Some((from, to)) = settled.moves.iter().find(|(_, to)| *to == at) else { return false };
        if (*from, *to) == step {
            return true;
        }
        at = *from;
    }
    false
}

/// Which op of a kernel's chain makes its `read`-th read.
fn op_of_read(kernels: &Kernels, kernel: &crate::kernel::Kernel, read: usize) -> usize {
    let mut count = 0;
    for (link, id) in kernel.chain.iter().enumerate() {
        let operands = kernels.program.value(*id).def.operands();
        count += operands.iter().filter(|o| !kernels.is_fed(kernel, link, **o)).count();
        if read < count {
            return link;
        }
    }
    kernel.chain.len() - 1
}

/// The reason of a move of a value.
pub(crate) fn reason(
    kernels: &Kernels,
    tables: &Tables,
    solution: &Solution,
    readers: &Readers,
    value: ValueId,
    arc: &Arc,
) -> String {
    let program = kernels.program.as_ref();
    let mesh = &program.mesh;
    let table = tables.of(value);
    let (from, to) = (table.layouts[arc.from as usize], table.layouts[arc.to as usize]);
    let axes = arc.collective.axes(mesh, from);
    let axes_text = mesh.axes_text(axes.iter());
    let name = name_of(program, value).map_or_else(|| "the value".to_string(), |n| format!("`{n}`"));
    let dim = |i: usize| program.dims[program.value(value).dims[i].index()].name.as_str();
    let reader = readers.first_through(solution, value, (arc.from, arc.to));
    let wants = reader.map_or_else(String::new, |(reader, layout)| {
        let moved = Moved { value, collective: &arc.collective, axes: axes.set() };
        demand(program, readers, tables, &moved, reader, table.layouts[layout as usize])
    });
    match arc.collective {
        Collective::ReduceScatter { kind, dim: d, .. } => {
            let cause = partial_cause(kernels, tables, solution, value, axes.set(), kind);
            format!("{cause}; each device keeps its block of {}{}", dim(d), clause(&wants))
        }
        Collective::AllReduce { kind, .. } => {
            let cause = partial_cause(kernels, tables, solution, value, axes.set(), kind);
            format!("{cause}; every device needs the whole{}", clause(&wants))
        }
        Collective::AllGather { dim: d, .. } => {
            format!("{axes_text} splits {} of {name}{}", dim(d), clause(&wants))
        }
        Collective::AllToAll { from_dim, to_dim, .. } => {
            let (from, to) = (dim(from_dim), dim(to_dim));
            format!("{axes_text} splits {from} of {name} and is wanted on {to}{}", clause(&wants))
        }
        Collective::Permute { .. } => {
            let (from, to) = (text(program, value, from), text(program, value, to));
            format!("the blocks of {name} lie as {from} and are wanted as {to}{}", clause(&wants))
        }
        Collective::Slice { dim: d, .. } => {
            format!("{name} is replicated over {axes_text}, so its blocks of {} cost nothing{}", dim(d), clause(&wants))
        }
        Collective::ToPartial { dim: Some(d), .. } => {
            format!(
                "{axes_text} splits {} of {name}; zeros elsewhere make it a term of a sum{}",
                dim(d),
                clause(&wants)
            )
        }
        Collective::ToPartial { dim: None, .. } => {
            format!("{name} is held by one device of each group over {axes_text}{}", clause(&wants))
        }
    }
}

fn clause(wants: &str) -> String {
    if wants.is_empty() { String::new() } else { format!("; {wants}") }
}

fn text(program: &Program, value: ValueId, layout: Layout) -> String {
    layout.text(&program.mesh, &program.dim_names(&program.value(value).dims))
}

/// What a reader asks for, and what the axes of the move do there.
fn demand(
    program: &Program,
    readers: &Readers,
    tables: &Tables,
    moved: &Moved<'_>,
    reader: Reader,
    layout: Layout,
) -> String {
    match reader {
        Reader::Maker => String::new(),
        Reader::Output(i) => {
            let output = &program.outputs[i];
            let word = if output.pattern.open { "taken as" } else { "declared" };
            format!("the result `{}` is {word} {}", output.name, text(program, moved.value, layout))
        }
        Reader::Value(id) => {
            let who = op_in_words(program, id);
            let Def::Op { op, .. } = &program.value(id).def else {
                return format!("{who} asks for {}", text(program, moved.value, layout));
            };
            if let Some(why) = cannot_take(program, op, moved) {
                return format!("{who} {why}");
            }
            let roles = roles(program, readers, tables, moved, id, layout);
            match roles.is_empty() {
                true => format!("{who} reads {}", text(program, moved.value, layout)),
                false => format!("{who} {}", roles.join(" and ")),
            }
        }
    }
}

/// A move as its reason sees it.
struct Moved<'a> {
    value: ValueId,
    collective: &'a Collective,
    axes: AxisSet,
}

/// Why an op could not do with the value as it was before the move, where that lies in the op alone.
fn cannot_take(program: &Program, op: &Op, moved: &Moved<'_>) -> Option<String> {
    let dims = &program.value(moved.value).dims;
    match (moved.collective, op) {
        (Collective::ReduceScatter { .. } | Collective::AllReduce { .. }, Op::Map(map)) if !map.is_linear() => {
            Some("is not linear".to_string())
        }
        (Collective::ReduceScatter { .. } | Collective::AllReduce { .. }, Op::Softmax { .. } | Op::Norm { .. }) => {
            Some("is not linear".to_string())
        }
        (
            Collective::AllGather { dim, .. } | Collective::AllToAll { from_dim: dim, .. },
            Op::Softmax { over } | Op::Norm { over, .. } | Op::Rope { over, .. },
        ) if dims.get(*dim) == Some(over) => Some(format!("needs {} whole", program.dims[over.index()].name)),
        _ => None,
    }
}

/// What the axes of a move do in the op that reads the moved value: in the value itself, and in what it is read with.
fn roles(
    program: &Program,
    readers: &Readers,
    tables: &Tables,
    moved: &Moved<'_>,
    reader: ValueId,
    layout: Layout,
) -> Vec<String> {
    let mesh = &program.mesh;
    let dim_name = |value: ValueId, i: usize| program.dims[program.value(value).dims[i].index()].name.as_str();
    let mut out: Vec<String> = split_by(layout, moved.axes)
        .into_iter()
        .map(|(dim, axes)| format!("works with {} split over {}", dim_name(moved.value, dim), mesh.axes_text(axes)))
        .collect();
    let whole: AxisSet = moved.axes.iter().filter(|a| layout.place(*a) == Place::Replicated).collect();
    if whole.is_empty() {
        return out;
    }
    let mut text = format!("reads it whole over {}", mesh.axes_text(whole.iter()));
    let others = program.value(reader).def.operands().iter().filter(|o| **o != moved.value);
    let beside: Vec<String> = others
        .filter_map(|other| {
            let read = readers.of[other.index()].iter().find(|(r, _)| *r == Reader::Value(reader))?;
            let other_layout = tables.of(*other).layouts[read.1 as usize];
            let name = name_of(program, *other)?;
            let splits = split_by(other_layout, whole);
            let words = splits
                .into_iter()
                .map(|(dim, axes)| format!("{} splits {} of `{name}`", mesh.axes_text(axes), dim_name(*other, dim)));
            Some(words.collect::<Vec<_>>().join(" and "))
        })
        .filter(|words| !words.is_empty())
        .collect();
    if !beside.is_empty() {
        text.push_str(&format!(" (where {})", beside.join(", ")));
    }
    out.push(text);
    out
}

/// The dims that some of the axes split, each with those axes.
fn split_by(layout: Layout, axes: AxisSet) -> Vec<(usize, Vec<AxisId>)> {
    let mut found: Vec<(usize, Vec<AxisId>)> = Vec::new();
    for axis in axes.iter() {
        if let Place::Split { dim, .. } = layout.place(axis) {
            match found.iter_mut().find(|(d, _)| *d == dim) {
                Some((_, list)) => list.push(axis),
                None => found.push((dim, vec![axis])),
            }
        }
    }
    found
}

/// Why a value is partial over some axes.
fn partial_cause(
    kernels: &Kernels,
    tables: &Tables,
    solution: &Solution,
    value: ValueId,
    axes: AxisSet,
    kind: Reduction,
) -> String {
    let program = kernels.program.as_ref();
    let mesh = &program.mesh;
    let name = name_of(program, value).map_or_else(|| "it".to_string(), |n| format!("`{n}`"));
    let all = mesh.axes_text(axes.iter());
    let given = || format!("{name} is partial over {all}");
    let Some(settled) = &solution.values[value.index()] else { return given() };
    let table = tables.of(value);
    let producer = &table.producers[settled.made_in as usize][settled.producer];
    match (producer.source, &program.value(value).def) {
        (Source::Pin, Def::Pin { operand, .. }) => partial_cause(kernels, tables, solution, *operand, axes, kind),
        (Source::Kernel(_), _) => {
            let mut found: Vec<String> = Vec::new();
            let mut explained = AxisSet::EMPTY;
            for (operand, layout) in &producer.reads {
                let layout = tables.of(*operand).layouts[*layout as usize];
                for axis in axes.difference(explained).iter() {
                    if let Place::Split { dim, .. } = layout.place(axis) {
                        let dim_id = program.value(*operand).dims[dim];
                        let on = layout.axes_of(dim).iter().filter(|a| axes.contains(*a));
                        explained = on.clone().fold(explained, AxisSet::with);
                        let verb = if kind == Reduction::Sum { "contraction" } else { "the maximum" };
                        found.push(format!(
                            "{verb} over {}, which {} splits",
                            program.dims[dim_id.index()].name,
                            mesh.axes_text(on)
                        ));
                        break;
                    }
                }
            }
            if found.is_empty() {
                let from = producer.reads.iter().find_map(|(operand, layout)| {
                    let layout = tables.of(*operand).layouts[*layout as usize];
                    axes.is_subset(layout.partial(kind)).then_some(*operand)
                });
                return match from.and_then(|v| name_of(program, v)) {
                    Some(operand) => format!("{name} keeps the partial {} of `{operand}` over {all}", kind_word(kind)),
                    None => given(),
                };
            }
            format!("{}, leaves {name} partial over {all}", found.join(", and "))
        }
        _ => given(),
    }
}

fn kind_word(kind: Reduction) -> &'static str {
    match kind {
        Reduction::Sum => "sum",
        Reduction::Max => "maximum",
    }
}
