//! A model and a mesh as a `.shard` file.

use std::fmt::Write;

use super::mesh::Axes;
use super::{Attention, Experts, Model};

/// The program, as the formatter would have it but for its spaces. `hardware` is what stands behind that word.
pub(crate) fn program(model: &Model, axes: &Axes, hardware: &str, name: &str) -> String {
    let words = Words::new(model, axes);
    let mut out = header(model, axes);
    let mesh: Vec<String> = axes.all.iter().map(|(name, size)| format!("{name}={size}")).collect();
    // Writing to a string does not fail.
    let _ = writeln!(out, "hardware {hardware}\nmesh {}\n", mesh.join(", "));
    out += &aligned(&dims(model, axes));
    let _ = write!(out, "\nlayer {name}(\n{}", words.parameters(model).join(",\n") + ",\n");
    let (stream, kept) = (format!("bf16 {}LE?l", words.batch), &words.cache);
    let repeat = if model.layers > 1 { format!(" repeat {}", model.layers) } else { String::new() };
    let (results, returned) = match &model.attention {
        Some(_) => (format!("(y: {stream}, keys1: bf16 {kept}, values1: bf16 {kept})"), "(y, keys1, values1)"),
        None => (stream, "y"),
    };
    let _ = writeln!(out, ") -> {results}{repeat} {{\n{}  return {returned}\n}}", words.statements(model));
    if model.vocabulary.is_some() {
        let (b, norm) = (&words.batch, model.norm);
        let _ = write!(
            out,
            "\n/// Tokens to vectors.\nlayer embed(ids: int32 {b}L, table: weight bf16 VE?) -> bf16 {b}LE? {{\n  \
             return take(table, ids over V)\n}}\n\n/// Vectors to scores of tokens.\nlayer unembed(x: bf16 {b}LE?, table: \
             weight bf16 EV?) -> bf16 {b}LV? {{\n  return einsum({norm}(x over E), table -> {}LV)\n}}\n",
            words.sequences
        );
    }
    out
}

/// What the file is, and what to do with it.
fn header(model: &Model, axes: &Axes) -> String {
    let mut out = format!("//! {}.\n//!\n", model.title);
    let splits: Vec<String> = [(axes.batch(), "the batch"), (axes.model(), "heads and d_ff")]
        .into_iter()
        .filter_map(|(axis, what)| Some(format!("{} is for {what}", axis?.0)))
        .collect();
    if !splits.is_empty() {
        let _ = writeln!(out, "//! Of the mesh, {}.", splits.join(", "));
    }
    out += "//! A `?` leaves a layout to the compiler; `shardc explain` shows what it takes and why.\n";
    if let Some(attention) = &model.attention {
        let prompt = attention.context.min(512);
        let (dim, sequences) =
            if model.experts.is_some() { ("P", groups(model, axes)) } else { ("B", axes.sequences()) };
        // As few sequences as can be split: all of them at once would take memory from the weights.
        let fewest = fewest_sequences(attention, axes);
        let fewer = if fewest < sequences { format!("{dim}={fewest},") } else { String::new() };
        let _ = writeln!(out, "//! One token a step, which is decode; `-D {fewer}L={prompt}` reads a prompt.");
    }
    if !model.left_out.is_empty() {
        let _ = writeln!(out, "//! Left out: {}.", model.left_out.join(", "));
    }
    out
}

/// Into so many groups sequences go, each of as many as there are experts.
fn groups(model: &Model, axes: &Axes) -> u64 {
    let over = axes.batch().map_or(1, |(_, size)| *size);
    let experts = model.experts.as_ref().map_or(1, |experts| experts.count);
    (axes.sequences() / experts).max(1).next_multiple_of(over)
}

/// The fewest sequences, or groups of them, that the layouts of a file can split.
fn fewest_sequences(attention: &Attention, axes: &Axes) -> u64 {
    let of = |axis: Option<&(String, u64)>| axis.map_or(1, |(_, size)| *size);
    let heads_are_split = axes.model().is_some_and(|(_, size)| attention.kv_heads.is_multiple_of(*size));
    of(axes.batch()) * if heads_are_split { 1 } else { of(axes.model()) }
}

