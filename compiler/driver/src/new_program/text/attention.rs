//! The statements of attention.

use std::fmt::Write;

use shard_ir::Dtype;

use super::super::model::{Attention, HeadNorms, Latent, Rotary, Sees, Tuned};
use super::super::sizes::{Heads, positions, turned};
use super::{POSITIONS, Words, number};
use crate::new_program::model::Flow;

impl Words<'_> {
    /// The statements from the layer's input to `o`, the results of the heads.
    pub(super) fn attend(&self, attention: &Attention) -> String {
        match attention.latent {
            Some(latent) => self.latent(attention, latent),
            None => self.plain(attention),
        }
    }

    /// The value that attention reads: the norm of `x`, or `x` itself where norms stand behind.
    fn read(&self) -> &'static str {
        let behind = self.model.kinds.iter().all(|kind| kind.flow == Flow::Behind);
        if behind { "x" } else { "h" }
    }

    fn plain(&self, attention: &Attention) -> String {
        let (b, h) = (self.sequences, self.read());
        let (kv, q) = Heads::of(attention).dims();
        let held = positions(attention);
        let mut out = tuned(attention, self.model.dtype);
        out += &self.projected(attention, "q", q);
        out += &self.projected(attention, "k", kv);
        let bias = if attention.bias.inputs { " + bv" } else { "" };
        let _ = writeln!(out, "  let v = einsum({h}, wv -> {b}L{kv}D){bias}");
        for (old, new) in [("keys", "k"), ("values", "v")] {
            let _ = writeln!(out, "  let {old}1 = append({old}, {new}, L -> {held})");
        }
        let divisor = number(attention.divisor);
        let divided = if divisor == "1" { String::new() } else { format!(" / {divisor}") };
        let bias = if attention.alibi { " + alibi" } else { "" };
        let _ = writeln!(out, "  let scores = einsum(q, keys1 -> {b}{q}L{held}){divided}{bias}");
        out += &weights(attention, held);
        let _ = writeln!(out, "  let o = einsum(p, values1 -> {b}L{q}D)");
        out
    }

    /// Queries or keys: their product, bias, norm and positions.
    fn projected(&self, attention: &Attention, name: &str, heads: &str) -> String {
        let (b, h) = (self.sequences, self.read());
        let bias = if attention.bias.inputs { format!(" + b{name}") } else { String::new() };
        let product = format!("einsum({h}, w{name} -> {b}L{heads}D){bias}");
        let normed = self.normed(attention, &product, name, heads);
        let turned_after = attention.norms == HeadNorms::Turned;
        match (attention.rotary, turned(attention)) {
            (Rotary::No, _) if attention.tuned.is_some() && name == "q" => {
                format!("  let q0 = {normed}\n  let q = q0 * tuned\n")
            }
            (Rotary::No, _) => format!("  let {name} = {normed}\n"),
            (_, Some((part, _))) => format!(
                "  let {name}0 = {normed}\n  let {name}1 = rope(slice({name}0, D -> D1, 0) over D1 \
                 at L, S)\n  let {name} = concat({name}1, slice({name}0, D -> D2, {part}), D1, D2 \
                 -> D)\n"
            ),
            (_, None) if turned_after => {
                format!("  let {name} = rmsnorm(rope({product} over D at L, S) over D)\n")
            }
            (_, None) => format!("  let {name} = rope({normed} over D at L, S)\n"),
        }
    }

    /// A product, normalised as the attention states.
    fn normed(&self, attention: &Attention, product: &str, name: &str, heads: &str) -> String {
        let norm = self.model.norm;
        match attention.norms {
            HeadNorms::Each => format!("{norm}({product} over D)"),
            HeadNorms::All if heads.is_empty() => format!("{norm}({product} over D)"),
            HeadNorms::All => {
                let all = if name == "q" || heads == "H" { "Q" } else { "J" };
                let merged = format!("merge({product}, {heads}D -> {all})");
                format!("split({norm}({merged} over {all}), {all} -> {heads}D)")
            }
            HeadNorms::No | HeadNorms::Turned => product.to_string(),
        }
    }

    /// Attention to latent keys and values. The program makes keys and values of each head of them;
    /// the compiler may bring the queries to the latents instead, where that is better.
    fn latent(&self, attention: &Attention, latent: Latent) -> String {
        let (b, h) = (self.sequences, self.read());
        let norm = self.model.norm;
        let mut out = String::new();
        let from = match latent.queries {
            Some(_) => {
                let _ = writeln!(out, "  let c = {norm}(einsum({h}, wa -> {b}LA) over A)");
                "c"
            }
            None => h,
        };
        let _ = write!(
            out,
            "  let q = einsum({from}, wq -> {b}LHD)
  let q1 = rope(einsum({from}, wr -> {b}LHD1) over D1 at L, S)
  let z = {norm}(einsum({h}, wz -> {b}LZ) over Z)
  let k1 = rope(einsum({h}, wp -> {b}LD1) over D1 at L, S)
  let latents1 = append(latents, z, L -> S)
  let turned1 = append(turned, k1, L -> S)
  let k = einsum(latents1, wk -> {b}SHD)
  let v = einsum(latents1, wv -> {b}SHD2)
  let scores = (einsum(q, k -> {b}HLS) + einsum(q1, turned1 -> {b}HLS)) / {}
",
            number(attention.divisor)
        );
        out += &weights(attention, "S");
        let _ = writeln!(out, "  let o = einsum(p, v -> {b}LHD2)");
        out
    }
}

/// The statement of the factor of queries by their position, which is computed in 32 bits.
fn tuned(attention: &Attention, dtype: Dtype) -> String {
    let Some(Tuned { step, factor }) = attention.tuned else { return String::new() };
    // Positions are whole numbers from 0 on, so that the division rounds down.
    format!(
        "  let tuned = cast(log(cast(({POSITIONS} + 1) / {step}, f32) + 1) * {} + 1, {})\n",
        number(factor),
        dtype.name()
    )
}

/// The statements from `scores` to `p`, the weight of each position.
fn weights(attention: &Attention, held: &str) -> String {
    let mut out = String::new();
    let scores = match attention.softcap {
        Some(cap) => {
            let cap = number(cap);
            let _ = writeln!(out, "  let capped = {cap} * tanh(scores / {cap})");
            "capped"
        }
        None => "scores",
    };
    let window = match attention.sees {
        Sees::Window(most) => format!(", {most}"),
        Sees::All | Sees::Chunk(_) => String::new(),
    };
    let seen = format!("causal({scores} over L, {held}{window})");
    if attention.sinks {
        let _ = writeln!(out, "  let p = sink_softmax({seen}, sinks over {held})");
    } else {
        let _ = writeln!(out, "  let p = softmax({seen} over {held})");
    }
    out
}
