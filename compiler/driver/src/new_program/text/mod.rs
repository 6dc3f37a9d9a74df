//! A model and a mesh as a `.shard` file.

mod attention;
mod dims;
mod feed_forward;
mod layer;
mod state_space;
mod whole;

use std::fmt::Write;

use super::mesh::Axes;
use super::model::{Block, Model, Sees};
use super::sizes::{Heads, positions};

/// Tokens of a prompt, where caches have as many positions.
const PROMPT: u64 = 512;

/// The program, formatted but for its spaces. `hardware` is the rest of the `hardware` line.
pub(super) fn program(model: &Model, axes: &Axes, hardware: &str, name: &str) -> String {
    let words = Words::new(model, axes, name);
    let mut out = header(model, axes);
    let mesh: Vec<String> = axes.all.iter().map(|(name, size)| format!("{name}={size}")).collect();
    // Writing to a string does not fail.
    let _ = writeln!(out, "hardware {hardware}\nmesh {}\n", mesh.join(", "));
    out += &aligned(&dims::dims(model, axes));
    out += &phases(model, axes);
    out += &words.layers();
    if model.vocabulary.is_some() {
        out += &words.whole();
    }
    out
}

/// The name of the positions of a step's tokens in layers that are given them.
const POSITIONS: &str = "positions";

/// A parameter of a layer beside its input.
struct Given {
    /// Its name in the layers, and in the model.
    name: &'static str,
    ty: String,
    /// The expression by which the model makes it; `None` where it is a parameter of the model,
    /// too.
    made: Option<String>,
}

/// What writes the layers of a model: layouts and lists of dims that recur.
struct Words<'a> {
    model: &'a Model,
    /// The name of the layer in a model of one kind.
    block: &'a str,
    /// The dims of a sequence.
    sequences: &'static str,
    /// The same, the first of them split over the batch's axis.
    batch: String,
    /// The same, the first of them split over all axes.
    everywhere: String,
    /// The axis of heads, and its size.
    heads: Option<(String, u64)>,
}

impl<'a> Words<'a> {
    fn new(model: &'a Model, axes: &Axes, block: &'a str) -> Words<'a> {
        let (first, rest, sequences) =
            if model.experts().is_some() { ("P", "T", "PT") } else { ("B", "", "B") };
        let of_batch: Vec<&str> = axes.batch().map(|(name, _)| name.as_str()).collect();
        let all: Vec<&str> =
            of_batch.iter().copied().chain(axes.model().map(|(name, _)| name.as_str())).collect();
        Words {
            model,
            block,
            sequences,
            batch: format!("{first}{}{rest}", subscript(&of_batch)),
            everywhere: format!("{first}{}{rest}", subscript(&all)),
            heads: axes.model().cloned(),
        }
    }

    /// The name of a kind of layer.
    fn called(&self, kind: &Block) -> String {
        if self.model.kinds.len() == 1 { self.block.to_string() } else { kind.name.to_string() }
    }

    /// The caches of a kind: their names, the names of the new ones, and their types.
    fn caches(&self, kind: &Block) -> Vec<(&'static str, &'static str, String)> {
        if kind.state_space().is_some() {
            return self.states();
        }
        let Some(attention) = &kind.attention else { return Vec::new() };
        let (held, dtype) = (positions(attention), self.model.dtype.name());
        if attention.latent.is_some() {
            // Every head reads all latents, which therefore are not split over the axis of heads.
            let of = |dim: &str| format!("{dtype} {}{held}{dim}", self.batch);
            return vec![("latents", "latents1", of("Z")), ("turned", "turned1", of("D1"))];
        }
        let (kv, _) = Heads::of(attention).dims();
        let over = self.heads.as_ref().filter(|(_, size)| attention.kv_heads.is_multiple_of(*size));
        let layout = match over {
            Some((name, _)) => {
                format!("{dtype} {}{held}{kv}{}D", self.batch, subscript(&[name]))
            }
            // There are too few heads to split: the batch is split over all axes.
            None => format!("{dtype} {}{held}{kv}D", self.everywhere),
        };
        vec![("keys", "keys1", layout.clone()), ("values", "values1", layout)]
    }
}

/// What the last axis of a mesh is for, if it has so many devices.
fn of_last_axis(model: &Model, size: u64) -> String {
    let mut heads =
        model.kinds.iter().filter_map(|kind| match (&kind.attention, kind.state_space()) {
            (Some(attention), _) => Some((attention.heads, "heads", "d_ff")),
            (None, Some(space)) => Some((space.groups, "groups of heads", "what is left open")),
            (None, None) => None,
        });
    match heads.find(|(count, ..)| !count.is_multiple_of(size)) {
        Some((count, heads, what)) => format!("{what} (it does not divide the {count} {heads})"),
        None => "heads and d_ff".to_string(),
    }
}

