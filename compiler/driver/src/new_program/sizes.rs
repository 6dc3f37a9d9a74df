//! The dims of a model with their sizes, and the weights of its layers.

use super::model::{Attention, Block, Dense, Feed, Model, Rotary, Sees, StateSpace};
use shard_ir::{Dtype, never};

/// A parameter that a kind of layer keeps.
pub(super) struct Kept {
    /// Its name.
    pub name: &'static str,
    /// Its dims, one behind another.
    pub dims: String,
    /// The dtype that it is stored in.
    pub dtype: Dtype,
}

/// How heads of queries share heads of keys and values.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Heads {
    Multihead,
    Grouped,
    Multiquery,
}

impl Heads {
    pub(super) fn of(attention: &Attention) -> Heads {
        match (attention.kv_heads, attention.heads) {
            (kv, heads) if kv == heads => Heads::Multihead,
            (1, _) => Heads::Multiquery,
            _ => Heads::Grouped,
        }
    }

    /// The dims of heads: of keys and values, and of queries.
    pub(super) fn dims(self) -> (&'static str, &'static str) {
        match self {
            Heads::Multihead => ("H", "H"),
            Heads::Grouped => ("K", "KG"),
            Heads::Multiquery => ("", "H"),
        }
    }
}

/// The dim of positions in the caches of an attention.
pub(super) fn positions(attention: &Attention) -> &'static str {
    match attention.sees {
        Sees::All => "S",
        Sees::Window(_) | Sees::Chunk(_) => "R",
    }
}

/// The dim of d_ff of the experts, which differs from that of dense layers.
pub(super) fn inner_of_experts(model: &Model) -> &'static str {
    let dense = model.kinds.iter().any(|kind| matches!(kind.feed, Feed::Dense(_)));
    if dense { "F1" } else { "F" }
}

/// The weights of a kind of layer, in the order of its parameters.
pub(super) fn weights(model: &Model, kind: &Block) -> Vec<Kept> {
    let mut out = Vec::new();
    if let Some(attention) = &kind.attention {
        match attention.latent {
            Some(_) => latent_weights(model, attention, &mut out),
            None => plain_weights(model, attention, &mut out),
        }
    }
    feed_weights(model, &kind.feed, &mut out);
    out
}

/// The scales of a kind of layer: one for each block of each matrix of its experts.
pub(super) fn scales(model: &Model, kind: &Block) -> Vec<Kept> {
    let Some(experts) = kind.experts().filter(|_| model.block.is_some()) else { return Vec::new() };
    let gate = experts.each.gated.then_some(("gate_scales", "XE1F"));
    let all = gate.into_iter().chain([("up_scales", "XE1F"), ("down_scales", "XF1E")]);
    // Scales of mxfp4 are powers of two with an exponent of 8 bits (e8m0), which take as many bytes
    // as `f8`.
    all.map(|(name, dims)| Kept { name, dims: dims.to_string(), dtype: Dtype::F8 }).collect()
}

fn plain_weights(model: &Model, attention: &Attention, out: &mut Vec<Kept>) {
    let (kv, q) = Heads::of(attention).dims();
    let mut keep = |name, dims: String, dtype| out.push(Kept { name, dims, dtype });
    let (stored, plain) = (model.stored_attention, model.dtype);
    keep("wq", format!("E{q}D"), stored);
    keep("wk", format!("E{kv}D"), stored);
    keep("wv", format!("E{kv}D"), stored);
    keep("wo", format!("{q}DE"), stored);
    if attention.bias.inputs {
        keep("bq", format!("{q}D"), plain);
        keep("bk", format!("{kv}D"), plain);
        keep("bv", format!("{kv}D"), plain);
    }
    if attention.bias.output {
        keep("bo", "E".to_string(), plain);
    }
    if attention.sinks {
        keep("sinks", q.to_string(), plain);
    }
}

fn latent_weights(model: &Model, attention: &Attention, out: &mut Vec<Kept>) {
    let mut keep = |name, dims: &str| {
        out.push(Kept { name, dims: dims.to_string(), dtype: model.stored_attention });
    };
    let from = match attention.latent.and_then(|latent| latent.queries) {
        Some(_) => {
            keep("wa", "EA");
            "A"
        }
        None => "E",
    };
    keep("wq", &format!("{from}HD"));
    keep("wr", &format!("{from}HD1"));
    keep("wz", "EZ");
    keep("wp", "ED1");
    keep("wk", "ZHD");
    keep("wv", "ZHD2");
    keep("wo", "HD2E");
}