/// `dim` lines, each with what it is.
fn dims(model: &Model, axes: &Axes) -> Vec<(String, String)> {
    let mut out = Vec::new();
    let mut dim = |line: String, what: &str| out.push((format!("dim {line}"), what.to_string()));
    let sequences = axes.sequences();
    match &model.experts {
        None => dim(format!("B = {sequences}"), "sequences"),
        Some(experts) => {
            dim(format!("P = {}", groups(model, axes)), "groups of sequences");
            dim(format!("T = {}", experts.count), "sequences of a group");
        }
    }
    dim("L = 1".to_string(), "tokens of a step");
    dim(format!("E = {}", model.width), "d_model");
    if let Some(attention) = &model.attention {
        let Attention { heads, kv_heads, head, context, .. } = attention;
        dim(format!("S = {context}"), "positions of the caches");
        match Heads::of(attention) {
            Heads::Grouped => {
                dim(format!("K = {kv_heads}"), "heads of keys and values");
                dim(format!("G = {heads} / K"), "heads of queries for each");
            }
            Heads::Multihead => dim(format!("H = {heads}"), "heads"),
            Heads::Multiquery => dim(format!("H = {heads}"), "heads of queries, to one of keys and values"),
        }
        dim(format!("D = {head}"), "d_head");
    }
    if let Some(experts) = &model.experts {
        dim(format!("X = {}", experts.count), "experts");
        let places = "places of an expert for a group: twice its share";
        match 2 * experts.chosen.min(experts.count) < experts.count {
            true => dim(format!("C = 2 * {} * T / X", experts.chosen), places),
            false => dim("C = T".to_string(), "places of an expert for a group"),
        }
    }
    match model.inner.is_multiple_of(model.width) && model.inner > model.width {
        true => dim(format!("F = {} * E", model.inner / model.width), "d_ff"),
        false => dim(format!("F = {}", model.inner), "d_ff"),
    }
    if let Some(vocabulary) = model.vocabulary {
        let devices = axes.all.iter().fold(1u64, |n, (_, size)| n.saturating_mul(*size)).max(1);
        match vocabulary.is_multiple_of(devices) || vocabulary.is_multiple_of(128) {
            true => dim(format!("V = {vocabulary}"), "vocabulary"),
            false => dim(format!("V = {vocabulary} pad {}", vocabulary.next_multiple_of(128)), "vocabulary"),
        }
    }
    out
}

/// Lines with their comments in one column.
fn aligned(lines: &[(String, String)]) -> String {
    let width = lines.iter().map(|(line, _)| line.len()).max().unwrap_or(0);
    lines.iter().map(|(line, what)| format!("{line:width$}  // {what}\n")).collect()
}

/// How heads of queries share heads of keys and values.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Heads {
    Multihead,
    Grouped,
    Multiquery,
}

impl Heads {
    fn of(attention: &Attention) -> Heads {
        match (attention.kv_heads, attention.heads) {
            (kv, heads) if kv == heads => Heads::Multihead,
            (1, _) => Heads::Multiquery,
            _ => Heads::Grouped,
        }
    }

    /// The dims of heads: of keys and values, and of queries.
    fn dims(self) -> (&'static str, &'static str) {
        match self {
            Heads::Multihead => ("H", "H"),
            Heads::Grouped => ("K", "KG"),
            Heads::Multiquery => ("", "H"),
        }
    }
}

/// Layouts and lists of dims that recur.
struct Words {
    /// The dims of a sequence.
    sequences: &'static str,
    /// The same, the first of them split over the batch's axis.
    batch: String,
    /// The layout of a cache.
    cache: String,
}

impl Words {
    fn new(model: &Model, axes: &Axes) -> Words {
        let (first, rest, sequences) = if model.experts.is_some() { ("P", "T", "PT") } else { ("B", "", "B") };
        let of_batch = axes.batch().map(|(name, _)| name.as_str());
        let batch = format!("{first}{}{rest}", subscript(&of_batch.into_iter().collect::<Vec<_>>()));
        let cache = model.attention.as_ref().map_or(String::new(), |attention| {
            let (kv, _) = Heads::of(attention).dims();
            let over = axes.model().filter(|(_, size)| attention.kv_heads.is_multiple_of(*size));
            match over {
                Some((name, _)) => format!("{batch}S{kv}{}D", subscript(&[name])),
                // Too few heads to split: the batch bears all axes.
                None => {
                    let all: Vec<&str> =
                        of_batch.into_iter().chain(axes.model().map(|(name, _)| name.as_str())).collect();
                    format!("{first}{}{rest}S{kv}D", subscript(&all))
                }
            }
        });
        Words { sequences, batch, cache }
    }

