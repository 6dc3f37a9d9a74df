//! Why a move is there, in one clause that names the dims and the axes.

use shard_ir::composite::composite_dim;
use shard_ir::{AxisId, AxisSet, Collective, Def, Fused, Layout, Op, Place, Program, Reduce, Reduction, ValueId};

use crate::emit::{name_of, op_in_words};
use crate::kernel::Kernels;
use crate::search::{Settled, Solution};
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
                    Source::Kernel(number, _) => {
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
    let name = called(program, value);
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

/// The reason of the collective in the loop of an einsum that is given its operands in these layouts.
pub(crate) fn reason_of_loop(
    kernels: &Kernels,
    tables: &Tables,
    solution: &Solution,
    readers: &Readers,
    value: ValueId,
    fused: &Fused,
    given: &[Layout],
) -> String {
    let program = kernels.program.as_ref();
    let axes = fused.axes();
    let axes_text = program.mesh.axes_text(axes.iter());
    let dim = |of: ValueId, i: usize| program.dims[program.value(of).dims[i].index()].name.as_str();
    match *fused {
        Fused::AllGather { operand, dim: d, .. } => {
            let moved = program.value(value).def.operands()[operand];
            let whole = given[operand]
                .with_dim(d, given[operand].axes_of(d).prefix(given[operand].axes_of(d).len() - axes.len()));
            let of = Moved { value: moved, collective: &fused.collective(), axes: axes.set() };
            let roles = roles(program, readers, tables, &of, value, whole);
            let (dim, name, who) = (dim(moved, d), called(program, moved), op_in_words(program, value));
            format!(
                "{axes_text} splits {dim} of {name}; {who} {}, and multiplies each block while the next one travels",
                roles.join(" and ")
            )
        }
        Fused::ReduceScatter { dim: d, .. } => {
            let cause = partial_cause(kernels, tables, solution, value, axes.set(), Reduction::Sum);
            format!("{cause}; each block of {} is sent round while the next one is made", dim(value, d))
        }
    }
}

/// The reason of an all-reduce between the pieces of a composite that reads its operand in a layout; `piece` makes the
/// statistic.
pub(crate) fn reason_in_pieces(program: &Program, composite: ValueId, operand: Layout, piece: &Op) -> String {
    let value = program.value(composite);
    let mut who = op_in_words(program, composite);
    let Def::Op { op, operands } = &value.def else { return who };
    // What has no name is told by what it is of.
    if let (None, Some(from)) = (name_of(program, composite), operands.first()) {
        who = format!("{who} of {}", called(program, *from));
    }
    let over = composite_dim(op).zip(operands.first()).and_then(|(over, from)| {
        let at = program.value(*from).dims.iter().position(|d| *d == over)?;
        Some((program.dims[over.index()].name.as_str(), program.mesh.axes_text(operand.axes_of(at).iter())))
    });
    let Some((dim, axes)) = over else { return who };
    let statistic = match piece {
        Op::Reduce { kind: Reduce::Max, .. } => "the largest",
        Op::Reduce { kind: Reduce::Mean, .. } => "a part of the mean",
        Op::Einsum => "the sum of squares",
        _ => "the sum",
    };
    format!(
        "{who} is over {dim}, which {axes} splits: each device has {statistic} of its block; all need that of the whole"
    )
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
    let name = called(program, value);
    let all = mesh.axes_text(axes.iter());
    let given = || format!("{name} is partial over {all}");
    let Some(settled) = &solution.values[value.index()] else { return given() };
    let table = tables.of(value);
    // What is not made partial was cut into terms by a move.
    let producer = &table.producers[settled.made_in as usize][settled.producer];
    let mut partial = table.layouts[settled.made_in as usize].partial(kind);
    if let (Source::Kernel(_, Some(Fused::ReduceScatter { axes, .. })), Reduction::Sum) = (producer.source, kind) {
        // Before its loop has scattered it.
        partial = partial.union(axes.set());
    }
    let made = axes.intersection(partial);
    let cut = axes.difference(made);
    if !cut.is_empty() {
        let terms = cut_into_terms(program, tables, settled, value, cut);
        return match made.is_empty() {
            true => terms,
            false => format!("{}, and {terms}", partial_cause(kernels, tables, solution, value, made, kind)),
        };
    }
    match (producer.source, &program.value(value).def) {
        (Source::Pin, Def::Pin { operand, .. }) => partial_cause(kernels, tables, solution, *operand, axes, kind),
        (Source::Kernel(..), _) => {
            let mut found: Vec<String> = Vec::new();
            let mut explained = AxisSet::EMPTY;
            let chain = settled_chain(kernels, producer.source, value);
            let (reducing, verb) = reduces(program, chain, kind);
            for (operand, layout) in &producer.reads {
                let layout = tables.of(*operand).layouts[*layout as usize];
                for axis in axes.difference(explained).iter() {
                    if let Place::Split { dim, .. } = layout.place(axis) {
                        let dim_id = program.value(*operand).dims[dim];
                        let on = layout.axes_of(dim).iter().filter(|a| axes.contains(*a));
                        explained = on.clone().fold(explained, AxisSet::with);
                        found.push(format!(
                            "{verb} over {}, which {} splits",
                            program.dims[dim_id.index()].name,
                            mesh.axes_text(on)
                        ));
                        break;
                    }
                }
            }
            let mut causes: Vec<String> = Vec::new();
            let mut named = value;
            if !found.is_empty() {
                named = reducing.unwrap_or(value);
                let verb = if found.len() == 1 { "leaves" } else { "leave" };
                causes.push(format!("{}, {verb} {} partial over {all}", found.join(", and "), called(program, named)));
            }
            // A sum of terms that were there before: one that is made so tells more than one cut into terms.
            let is_made_partial = |v: &ValueId| {
                let made = solution.values[v.index()].as_ref().map(|s| tables.of(*v).layouts[s.made_in as usize]);
                made.is_some_and(|layout| axes.is_subset(layout.partial(kind)))
            };
            let terms: Vec<ValueId> = producer
                .reads
                .iter()
                .filter(|(v, layout)| axes.is_subset(tables.of(*v).layouts[*layout as usize].partial(kind)))
                .map(|(v, _)| *v)
                .collect();
            let mut told: Vec<ValueId> = terms.iter().copied().filter(is_made_partial).collect();
            if causes.is_empty() && told.is_empty() {
                told.extend(terms.first());
            }
            told.truncate(2 - causes.len());
            if let Some(term) = told.first() {
                named = *term;
            }
            causes.extend(told.iter().map(|term| partial_cause(kernels, tables, solution, *term, axes, kind)));
            match (causes.is_empty(), name_of(program, value)) {
                (true, _) => given(),
                (false, Some(own)) if name_of(program, named) != Some(own) => {
                    format!("{}, and so {name}", causes.join(", and "))
                }
                (false, _) => causes.join(", and "),
            }
        }
        _ => given(),
    }
}

/// How a move made a complete value one of terms: its blocks, or the one copy that counts, with zeros elsewhere.
fn cut_into_terms(program: &Program, tables: &Tables, settled: &Settled, value: ValueId, cut: AxisSet) -> String {
    let (mesh, table) = (&program.mesh, tables.of(value));
    let all = mesh.axes_text(cut.iter());
    let name = called(program, value);
    let dims = settled.moves.iter().filter_map(|(from, to)| match table.arc(*from, *to)?.collective {
        Collective::ToPartial { dim: Some(dim), axes, .. } if axes.iter().any(|a| cut.contains(a)) => {
            Some(program.dims[program.value(value).dims[dim].index()].name.as_str())
        }
        _ => None,
    });
    match dims.collect::<Vec<_>>().as_slice() {
        [] => format!("{name} counts on one device of each group over {all}, with zeros on the others"),
        dims => format!(
            "{all} splits {} of {name}, whose blocks with zeros elsewhere add up to the whole over {all}",
            dims.join(" and ")
        ),
    }
}

/// The ops of the kernel that makes a value.
fn settled_chain(kernels: &Kernels, source: Source, value: ValueId) -> &[ValueId] {
    match source {
        Source::Kernel(number, _) => kernels.of[value.index()].get(number).map_or(&[][..], |kernel| &kernel.chain),
        Source::Given | Source::Pin => &[],
    }
}

/// The op of a kernel that combines terms over a dim, and what it does.
fn reduces(program: &Program, chain: &[ValueId], kind: Reduction) -> (Option<ValueId>, &'static str) {
    let mut verbs = chain.iter().filter_map(|id| match &program.value(*id).def {
        Def::Op { op: Op::Reduce { .. }, .. } if kind == Reduction::Max => Some((Some(*id), "the maximum")),
        Def::Op { op: Op::Einsum, .. } => Some((Some(*id), "contraction")),
        Def::Op { op: Op::Reduce { .. }, .. } => Some((Some(*id), "the sum")),
        Def::Op { op: Op::Take { .. }, .. } => Some((Some(*id), "the lookup")),
        _ => None,
    });
    verbs.next_back().unwrap_or((None, "contraction"))
}

/// A value by its name, or by the op that makes it: "the einsum of `x` and `w`".
pub(crate) fn called(program: &Program, value: ValueId) -> String {
    fn within(program: &Program, value: ValueId, depth: u32) -> String {
        if let Some(name) = name_of(program, value) {
            return format!("`{name}`");
        }
        match &program.value(value).def {
            Def::Constant(number) => format!("{number:?}"),
            Def::Pin { operand, .. } => within(program, *operand, depth),
            Def::Parameter { .. } => "a parameter".to_string(),
            Def::Op { op, operands } if depth > 0 => {
                let mut names: Vec<String> = Vec::new();
                for name in operands.iter().map(|o| within(program, *o, depth - 1)) {
                    if !names.contains(&name) {
                        names.push(name);
                    }
                }
                format!("the {} of {}", op.word(), names.join(" and "))
            }
            Def::Op { op, .. } => format!("the {}", op.word()),
        }
    }
    let short = within(program, value, 1);
    if short.contains('`') { short } else { within(program, value, 2) }
}
