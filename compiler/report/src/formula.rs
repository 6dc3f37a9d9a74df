//! `cost --why N`: how the figures of one step come about, each formula with its numbers put in.

use shard_cost::{
    Bytes, CollectiveCost, Flops, Hardware, InstrPrice, LoopPrice, NetworkTime, Term, Weighted,
    Work, collective_time, compute_time, host_time, kernel_traffic, kernels, memory_time,
};
use shard_ir::catalogue::Sends;
use shard_ir::{
    Collective, InstrId, InstrKind, Layout, MeshShape, Op, Picoseconds, Plan, kept_by_each, never,
};

use crate::Layer;
use crate::notation::{phrase, ring_phrase, value_name};
use crate::paint::{Paint, Style};
use crate::scale;

/// One figure of a step.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Figure {
    /// What it is: `flops`, `time`.
    pub name: &'static str,
    /// How it comes about, in the letters of the cost model.
    pub formula: String,
    /// The same in numbers; empty where the formula has none to put in.
    pub numbers: String,
    /// What comes out.
    pub value: String,
}

/// The figures of a step, or none for a parameter or a constant, which cost nothing.
pub fn figures(layer: &Layer<'_>, id: InstrId) -> Option<Vec<Figure>> {
    match &layer.plan().instruction(id).kind {
        InstrKind::Parameter(_) | InstrKind::Constant(_) => None,
        InstrKind::Move(collective) => Some(of_move(layer, id, collective)),
        InstrKind::Op(_) => Some(of_kernel(layer, id)),
        InstrKind::CollectiveEinsum(_) => Some(of_loop(layer, id)),
    }
}

/// The figures of a step as text.
pub fn why(layer: &Layer<'_>, id: InstrId, paint: Paint) -> String {
    let plan = layer.plan();
    let mut text =
        format!("{} {}\n", paint.style(&format!("{}:", id.0), Style::Heading), described(plan, id));
    let Some(figures) = figures(layer, id) else {
        text.push_str("  costs nothing: it is there before the step begins\n");
        return text;
    };
    let width = figures.iter().map(|f| f.name.len()).max().unwrap_or(0);
    for figure in figures {
        text.push_str(&format!("  {:width$}  {}\n", figure.name, figure.formula));
        let numbers = if figure.numbers.is_empty() {
            String::new()
        } else {
            format!("= {} ", figure.numbers)
        };
        text.push_str(&format!("  {:width$}  {numbers}= {}\n", "", figure.value));
    }
    text
}

/// A step in one line.
pub(crate) fn described(plan: &Plan, id: InstrId) -> String {
    let instr = plan.instruction(id);
    match (&instr.kind, instr.operands.first()) {
        (InstrKind::Move(_), Some(source)) => {
            format!("{}: {}", phrase(plan, id), value_name(plan, *source))
        }
        _ => format!("{} = {}", value_name(plan, id), phrase(plan, id)),
    }
}

fn figure(
    name: &'static str,
    formula: impl Into<String>,
    numbers: impl Into<String>,
    value: String,
) -> Figure {
    Figure { name, formula: formula.into(), numbers: numbers.into(), value }
}

fn bytes(bytes: Bytes) -> String {
    if bytes.0 < 1000 {
        scale::bytes(bytes)
    } else {
        format!("{} B ({})", bytes.0, scale::bytes(bytes))
    }
}

fn product(factors: impl IntoIterator<Item = String>) -> String {
    factors.into_iter().collect::<Vec<_>>().join(" x ")
}

/// The parts that a softmax-merge sends, in bytes on a chip.
fn of_weighted(parts: &Weighted) -> [Figure; 2] {
    let held = |bits: u128| bytes(Bytes(u64::try_from(bits.div_ceil(8)).unwrap_or(u64::MAX)));
    [
        figure("R", "the attention over a chip's own keys", "", held(parts.result)),
        figure("S", "one statistic of each, in f32; D = R + 2 S", "", held(parts.statistics)),
    ]
}

fn of_move(layer: &Layer<'_>, id: InstrId, collective: &Collective) -> Vec<Figure> {
    let plan = layer.plan();
    let (Some(source), InstrPrice::Move(cost)) =
        (plan.instruction(id).operands.first(), layer.price.of(id))
    else {
        return never!("a move that is not priced as one", Vec::new());
    };
    let from = plan.instruction(*source).layout;
    of_collective(layer, collective, *source, from, cost)
}

