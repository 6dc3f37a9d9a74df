//! The statements of a state-space layer: Mamba-2, by the chunked algorithm of Dao and Gu (2024),
//! part 6. A step of decode is one chunk of one token.

use std::fmt::Write;

use super::super::model::StateSpace;
use super::Words;

/// The values that go through the convolution, by their names in weights, with their dims behind
/// the positions.
const CONVOLVED: [(&str, &str); 3] = [("x", "GRP"), ("b", "GN"), ("c", "GN")];

impl Words<'_> {
    /// The state of the recurrence, and the last tokens in front of the convolution.
    pub(super) fn states(&self) -> Vec<(&'static str, &'static str, String)> {
        let (b, dtype) = (&self.batch, self.model.dtype.name());
        vec![
            ("state", "state1", format!("f32 {b}GRPN?")),
            ("last_x", "last_x1", format!("{dtype} {b}WGRP?")),
            ("last_b", "last_b1", format!("{dtype} {b}WGN?")),
            ("last_c", "last_c1", format!("{dtype} {b}WGN?")),
        ]
    }

    /// The statements from `x` to `y`, and to the new states.
    pub(super) fn recurrence(&self, space: &StateSpace) -> String {
        let (b, norm, dtype) = (self.sequences, self.model.norm, self.model.dtype.name());
        let narrow = |value: &str| format!("cast({value}, {dtype})");
        let mut out = format!("  let h = {norm}(x over E)\n");
        for (name, dims) in CONVOLVED {
            let bias = if space.bias { format!(" + bias_{name}") } else { String::new() };
            let map = space.map;
            // Writing to a string does not fail.
            let _ = write!(
                out,
                "  let all_{name} = concat(last_{name}, einsum(h, w_{name} -> {b}L{dims}), W, L \
-> M)
  let last_{name}1 = slice(all_{name}, M -> W, L)
  let u_{name} = {map}(slice(conv(all_{name}, conv_{name} over M, T), M -> L, W){bias})
"
            );
        }
        let _ = write!(
            out,
            "  let b = split(u_b, L -> CK)
  let c = split(u_c, L -> CK)
  let dt = softplus(einsum(h, w_dt -> {b}LGR : f32) + dt_in)
  let v = split(u_x * {dt}, L -> CK)
  let log_decay = split(-(dt * exp(a_log)), L -> CK)
  let to_here = cumsum(log_decay over K)
  let in_all = sum(log_decay over K)
  let between = exp(causal(to_here - rename(to_here, K -> J) over K, J))
  let scores = einsum(c, rename(b, K -> J) -> {b}CGKJ : f32) * between
  let within = einsum({scores}, rename(v, K -> J) -> {b}CKGRP)
  let added = einsum(b, {to_end}, v -> {b}CGRPN : f32)
  let until = cumsum(in_all over C)
  let across = exp(causal(until - rename(until, C -> D) over C, D))
  let after = einsum(across, rename(added, C -> D) -> {b}CGRPN)
  let entering = shift(after over C, 1) + state * exp(until - in_all)
  let before = einsum(c, {entering}, {from_start} -> {b}CKGRP)
  let o = merge(within + before, CK -> L) + u_x * skip
  let gated = o * silu(einsum(h, w_z -> {b}LGRP))
  let normed = gated * rsqrt(mean(square(gated) over GRP) + 1e-5)
  let y = x + einsum(normed, w_out -> {b}LE)
  let state1 = sum(slice(after, C -> O, C - 1) over O) + state * exp(sum(in_all over C))
",
            dt = narrow("dt"),
            scores = narrow("scores"),
            to_end = narrow("exp(in_all - to_here)"),
            entering = narrow("entering"),
            from_start = narrow("exp(to_here)"),
        );
        out
    }
}