fn feed_weights(model: &Model, feed: &Feed, out: &mut Vec<Kept>) {
    match feed {
        Feed::Dense(dense) => dense_weights(model, dense, "", "F", PLAIN, out),
        Feed::StateSpace(space) => state_space_weights(model, space, out),
        Feed::Experts(experts) => {
            let mut keep =
                |name, dims: &str| out.push(Kept { name, dims: dims.into(), dtype: model.dtype });
            keep("router", "EX");
            if experts.gates.bias {
                keep("b_router", "X");
            }
            if experts.gates.selection_bias {
                keep("b_choice", "X");
            }
            dense_weights(model, &experts.each, "X", inner_of_experts(model), PLAIN, out);
            if let Some(shared) = experts.shared {
                let same = Dense { inner: shared.inner, bias: false, ..experts.each.clone() };
                dense_weights(model, &same, "", "F2", SHARED, out);
                if shared.gate {
                    out.push(Kept { name: "s_router", dims: "E".into(), dtype: model.dtype });
                }
            }
        }
    }
}

fn state_space_weights(model: &Model, space: &StateSpace, out: &mut Vec<Kept>) {
    let mut keep = |name, dims: &str, dtype| out.push(Kept { name, dims: dims.into(), dtype });
    for (name, dims) in
        [("w_z", "EGRP"), ("w_x", "EGRP"), ("w_b", "EGN"), ("w_c", "EGN"), ("w_dt", "EGR")]
    {
        keep(name, dims, model.stored);
    }
    for (name, dims) in [("conv_x", "TGRP"), ("conv_b", "TGN"), ("conv_c", "TGN")] {
        keep(name, dims, model.dtype);
    }
    if space.bias {
        for (name, dims) in [("bias_x", "GRP"), ("bias_b", "GN"), ("bias_c", "GN")] {
            keep(name, dims, model.dtype);
        }
    }
    keep("dt_in", "GR", Dtype::F32);
    keep("a_log", "GR", Dtype::F32);
    keep("skip", "GR", model.dtype);
    keep("w_out", "GRPE", model.stored);
}