/// The figures of a collective that moves the value of `moved` from the layout `from`.
fn of_collective(
    layer: &Layer<'_>,
    collective: &Collective,
    moved: InstrId,
    from: Layout,
    cost: &CollectiveCost,
) -> Vec<Figure> {
    let (plan, hw) = (layer.plan(), layer.hardware);
    let instr = plan.instruction(moved);
    let sizes = plan.sizes(&instr.dims);
    let mut figures = of_group(plan, collective, moved, from, cost);
    let (formula, numbers, parts) = sent(plan, collective, moved, from);
    figures.extend(parts);
    figures.push(figure("wire_bytes", formula, numbers, bytes(cost.wire_bytes)));
    let time = collective_time(hw, &plan.mesh, collective, from, &sizes, instr.dtype);
    time.networks.iter().for_each(|network| figures.extend(of_network(network)));
    let parts: Vec<String> = time.networks.iter().map(|n| scale::time(n.time())).collect();
    let formula = match (time.times, parts.len()) {
        (_, 0) => "nothing is moved",
        (1, _) => "the longer of what is moved and the least, summed over the networks",
        (_, _) => "a reduce-scatter and an all-gather of the same time",
    };
    let times = if time.times > 1 { format!("{} x ", time.times) } else { String::new() };
    let numbers = format!("{times}{}", parts.join(" + "));
    figures.push(figure("time", formula, numbers, scale::time(cost.time)));
    figures
}

/// What a chip holds of the value that is moved, and how many chips move it among themselves.
fn of_group(
    plan: &Plan,
    collective: &Collective,
    moved: InstrId,
    from: Layout,
    cost: &CollectiveCost,
) -> Vec<Figure> {
    let instr = plan.instruction(moved);
    let sizes = plan.sizes(&instr.dims);
    let shape = MeshShape { mesh: &plan.mesh, sizes: &sizes };
    let gives = collective.makes_more();
    let larger = if gives {
        collective
            .apply(shape, from)
            .unwrap_or_else(|_| never!("a move of a legal plan that does not apply", from))
    } else {
        from
    };
    let local = shape.local_sizes(larger);
    let local = product(local.iter().map(u64::to_string).chain([element(plan, moved)]));
    let what = if gives { "what a chip holds afterwards" } else { "what a chip holds before" };
    let axes = collective.axes(&plan.mesh, from);
    let group = plan.mesh.group_size(axes.iter());
    vec![
        figure(
            "D",
            format!("{what}: {}", plan.dim_names(&instr.dims).join(" ")),
            local,
            bytes(cost.bytes),
        ),
        figure(
            "K",
            format!("chips of a group: {}", plan.mesh.axes_text(axes.iter())),
            product(axes.iter().map(|a| plan.mesh.size(a).to_string())),
            group.to_string(),
        ),
    ]
}

/// What a chip sends as a formula and in numbers, with a figure for each letter that the formula
/// adds to those of the group.
fn sent(
    plan: &Plan,
    collective: &Collective,
    moved: InstrId,
    from: Layout,
) -> (&'static str, String, Vec<Figure>) {
    let instr = plan.instruction(moved);
    let group = plan.mesh.group_size(collective.axes(&plan.mesh, from).iter());
    let (formula, numbers) = match collective.row().sends {
        Sends::Around | Sends::Across => ("D (K-1)/K", format!("D {}/{group}", group - 1)),
        Sends::AroundTwice => ("2 D (K-1)/K", format!("2 D {}/{group}", group - 1)),
        Sends::Blocks => ("D", String::new()),
        Sends::Lacking => {
            let parts = collective.terms().to.and_then(|to| kept_by_each(&plan.mesh, from, to));
            let sent =
                parts.map_or("D (1 - 0)".to_string(), |parts| format!("D {}/{parts}", parts - 1));
            ("D (1 - o), o the least part of its new block that a chip has", sent)
        }
        Sends::Nothing => ("nothing is sent", String::new()),
        Sends::Weighted => {
            let sizes = plan.sizes(&instr.dims);
            let parts = Weighted::of(&plan.mesh, collective, from, &sizes, instr.dtype);
            let Some(parts) = parts else { return ("D (K-1)/K", String::new(), Vec::new()) };
            let formula = match (parts.scatters, parts.scatters_statistics) {
                (false, _) => "2 (R + 2 S) (K-1)/K",
                (true, true) => "(R + 3 S) (K-1)/K",
                (true, false) => "(R + 4 S) (K-1)/K",
            };
            return (formula, String::new(), of_weighted(&parts).to_vec());
        }
    };
    (formula, numbers, Vec::new())
}

/// The terms of the time that a move takes on a network, and the least that it takes there.
fn of_network(network: &NetworkTime) -> Vec<Figure> {
    let term = |term: &Term| {
        let formula = format!("{} on the {}", term.how.formula(false), network.kind);
        let rate = scale::rate(Bytes(term.rate));
        let numbers = format!("{}, W = {rate}", term.how.formula(true));
        figure("moved", formula, numbers, scale::time(term.time))
    };
    let mut figures: Vec<Figure> = network.terms.iter().map(term).collect();
    if network.latency() > Picoseconds(0) {
        let numbers = format!("{} x {}", network.steps, scale::time(network.step_time));
        let least = scale::time(network.latency());
        figures.push(figure("at least", "steps x time of a step", numbers, least));
    }
    figures
}

