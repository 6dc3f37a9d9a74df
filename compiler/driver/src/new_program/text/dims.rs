//! The `dim` lines.

use shard_ir::gcd;

use super::super::mesh::Axes;
use super::super::model::{Attention, Feed, HeadNorms, Model, Sees, StateSpace};
use super::super::sizes::{Heads, turned};

/// The least sequences of a group, where experts are many.
const GROUP: u64 = 16;

/// `dim` lines, each with its comment.
pub(super) fn dims(model: &Model, axes: &Axes) -> Vec<(String, String)> {
    let mut out = Lines(Vec::new());
    match model.experts() {
        None => out.dim(format!("B = {}", axes.sequences()), "sequences"),
        Some(_) => {
            out.dim(format!("P = {}", groups(model, axes)), "groups of sequences");
            out.dim(format!("T = {}", of_group(model)), "sequences of a group");
        }
    }
    out.dim("L = 1", "tokens of a step");
    out.dim(format!("E = {}", model.width), "d_model");
    out.positions(model);
    if let Some(attention) = model.attention() {
        out.heads(attention);
    }
    match model.state_space() {
        Some(space) => out.state_space(space),
        None => out.feed(model),
    }
    out.vocabulary(model, axes);
    out.0
}

/// The lines so far.
struct Lines(Vec<(String, String)>);

impl Lines {
    fn dim(&mut self, line: impl Into<String>, what: &str) {
        self.0.push((format!("dim {}", line.into()), what.to_string()));
    }

    fn positions(&mut self, model: &Model) {
        for (dim, sees) in held(model) {
            match sees {
                Sees::All => {
                    let context = model.attention().map_or(1, |first| first.context);
                    self.dim(format!("{dim} = {context}"), "positions of the caches");
                }
                Sees::Window(most) => {
                    self.dim(format!("{dim} = {} + L", most - 1), "positions that a window needs")
                }
                Sees::Chunk(most) => self.dim(format!("{dim} = {most}"), "positions of a chunk"),
            }
        }
        if let Some(most) = model.embedding.positions {
            self.dim(format!("N = {most}"), "positions that are learned");
        }
    }

    fn heads(&mut self, attention: &Attention) {
        let Attention { heads, kv_heads, head, .. } = attention;
        if let Some(latent) = attention.latent {
            self.dim(format!("H = {heads}"), "heads");
            self.dim(format!("D = {head}"), "the part of a key that bears no position");
            self.dim(format!("D1 = {}", latent.turned), "the part that does, one for all heads");
            self.dim(format!("D2 = {}", latent.values), "values of a head");
            if let Some(queries) = latent.queries {
                self.dim(format!("A = {queries}"), "latent queries");
            }
            self.dim(format!("Z = {}", latent.keys), "latent keys and values");
            return;
        }
        match Heads::of(attention) {
            Heads::Grouped => {
                self.dim(format!("K = {kv_heads}"), "heads of keys and values");
                self.dim(format!("G = {heads} / K"), "heads of queries for each");
            }
            Heads::Multihead => self.dim(format!("H = {heads}"), "heads"),
            Heads::Multiquery => {
                self.dim(format!("H = {heads}"), "heads of queries, to one of keys and values")
            }
        }
        self.dim(format!("D = {head}"), "d_head");
        if let Some((part, _)) = turned(attention) {
            self.dim(format!("D1 = {part}"), "the part of a head that positions turn");
            self.dim("D2 = D - D1", "the rest of it");
        }
        if attention.norms == HeadNorms::All {
            let (q, kv) = match Heads::of(attention) {
                Heads::Multihead => ("H * D", None),
                Heads::Grouped => ("K * G * D", Some("K * D")),
                Heads::Multiquery => ("H * D", Some("D")),
            };
            self.dim(format!("Q = {q}"), "queries of all heads");
            if let Some(kv) = kv {
                self.dim(format!("J = {kv}"), "keys of all heads");
            }
        }
    }

    fn state_space(&mut self, space: &StateSpace) {
        let StateSpace { groups, heads, head, state, taps, .. } = space;
        self.dim(format!("G = {groups}"), "groups of heads");
        self.dim(format!("R = {heads}"), "heads of a group");
        self.dim(format!("P = {head}"), "d_head");
        self.dim(format!("N = {state}"), "d_state");
        self.dim("K = 1", "tokens of a chunk");
        self.dim("C = L / K", "chunks");
        self.dim("J = K", "a chunk's tokens as they are looked back at");
        self.dim("D = C", "chunks as they are looked back at");
        self.dim("O = 1", "one of them");
        self.dim(format!("T = {taps}"), "taps of the convolution");
        self.dim("W = T - 1", "tokens that it looks back");
        self.dim("M = W + L", "these and the step's");
    }