/// The header: what the file is, and what to do with it.
fn header(model: &Model, axes: &Axes) -> String {
    let mut out = format!("//! {}.\n//!\n", model.title);
    let named = |axes: &mut dyn Iterator<Item = &(String, u64)>| {
        axes.map(|(name, _)| name.clone()).collect::<Vec<_>>()
    };
    let of_model = axes.model().map_or_else(String::new, |(_, size)| of_last_axis(model, *size));
    let splits: Vec<String> = [
        (named(&mut axes.batch()), "the batch"),
        (named(&mut axes.model().into_iter()), &of_model),
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
    if let Some(prompt) = prompt(model).filter(|_| model.vocabulary.is_some()) {
        let _ = writeln!(
            out,
            "//! Two phases share the weights: prefill reads prompts of {prompt} tokens, decode \
                makes a token a step."
        );
    }
    if !model.assumed.is_empty() {
        let _ = writeln!(
            out,
            "//! Not in the configuration, and as transformers has them: {}.",
            model.assumed.join(", ")
        );
    }
    if !model.left_out.is_empty() {
        let _ = writeln!(out, "//! Left out: {}.", model.left_out.join(", "));
    }
    out
}

/// The tokens of a prompt; `None` for layers that take each token by itself.
fn prompt(model: &Model) -> Option<u64> {
    let attentions = model.kinds.iter().filter_map(|kind| kind.attention.as_ref());
    // The cache of a chunk holds no more than that.
    let held = attentions.map(|attention| match attention.sees {
        Sees::Chunk(most) => most.min(attention.context),
        Sees::All | Sees::Window(_) => attention.context,
    });
    let least = held.min().or_else(|| model.state_space().map(|_| PROMPT));
    least.map(|positions| positions.min(PROMPT))
}

/// The `phase` lines of a whole model. Prefill has as few sequences as can be split, since all of
/// them at once would take memory from the weights.
fn phases(model: &Model, axes: &Axes) -> String {
    let Some(prompt) = prompt(model).filter(|_| model.vocabulary.is_some()) else {
        return String::new();
    };
    let (dim, sequences) = if model.experts().is_some() {
        ("P", dims::groups(model, axes))
    } else {
        ("B", axes.sequences())
    };
    let split = model.attention();
    let split = split.map_or(axes.batch_devices(), |a| dims::fewest_sequences(a, axes));
    let fewest = split.min(sequences);
    // A prompt is cut into chunks of equal size.
    let chunk = model.state_space().map_or(String::new(), |space| {
        let most = space.chunk.min(prompt).max(1);
        let chunk = (1..=most).rev().find(|n| prompt.is_multiple_of(*n)).unwrap_or(1);
        format!(", K = {chunk}")
    });
    // A prompt begins its sequence: no position stands before it in a cache.
    let held: String = dims::held(model).map(|(dim, _)| format!(", {dim} = L")).collect();
    format!(
        "\nphase prefill {{ {dim} = {fewest}, L = {prompt}{held}{chunk} }}\nphase decode repeat \
         {prompt} {{ {dim} = {sequences}, L = 1 }}\n"
    )
}

/// Lines with their comments in one column.
fn aligned(lines: &[(String, String)]) -> String {
    let width = lines.iter().map(|(line, _)| line.len()).max().unwrap_or(0);
    lines.iter().map(|(line, what)| format!("{line:width$}  // {what}\n")).collect()
}

/// A number literal: a whole number where it is one, else six figures.
fn number(value: f64) -> String {
    if value.fract() == 0.0 && value.abs() < 1e15 {
        return format!("{value:.0}");
    }
    let whole = value.abs().max(1e-9).log10().floor() as i32 + 1;
    let places = usize::try_from(6 - whole.min(5)).unwrap_or(1).min(12);
    format!("{value:.places$}").trim_end_matches('0').to_string()
}

/// Axes behind a dim: letters where every name is one letter, else names in braces.
fn subscript(axes: &[&str]) -> String {
    match axes {
        [] => String::new(),
        axes if axes.iter().all(|axis| axis.len() == 1) => format!("_{}", axes.concat()),
        axes => format!("_{{{}}}", axes.join(",")),
    }
}
