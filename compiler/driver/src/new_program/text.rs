//! A model and a mesh as a `.shard` file.

use std::fmt::Write;

use super::mesh::Axes;
use super::{Attention, Experts, Model};

/// The program, as the formatter would have it but for its spaces. `hardware` is what stands behind
/// that word.
pub(super) fn program(model: &Model, axes: &Axes, hardware: &str, name: &str) -> String {
    let words = Words::new(model, axes);
    let mut out = header(model, axes);
    let mesh: Vec<String> = axes.all.iter().map(|(name, size)| format!("{name}={size}")).collect();
    // Writing to a string does not fail.
    let _ = writeln!(out, "hardware {hardware}\nmesh {}\n", mesh.join(", "));
    out += &aligned(&dims(model, axes));
    out += &phases(model, axes);
    let _ = write!(out, "\nlayer {name}(\n{}", words.parameters(model).join(",\n") + ",\n");
    let dtype = model.dtype.name();
    let (stream, kept) = (format!("{dtype} {}LE?l", words.batch), &words.cache);
    let repeat = if model.layers > 1 { format!(" repeat {}", model.layers) } else { String::new() };
    let (results, returned) = match &model.attention {
        Some(_) => (
            format!("(y: {stream}, keys1: {dtype} {kept}, values1: {dtype} {kept})"),
            "(y, keys1, values1)",
        ),
        None => (stream, "y"),
    };
    let _ = writeln!(
        out,
        ") -> {results}{repeat} {{\n{}  return {returned}\n}}",
        words.statements(model)
    );
    if model.vocabulary.is_some() {
        out += &whole(model, &words, name);
    }
    out
}

/// The layers around the blocks, and the model that they make.
fn whole(model: &Model, words: &Words, block: &str) -> String {
    let (b, norm, dtype) = (&words.batch, model.norm, model.dtype.name());
    let (table, taken) = if model.tied { ("VE", ", table: tied") } else { ("EV", "") };
    let tied = if model.tied { format!(", tied: weight {dtype} VE?") } else { String::new() };
    let (sequences, called) = (words.sequences, model.name);
    let layers =
        if model.layers > 1 { format!("    // {} of them", model.layers) } else { String::new() };
    format!(
        "
/// Tokens to vectors.
layer embed(ids: int32 {b}L, table: weight {dtype} VE?) -> {dtype} {b}LE? {{
  return take(table, ids over V)
}}

/// Vectors to scores of tokens.
layer unembed(x: {dtype} {b}LE?, table: weight {dtype} {table}?) -> {dtype} {b}LV? {{
  return einsum({norm}(x over E), table -> {sequences}LV)
}}

model {called}(ids: int32 {b}L{tied}) -> {dtype} {b}LV? {{
  let x = embed(ids{taken})
  let y = {block}(x){layers}
  return unembed(y{taken})
}}
"
    )
}

/// What the file is, and what to do with it.
fn header(model: &Model, axes: &Axes) -> String {
    let mut out = format!("//! {}.\n//!\n", model.title);
    let named = |axes: &mut dyn Iterator<Item = &(String, u64)>| {
        axes.map(|(name, _)| name.clone()).collect::<Vec<_>>()
    };
    let splits: Vec<String> = [
        (named(&mut axes.batch()), "the batch"),
        (named(&mut axes.model().into_iter()), "heads and d_ff"),
    ]
    .into_iter()
    .filter(|(names, _)| !names.is_empty())
    .map(|(names, what)| {
        format!("{} {} for {what}", names.join(" and "), if names.len() > 1 { "are" } else { "is" })
    })
    .collect();
    if !splits.is_empty() {
        let _ = writeln!(out, "//! Of the mesh, {}.", splits.join(", "));
    }
    out += "//! A `?` leaves a layout to the compiler; `shardc explain` shows what it takes and \
        why.\n";
    if let Some(attention) = model.attention.as_ref().filter(|_| model.vocabulary.is_some()) {
        let prompt = prompt(attention);
        let _ = writeln!(
            out,
            "//! Two phases share the weights: prefill reads prompts of {prompt} tokens, decode \
                makes a token a step."
        );
    }
    if !model.left_out.is_empty() {
        let _ = writeln!(out, "//! Left out: {}.", model.left_out.join(", "));
    }
    out
}

/// Tokens of a prompt.
fn prompt(attention: &Attention) -> u64 {
    attention.context.min(512)
}

/// The phases of a whole model: as few sequences of a prompt as can be split, since all of them at
/// once would take memory from the weights.
fn phases(model: &Model, axes: &Axes) -> String {
    let Some(attention) = model.attention.as_ref().filter(|_| model.vocabulary.is_some()) else {
        return String::new();
    };
    let (dim, sequences) =
        if model.experts.is_some() { ("P", groups(model, axes)) } else { ("B", axes.sequences()) };
    let (fewest, prompt) = (fewest_sequences(attention, axes).min(sequences), prompt(attention));
    format!(
        "\nphase prefill {{ {dim} = {fewest}, L = {prompt} }}\nphase decode repeat {prompt} {{ \
            {dim} = {sequences}, L = 1 }}\n"
    )
}

/// Into so many groups sequences go, each of as many as there are experts.
fn groups(model: &Model, axes: &Axes) -> u64 {
    let over = axes.batch_devices();
    let experts = model.experts.as_ref().map_or(1, |experts| experts.count);
    (axes.sequences() / experts).max(1).next_multiple_of(over)
}