    fn feed(&mut self, model: &Model) {
        let mut inner = |name: &str, size: u64, what: &str| {
            if size.is_multiple_of(model.width) && size > model.width {
                self.dim(format!("{name} = {} * E", size / model.width), what)
            } else {
                self.dim(format!("{name} = {size}"), what)
            }
        };
        let dense = model.kinds.iter().find_map(|kind| match &kind.feed {
            Feed::Dense(dense) => Some(dense),
            Feed::Experts(_) | Feed::StateSpace(_) => None,
        });
        let Some(experts) = model.experts() else {
            return inner("F", dense.map_or(1, |dense| dense.inner), "d_ff");
        };
        if let Some(dense) = dense {
            inner("F", dense.inner, "d_ff of layers without experts");
            inner("F1", experts.each.inner, "d_ff of an expert");
        } else {
            inner("F", experts.each.inner, "d_ff");
        }
        if let Some(shared) = experts.shared {
            inner("F2", shared.inner, "d_ff of the expert for all tokens");
        }
        if let Some(block) = model.block {
            self.dim(format!("W = {block}"), "numbers that share a scale: a byte, `f8` for e8m0");
            self.dim("E1 = E / W", "scales along d_model");
            self.dim("F1 = F / W", "scales along d_ff");
        }
        self.dim(format!("X = {}", experts.count), "experts");
        let places = "places of an expert for a group: twice its share";
        if 2 * experts.chosen.min(experts.count) < experts.count {
            self.dim(format!("C = 2 * {} * T / X", experts.chosen), places)
        } else {
            self.dim("C = T", "places of an expert for a group")
        }
        if experts.gates.chosen_alone() {
            self.dim("U = 1", "a token by itself");
            self.dim("O = 1", "its place");
        }
        if let Some(groups) = experts.gates.groups {
            self.dim(format!("M = {}", groups.count), "groups of experts");
            self.dim("Y = X / M", "experts of a group");
        }
    }

    fn vocabulary(&mut self, model: &Model, axes: &Axes) {
        let Some(vocabulary) = model.vocabulary else { return };
        let devices = axes.all.iter().fold(1u64, |n, (_, size)| n.saturating_mul(*size)).max(1);
        if vocabulary.is_multiple_of(devices) || vocabulary.is_multiple_of(128) {
            self.dim(format!("V = {vocabulary}"), "vocabulary")
        } else {
            let padded = vocabulary.next_multiple_of(128);
            self.dim(format!("V = {vocabulary} pad {padded}"), "vocabulary")
        }
    }
}

/// The dims of what caches hold, each with what an attention sees of it.
pub(super) fn held(model: &Model) -> impl Iterator<Item = (&'static str, Sees)> {
    let seen = || model.kinds.iter().filter_map(|kind| kind.attention.as_ref()).map(|a| a.sees);
    let all = seen().next().map(|_| ("S", Sees::All));
    all.into_iter().chain(seen().find(|sees| *sees != Sees::All).map(|sees| ("R", sees)))
}

/// The sequences of a group: as many as there are experts, or the least number from [`GROUP`] on
/// with which the places of an expert are whole.
fn of_group(model: &Model) -> u64 {
    model.experts().map_or(1, |experts| {
        if experts.count <= GROUP {
            return experts.count;
        }
        let asked = (2 * experts.chosen.min(experts.count)).max(1);
        let least = experts.count / gcd(experts.count, asked).max(1);
        GROUP.next_multiple_of(least)
    })
}

/// The number of groups of sequences.
pub(super) fn groups(model: &Model, axes: &Axes) -> u64 {
    let over = model
        .attention()
        .map_or(axes.batch_devices(), |attention| fewest_sequences(attention, axes));
    (axes.sequences() / of_group(model)).max(1).next_multiple_of(over)
}

/// The fewest sequences, or groups of them, that the layouts of a file can split.
pub(super) fn fewest_sequences(attention: &Attention, axes: &Axes) -> u64 {
    let over_heads = axes.model().map_or(1, |(_, size)| *size);
    let split = attention.latent.is_some() || attention.kv_heads.is_multiple_of(over_heads);
    axes.batch_devices().saturating_mul(if split { 1 } else { over_heads })
}