/// Names of the matrices of a feed-forward layer, and then of its biases.
pub(super) type Names = [&'static str; 6];
/// The names in a dense layer and in experts.
pub(super) const PLAIN: Names = ["w_gate", "w_up", "w_down", "b_gate", "b_up", "b_down"];
/// The same names, each matrix with its scales.
pub(super) const SCALED: Names =
    ["w_gate, gate_scales", "w_up, up_scales", "w_down, down_scales", PLAIN[3], PLAIN[4], PLAIN[5]];
/// The names in the expert that every token goes to.
pub(super) const SHARED: Names = ["s_gate", "s_up", "s_down", "sb_gate", "sb_up", "sb_down"];

fn dense_weights(
    model: &Model,
    dense: &Dense,
    each: &str,
    inner: &str,
    names: Names,
    out: &mut Vec<Kept>,
) {
    let [gate, up, down, b_gate, b_up, b_down] = names;
    let mut keep = |name, dims: String, dtype| out.push(Kept { name, dims, dtype });
    let (width, summed) = match model.block.filter(|_| !each.is_empty()) {
        Some(_) => ("E1W", format!("{inner}1W")),
        None => ("E", inner.to_string()),
    };
    if dense.gated {
        keep(gate, format!("{each}{width}{inner}"), model.stored);
    }
    keep(up, format!("{each}{width}{inner}"), model.stored);
    keep(down, format!("{each}{summed}E"), model.stored);
    if dense.bias {
        if dense.gated {
            keep(b_gate, format!("{each}{inner}"), model.dtype);
        }
        keep(b_up, format!("{each}{inner}"), model.dtype);
        keep(b_down, format!("{each}E"), model.dtype);
    }
}

/// The size of a dim in a kind of layer.
fn size(model: &Model, kind: &Block, dim: &str) -> u64 {
    let attention = |of: &dyn Fn(&Attention) -> u64| kind.attention.as_ref().map_or(1, of);
    let latent = |of: &dyn Fn(super::model::Latent) -> u64| {
        kind.attention.as_ref().and_then(|a| a.latent).map_or(1, of)
    };
    let experts = kind.experts();
    if let Some(space) = kind.state_space() {
        return match dim {
            "E" => model.width,
            "G" => space.groups,
            "R" => space.heads,
            "P" => space.head,
            "N" => space.state,
            "T" => space.taps,
            _ => never!("a dim that a recurrence lacks", 1),
        };
    }
    if let Some(block) = model.block {
        match dim {
            "W" => return block,
            "E1" => return model.width / block,
            "F1" => return kind.feed.inner() / block,
            _ => {}
        }
    }
    match dim {
        "E" => model.width,
        "K" => attention(&|a| a.kv_heads),
        "G" => attention(&|a| a.heads / a.kv_heads.max(1)),
        "H" => attention(&|a| a.heads),
        "D" => attention(&|a| a.head),
        "D1" => latent(&|l| l.turned),
        "D2" => latent(&|l| l.values),
        "A" => latent(&|l| l.queries.unwrap_or(1)),
        "Z" => latent(&|l| l.keys),
        "X" => experts.map_or(1, |e| e.count),
        "F2" => experts.and_then(|e| e.shared).map_or(1, |s| s.inner),
        "F" | "F1" => kind.feed.inner(),
        _ => never!("a dim that no kind of layer has", 1),
    }
}

/// The dims of a list: each letter with the digits behind it.
pub(super) fn letters(dims: &str) -> Vec<&str> {
    let starts: Vec<usize> = dims
        .char_indices()
        .filter(|(_, c)| c.is_ascii_uppercase())
        .map(|(at, _)| at)
        .chain([dims.len()])
        .collect();
    starts.windows(2).map(|pair| &dims[pair[0]..pair[1]]).collect()
}

/// How many parameters a model has, norms aside.
pub(super) fn parameters(model: &Model) -> u64 {
    let of_kind = |kind: &Block| {
        let of = |kept: &Kept| product(letters(&kept.dims).iter().map(|d| size(model, kind, d)));
        weights(model, kind).iter().map(of).fold(0, u64::saturating_add)
    };
    let layers = model.pieces.iter().map(|piece| {
        let once = piece.kinds.iter().map(|kind| of_kind(&model.kinds[*kind]));
        once.fold(0, u64::saturating_add).saturating_mul(piece.times)
    });
    let tables = if model.tied { 1 } else { 2 };
    let around = [
        product([tables, model.width, model.vocabulary.unwrap_or(0)]),
        product([model.width, model.embedding.positions.unwrap_or(0)]),
    ];
    layers.chain(around).fold(0, u64::saturating_add)
}

/// The number of elements in the caches of a sequence.
pub(super) fn cached(model: &Model) -> u64 {
    let of = |attention: &Attention| {
        let positions = match attention.sees {
            Sees::All => attention.context,
            Sees::Window(most) | Sees::Chunk(most) => most.min(attention.context),
        };
        let each = match attention.latent {
            Some(latent) => latent.keys.saturating_add(latent.turned),
            None => product([2, attention.kv_heads, attention.head]),
        };
        positions.saturating_mul(each)
    };
    let of_kind = |kind: &usize| {
        let kind = &model.kinds[*kind];
        let kept = kind.attention.as_ref().map_or(0, of);
        kept.saturating_add(kind.state_space().map_or(0, state))
    };
    let layers = model.pieces.iter().map(|piece| {
        let once = piece.kinds.iter().map(of_kind);
        once.fold(0, u64::saturating_add).saturating_mul(piece.times)
    });
    layers.fold(0, u64::saturating_add)
}

/// The number of elements of the model's dtype that the states of a sequence take; the states of
/// the recurrence count twice, since they are in 32 bits.
fn state(space: &StateSpace) -> u64 {
    let StateSpace { groups, heads, head, state, taps, .. } = space;
    let of_token = product([*groups, *heads, *head]).saturating_add(product([2, *groups, *state]));
    product([2, *groups, *heads, *head, *state])
        .saturating_add(of_token.saturating_mul(taps.saturating_sub(1)))
}

/// The sizes of the turned and of the other part of a head; `None` where one of them is empty.
pub(super) fn turned(attention: &Attention) -> Option<(u64, u64)> {
    match attention.rotary {
        Rotary::Part(part) if part < attention.head => Some((part, attention.head - part)),
        Rotary::Part(_) | Rotary::No | Rotary::Whole => None,
    }
}

/// A product, or the largest number there is.
pub(super) fn product(factors: impl IntoIterator<Item = u64>) -> u64 {
    factors.into_iter().fold(1, u64::saturating_mul)
}