/// The figures of a collective einsum: of the einsum by itself, of the collective by itself, and of
/// the loop.
fn of_loop(layer: &Layer<'_>, id: InstrId) -> Vec<Figure> {
    let plan = layer.plan();
    let mut figures = of_kernel(layer, id);
    let (Some((collective, moved, from)), InstrPrice::Kernel { looped: Some(looped), .. }) =
        (plan.fused_collective(id), layer.price.of(id))
    else {
        return figures;
    };
    let LoopPrice { collective: cost, einsum, chunks, full } = looped;
    figures.pop();
    if let Some(full) = full {
        figures.extend(of_ring(layer, id, looped, *full));
        return figures;
    }
    figures.push(figure("einsum", "the longest of these", "", scale::time(*einsum)));
    figures.extend(of_collective(layer, &collective, moved, from, cost));
    if let Some(by_itself) = figures.last_mut() {
        by_itself.name = "collective";
    }
    let chunk = Picoseconds(einsum.0.div_ceil((*chunks).max(1)));
    figures.push(figure(
        "chunk",
        "einsum / K",
        format!("{} / {chunks}", scale::time(*einsum)),
        scale::time(chunk),
    ));
    let beside = Picoseconds(einsum.0 - chunk.0);
    figures.push(figure(
        "time",
        "the longer of the collective and the K - 1 chunks beside it, and one chunk",
        format!(
            "max({}, {}) + {}",
            scale::time(cost.time),
            scale::time(beside),
            scale::time(chunk)
        ),
        scale::time(looped.time()),
    ));
    figures
}

/// The figures of a ring: of the attention by itself, of what travels, and of its steps.
fn of_ring(layer: &Layer<'_>, id: InstrId, looped: &LoopPrice, full: Picoseconds) -> Vec<Figure> {
    let LoopPrice { collective, einsum, chunks, .. } = looped;
    let beside = chunks.saturating_sub(1);
    let first = Picoseconds(einsum.0.saturating_sub(full.times(beside).0));
    let of_each = Picoseconds(collective.time.0 / beside.max(1));
    vec![
        figure("attention", "the longest of these", "", scale::time(*einsum)),
        figure(
            "travel",
            "the all-gathers of what travels, one after the other",
            ring_phrase(layer.plan(), id),
            format!("{}, {}", scale::bytes(collective.bytes), scale::time(collective.time)),
        ),
        figure(
            "transfer",
            "travel / (K - 1)",
            format!("{} / {beside}", scale::time(collective.time)),
            scale::time(of_each),
        ),
        figure("step", "that of the fullest block of keys", "", scale::time(full)),
        figure("first step", "what K - 1 such steps leave", "", scale::time(first)),
        figure(
            "time",
            "the longer of transfer and step, K - 1 times, and one step",
            format!(
                "max({}, {}) + {} x max({}, {}) + {}",
                scale::time(of_each),
                scale::time(first),
                beside.saturating_sub(1),
                scale::time(of_each),
                scale::time(full),
                scale::time(full)
            ),
            scale::time(looped.time()),
        ),
    ]
}

/// The size of an element, as a factor.
fn element(plan: &Plan, id: InstrId) -> String {
    match plan.instruction(id).dtype.bits() {
        bits if bits % 8 == 0 => format!("{} B", bits / 8),
        bits => format!("{bits} bits"),
    }
}

fn of_kernel(layer: &Layer<'_>, id: InstrId) -> Vec<Figure> {
    let (plan, hw) = (layer.plan(), layer.hardware);
    let Some(kernel) = kernels(plan).into_iter().find(|kernel| kernel.contains(&id)) else {
        return Vec::new();
    };
    let (reads, work) = kernel_traffic(plan, &kernel);
    let mut figures = Vec::new();
    if kernel.len() > 1 {
        let members =
            kernel.iter().map(|member| value_name(plan, *member)).collect::<Vec<_>>().join(", ");
        figures.push(figure(
            "kernel",
            "ops that run as one",
            members,
            format!("{} ops", kernel.len()),
        ));
    }
    let einsum = kernel.iter().find(|m| plan.instruction(**m).kind.op() == Some(&Op::Einsum));
    let counted = if work.attention {
        let pairs = "products of the pairs that masks let see each other";
        Some((pairs.to_string(), String::new()))
    } else {
        einsum.map(|einsum| einsum_flops(plan, *einsum))
    };
    if let Some((formula, numbers)) = counted {
        let flops = format!("{} ({})", work.flops.0, scale::flops(work.flops));
        figures.push(figure("flops", formula, numbers, flops));
    }
    let read = |(value, bytes): &(InstrId, Bytes)| {
        format!("{} {}", value_name(plan, *value), scale::bytes(*bytes))
    };
    let write = kernel.last().map_or(String::new(), |last| value_name(plan, *last));
    let traffic = reads.iter().filter(|(_, b)| *b > Bytes(0)).map(read);
    let traffic = traffic
        .chain((work.write > Bytes(0)).then(|| format!("{write} {}", scale::bytes(work.write))));
    let traffic = traffic.collect::<Vec<_>>().join(" + ");
    figures.push(figure(
        "hbm_bytes",
        "values read, and the result written",
        traffic,
        bytes(work.hbm_bytes()),
    ));
    figures.extend(of_roofline(hw, &work));
    let time = kernel.first().map_or(Picoseconds(0), |first| layer.price.of(*first).time());
    figures.push(figure("time", "the longest of these", "", scale::time(time)));
    figures
}