/// The fewest sequences, or groups of them, that the layouts of a file can split.
fn fewest_sequences(attention: &Attention, axes: &Axes) -> u64 {
    let over_heads = axes.model().map_or(1, |(_, size)| *size);
    axes.batch_devices()
        * if attention.kv_heads.is_multiple_of(over_heads) { 1 } else { over_heads }
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
            Heads::Multiquery => {
                dim(format!("H = {heads}"), "heads of queries, to one of keys and values")
            }
        }
        dim(format!("D = {head}"), "d_head");
    }
    if let Some(experts) = &model.experts {
        dim(format!("X = {}", experts.count), "experts");
        let places = "places of an expert for a group: twice its share";
        if 2 * experts.chosen.min(experts.count) < experts.count {
            dim(format!("C = 2 * {} * T / X", experts.chosen), places)
        } else {
            dim("C = T".to_string(), "places of an expert for a group")
        }
    }
    if model.inner.is_multiple_of(model.width) && model.inner > model.width {
        dim(format!("F = {} * E", model.inner / model.width), "d_ff")
    } else {
        dim(format!("F = {}", model.inner), "d_ff")
    }
    if let Some(vocabulary) = model.vocabulary {
        let devices = axes.all.iter().fold(1u64, |n, (_, size)| n.saturating_mul(*size)).max(1);
        if vocabulary.is_multiple_of(devices) || vocabulary.is_multiple_of(128) {
            dim(format!("V = {vocabulary}"), "vocabulary")
        } else {
            dim(format!("V = {vocabulary} pad {}", vocabulary.next_multiple_of(128)), "vocabulary")
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
        let (first, rest, sequences) =
            if model.experts.is_some() { ("P", "T", "PT") } else { ("B", "", "B") };
        let of_batch: Vec<&str> = axes.batch().map(|(name, _)| name.as_str()).collect();
        let batch = format!("{first}{}{rest}", subscript(&of_batch));
        let cache = model.attention.as_ref().map_or(String::new(), |attention| {
            let (kv, _) = Heads::of(attention).dims();
            let over = axes.model().filter(|(_, size)| attention.kv_heads.is_multiple_of(*size));
            match over {
                Some((name, _)) => format!("{batch}S{kv}{}D", subscript(&[name])),
                // Too few heads to split: the batch bears all axes.
                None => {
                    let all: Vec<&str> = of_batch
                        .iter()
                        .copied()
                        .chain(axes.model().map(|(name, _)| name.as_str()))
                        .collect();
                    format!("{first}{}{rest}S{kv}D", subscript(&all))
                }
            }
        });
        Words { sequences, batch, cache }
    }

    fn parameters(&self, model: &Model) -> Vec<String> {
        let dtype = model.dtype.name();
        let mut out = vec![format!("  x: {dtype} {}LE?l", self.batch)];
        if let Some(attention) = &model.attention {
            let (kv, q) = Heads::of(attention).dims();
            out.push(format!("  wq: weight {dtype} E{q}D?"));
            out.push(format!("  wk: weight {dtype} E{kv}D?"));
            out.push(format!("  wv: weight {dtype} E{kv}D?"));
            out.push(format!("  wo: weight {dtype} {q}DE?"));
        }
        let each = match &model.experts {
            Some(_) => {
                out.push(format!("  router: weight {dtype} EX?"));
                "X"
            }
            None => "",
        };
        if model.gated {
            out.push(format!("  w_gate: weight {dtype} {each}EF?"));
        }
        out.push(format!("  w_up: weight {dtype} {each}EF?"));
        out.push(format!("  w_down: weight {dtype} {each}FE?"));
        if model.attention.is_some() {
            out.push(format!("  keys: cache {dtype} {}", self.cache));
            out.push(format!("  values: cache {dtype} {}", self.cache));
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
            let _ =
                writeln!(out, "  let a = x + einsum(o, wo -> {b}LE)\n  let n = {norm}(a over E)");
            out += &self.feed_forward(model, "n");
            let _ = writeln!(out, "  let y = a + {}", self.down(model));
        }
        out
    }

    /// From `h` to `o`, the heads' results.
    fn attend(&self, attention: &Attention) -> String {
        let b = self.sequences;
        let (kv, q) = Heads::of(attention).dims();
        let placed = |value: String| {
            if attention.rotary { format!("rope({value} over D at L, S)") } else { value }
        };
        let mut out = format!("  let q = {}\n", placed(format!("einsum(h, wq -> {b}L{q}D)")));
        let _ = writeln!(out, "  let k = {}", placed(format!("einsum(h, wk -> {b}L{kv}D)")));
        let _ = writeln!(out, "  let v = einsum(h, wv -> {b}L{kv}D)");
        out += "  let keys1 = append(keys, k, L -> S)\n  let values1 = append(values, v, L -> S)\n";
        let _ = writeln!(
            out,
            "  let scores = einsum(q, keys1 -> {b}{q}LS) / {}",
            square_root(attention.head)
        );
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
                     let sent = route(g over X at T -> C, {chosen})\n  let there = einsum(sent, \
                     {input} -> XPLCE)\n"
                ),
                "there",
                "XPLCF".to_string(),
            ),
        };
        let map = model.map;
        match model.gated {
            true => format!(
                "{routed}  let f = {map}(einsum({input}, w_gate -> {dims})) * einsum({input}, \
                    w_up -> {dims})\n"
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