    fn parameters(&self, model: &Model) -> Vec<String> {
        let mut out = vec![format!("  x: bf16 {}LE?l", self.batch)];
        if let Some(attention) = &model.attention {
            let (kv, q) = Heads::of(attention).dims();
            out.push(format!("  wq: weight bf16 E{q}D?"));
            out.push(format!("  wk: weight bf16 E{kv}D?"));
            out.push(format!("  wv: weight bf16 E{kv}D?"));
            out.push(format!("  wo: weight bf16 {q}DE?"));
        }
        let each = match &model.experts {
            Some(_) => {
                out.push("  router: weight bf16 EX?".to_string());
                "X"
            }
            None => "",
        };
        if model.gated {
            out.push(format!("  w_gate: weight bf16 {each}EF?"));
        }
        out.push(format!("  w_up: weight bf16 {each}EF?"));
        out.push(format!("  w_down: weight bf16 {each}FE?"));
        if model.attention.is_some() {
            out.push(format!("  keys: cache bf16 {}", self.cache));
            out.push(format!("  values: cache bf16 {}", self.cache));
        }
        out
    }

    fn statements(&self, model: &Model) -> String {
        let b = self.sequences;
        let norm = model.norm;
        let Some(attention) = &model.attention else {
            return format!("{}  let y = {}\n", self.feed_forward(model, "x"), self.down(model));
        };
        let mut out = format!("  let h = {norm}(x over E)\n");
        out += &self.attend(attention);
        if model.parallel {
            out += &self.feed_forward(model, "h");
            let _ = writeln!(out, "  let y = x + einsum(o, wo -> {b}LE) + {}", self.down(model));
        } else {
            let _ = writeln!(out, "  let a = x + einsum(o, wo -> {b}LE)\n  let n = {norm}(a over E)");
            out += &self.feed_forward(model, "n");
            let _ = writeln!(out, "  let y = a + {}", self.down(model));
        }
        out
    }

    /// From `h` to `o`, the heads' results.
    fn attend(&self, attention: &Attention) -> String {
        let b = self.sequences;
        let (kv, q) = Heads::of(attention).dims();
        let placed = |value: String| match attention.rotary {
            true => format!("rope({value} over D at L, S)"),
            false => value,
        };
        let mut out = format!("  let q = {}\n", placed(format!("einsum(h, wq -> {b}L{q}D)")));
        let _ = writeln!(out, "  let k = {}", placed(format!("einsum(h, wk -> {b}L{kv}D)")));
        let _ = writeln!(out, "  let v = einsum(h, wv -> {b}L{kv}D)");
        out += "  let keys1 = append(keys, k, L -> S)\n  let values1 = append(values, v, L -> S)\n";
        let _ = writeln!(out, "  let scores = einsum(q, keys1 -> {b}{q}LS) / {}", square_root(attention.head));
        out += "  let p = softmax(causal(scores over L, S) over S)\n";
        let _ = writeln!(out, "  let o = einsum(p, values1 -> {b}L{q}D)");
        out
    }

    /// From an input to `f`, what the last matrix reads.
    fn feed_forward(&self, model: &Model, input: &str) -> String {
        let b = self.sequences;
        let (routed, input, dims) = match &model.experts {
            None => (String::new(), input, format!("{b}LF")),
            Some(Experts { chosen, .. }) => (
                format!(
                    "  let g = softmax(einsum({input}, router -> {b}LX) over X)\n  \
                     let sent = route(g over X at T -> C, {chosen})\n  let there = einsum(sent, {input} -> XPLCE)\n"
                ),
                "there",
                "XPLCF".to_string(),
            ),
        };
        let map = model.map;
        match model.gated {
            true => format!(
                "{routed}  let f = {map}(einsum({input}, w_gate -> {dims})) * einsum({input}, w_up -> {dims})\n"
            ),
            false => format!("{routed}  let f = {map}(einsum({input}, w_up -> {dims}))\n"),
        }
    }

    /// From `f` back to d_model.
    fn down(&self, model: &Model) -> String {
        let b = self.sequences;
        match &model.experts {
            None => format!("einsum(f, w_down -> {b}LE)"),
            Some(_) => format!("einsum(sent * g, einsum(f, w_down -> XPLCE) -> {b}LE)"),
        }
    }
}

/// The root of the size of a head, as a number literal.
fn square_root(head: u64) -> String {
    let root = (head as f64).sqrt();
    if root.fract() == 0.0 { format!("{root:.0}") } else { format!("{root:.4}") }
}

/// Axes behind a dim: letters where all are single ones, else names in braces.
fn subscript(axes: &[&str]) -> String {
    match axes {
        [] => String::new(),
        axes if axes.iter().all(|axis| axis.len() == 1) => format!("_{}", axes.concat()),
        axes => format!("_{{{}}}", axes.join(",")),
    }
}