/// How long the arithmetic, the memory and the host take over some work, and its intensity.
fn of_roofline(hw: &Hardware, work: &Work) -> Vec<Figure> {
    let mut figures = Vec::new();
    if work.flops > Flops(0) {
        let reached = if work.attention {
            hw.attention_rate(work.arithmetic)
        } else {
            hw.flops_rate(work.arithmetic)
        };
        let rate = format!("{}/s of {}", scale::flops(Flops(reached.into())), work.arithmetic);
        let (formula, flops) = match work.matmul.zip(hw.matmul_tile) {
            Some((matmul, tile)) => (
                format!("flops, each side a multiple of {tile}, / rate"),
                matmul.flops_on_tiles(tile),
            ),
            None => ("flops / rate".to_string(), work.flops),
        };
        let numbers = format!("{} / {rate}", scale::flops(flops));
        figures.push(figure("compute", formula, numbers, scale::time(compute_time(hw, work))));
    }
    let rate = scale::rate(Bytes(hw.hbm_rate));
    let numbers = format!("{} / {rate}", scale::bytes(work.hbm_bytes()));
    figures.push(figure("memory", "hbm_bytes / rate", numbers, scale::time(memory_time(hw, work))));
    if work.fetched > Bytes(0) {
        // The driver refuses such a program, and such a plan, for other hardware.
        let rate = hw.host_rate.unwrap_or_else(|| never!("a fetch without a link to the host", 1));
        let rate = scale::rate(Bytes(rate));
        let numbers = format!("{} / {rate}", scale::bytes(work.fetched));
        let time = scale::time(host_time(hw, work));
        figures.push(figure("host", "bytes fetched / rate of its link", numbers, time));
    }
    if let Some(intensity) =
        crate::cost::intensity(work.flops, work.hbm_bytes()).filter(|_| work.flops > Flops(0))
    {
        let numbers = format!("{} / {}", scale::flops(work.flops), scale::bytes(work.hbm_bytes()));
        let per_byte = format!("{} flop/B", scale::number(intensity));
        figures.push(figure("intensity", "flops / hbm_bytes", numbers, per_byte));
    }
    figures
}

/// The flops of an einsum in dims and in numbers.
fn einsum_flops(plan: &Plan, id: InstrId) -> (String, String) {
    let instr = plan.instruction(id);
    let inside = plan.loop_layouts(id).map(|(_, inside)| inside);
    let local = |of: InstrId, layout: Layout| {
        MeshShape { mesh: &plan.mesh, sizes: &plan.sizes(&plan.instruction(of).dims) }
            .local_sizes(layout)
    };
    let mut dims = instr.dims.clone();
    let mut sizes = local(id, inside.as_ref().map_or(instr.layout, |inside| inside.product));
    for (at, operand) in instr.operands.iter().enumerate() {
        let layout =
            inside.as_ref().map_or(plan.instruction(*operand).layout, |inside| inside.operands[at]);
        for (dim, size) in plan.instruction(*operand).dims.iter().zip(local(*operand, layout)) {
            if !dims.contains(dim) {
                dims.push(*dim);
                sizes.push(size);
            }
        }
    }
    let formula = format!("local {}", plan.dim_names(&dims).join(" "));
    if instr.operands.len() == 1 {
        let (all, made) = (
            sizes.iter().map(u64::to_string),
            sizes[..instr.dims.len()].iter().map(u64::to_string),
        );
        let made_of = plan.dim_names(&instr.dims).join(" ");
        let what = if made_of.is_empty() { "1".to_string() } else { format!("local {made_of}") };
        let made = product(made);
        let made = if made.is_empty() { "1".to_string() } else { made };
        return (format!("{formula} - {what}"), format!("{} - {made}", product(all)));
    }
    let two = (dims.len() > instr.dims.len()).then(|| "2".to_string());
    let formula = if two.is_some() { format!("2 x {formula}") } else { formula };
    (formula, product(two.into_iter().chain(sizes.iter().map(u64::to_string))))
}
