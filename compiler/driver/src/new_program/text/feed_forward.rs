//! The statements of a feed-forward layer.

use std::fmt::Write;

use super::super::model::{Dense, Experts, Feed, GateMap, Gates};
use super::super::sizes::{Names, PLAIN, SCALED, SHARED, inner_of_experts};
use super::{Words, number};

impl Words<'_> {
    /// The statements from an input on, and the expression that the layer adds in the end.
    pub(super) fn feed_forward(&self, feed: &Feed, input: &str) -> (String, String) {
        let b = self.sequences;
        match feed {
            Feed::Dense(dense) => {
                let f = inside(dense, input, &format!("{b}LF"), PLAIN, None);
                let bias = if dense.bias { " + b_down" } else { "" };
                let down = format!("einsum(f, w_down -> {b}LE){bias}");
                let down = if dense.bias { format!("({down})") } else { down };
                (format!("  let f = {f}\n"), down)
            }
            Feed::Experts(experts) => self.experts(experts, input),
            // A recurrence is a layer by itself.
            Feed::StateSpace(_) => (String::new(), input.to_string()),
        }
    }

    fn experts(&self, experts: &Experts, input: &str) -> (String, String) {
        let b = self.sequences;
        let mut out = self.gates(experts, input);
        let gates = if experts.gates.makes_others() { "w" } else { "g" };
        let by = if experts.gates.on_inputs { format!("sent * {gates}") } else { "sent".into() };
        let _ = writeln!(out, "  let sent = route({gates} over X at T -> C, {})", experts.chosen);
        let names = if self.model.block.is_some() { SCALED } else { PLAIN };
        let there = self.in_blocks(format!("einsum({by}, {input} -> XPLCE)"), "E");
        let _ = writeln!(out, "  let there = {there}");
        let dims = format!("XPLC{}", inner_of_experts(self.model));
        let f = match experts.clamped {
            Some(limit) => {
                out += &clamped(experts, limit, &dims, names);
                "u * s".to_string()
            }
            None => inside(&experts.each, "there", &dims, names, None),
        };
        let _ = writeln!(out, "  let f = {}", self.in_blocks(f, "F"));
        let bias = if experts.each.bias { " + b_down" } else { "" };
        let done = format!("einsum(f, {} -> XPLCE){bias}", names[2]);
        let back =
            if experts.gates.on_inputs { "sent".to_string() } else { format!("sent * {gates}") };
        let chosen = format!("einsum({back}, {done} -> {b}LE)");
        let Some(shared) = experts.shared else { return (out, chosen) };
        let f = inside(&experts.each, input, &format!("{b}LF2"), SHARED, Some(()));
        let _ = writeln!(out, "  let sf = {f}");
        let all = format!("einsum(sf, s_down -> {b}LE)");
        let all = if shared.gate {
            format!("sigmoid(einsum({input}, s_router -> {b}L)) * {all}")
        } else {
            all
        };
        let _ = writeln!(out, "  let shared = {all}");
        (out, format!("({chosen} + shared)"))
    }

    /// A value with a dim cut into blocks, where the matrix that it is multiplied with has scales.
    fn in_blocks(&self, value: String, dim: &str) -> String {
        match self.model.block {
            Some(_) => format!("split({value}, {dim} -> {dim}1W)"),
            None => value,
        }
    }

    /// The statements of the gates: `g`, and `w` where other gates are made of these.
    fn gates(&self, experts: &Experts, input: &str) -> String {
        let b = self.sequences;
        let gates = &experts.gates;
        let bias = if gates.bias { " + b_router" } else { "" };
        let product = format!("einsum({input}, router -> {b}LX){bias}");
        let mut out = match gates.map {
            GateMap::Softmax => format!("  let g = softmax({product} over X)\n"),
            GateMap::Sigmoid => format!("  let g = sigmoid({product})\n"),
        };
        if !gates.makes_others() {
            return out;
        }
        let by = if gates.selection_bias {
            out += "  let by = g + b_choice\n";
            "by"
        } else {
            "g"
        };
        let by = match gates.groups {
            Some(groups) => {
                let _ = writeln!(out, "  let grouped = split({by}, X -> MY)");
                let best = match groups.judged_by {
                    1 => "max(grouped over Y)".to_string(),
                    most => format!("sum(grouped * {} over Y)", chosen("grouped", "Y", most)),
                };
                let _ = writeln!(out, "  let best = {best}");
                let near = chosen("best", "M", groups.chosen);
                let _ = writeln!(out, "  let near = merge(grouped * {near}, MY -> X)");
                "near"
            }
            None => by,
        };
        let one = chosen(by, "X", experts.chosen);
        if !gates.renormalised {
            let factor = gates.factor.map_or(String::new(), |f| format!(" * {}", number(f)));
            let _ = writeln!(out, "  let w = g * {one}{factor}");
            return out;
        }
        let _ = writeln!(out, "  let own = g * {one}");
        let factor = gates.factor.map_or(String::new(), |f| format!(" * {}", number(f)));
        let _ = writeln!(out, "  let w = own / sum(own over X){factor}");
        out
    }
}

impl Gates {
    /// Whether the chosen experts have to be known before tokens are sent.
    pub(super) fn chosen_alone(&self) -> bool {
        self.renormalised || self.selection_bias || self.groups.is_some()
    }

    /// Whether the gates in use are made of the first ones, and not these themselves.
    fn makes_others(&self) -> bool {
        self.chosen_alone() || self.factor.is_some()
    }
}

/// An expression that is 1 for the experts of the largest gates and 0 for the others. Each token is
/// routed by itself, to one place.
fn chosen(gates: &str, dim: &str, most: u64) -> String {
    format!("sum(route(split({gates}, T -> TU) over {dim} at U -> O, {most}) over UO)")
}

/// The expression that the last matrix reads.
fn inside(dense: &Dense, input: &str, dims: &str, names: Names, shared: Option<()>) -> String {
    let [gate, up, _, b_gate, b_up, _] = names;
    let of = |matrix: &str, bias: &str| {
        let product = format!("einsum({input}, {matrix} -> {dims})");
        if dense.bias && shared.is_none() { format!("{product} + {bias}") } else { product }
    };
    let (gate, up) = (of(gate, b_gate), of(up, b_up));
    let map = dense.map;
    if !dense.gated {
        format!("{map}({up})")
    } else if dense.bias && shared.is_none() {
        format!("{map}({gate}) * ({up})")
    } else {
        format!("{map}({gate}) * {up}")
    }
}

/// The gate of gpt-oss: `s` and `u`, both clamped at a limit.
fn clamped(experts: &Experts, limit: f64, dims: &str, names: Names) -> String {
    let [gate, up, _, b_gate, b_up, _] = names;
    let limit = number(limit);
    let of = |matrix: &str, bias: &str| {
        let product = format!("einsum(there, {matrix} -> {dims})");
        if experts.each.bias { format!("{product} + {bias}") } else { product }
    };
    let (gate, up) = (of(gate, b_gate), of(up, b_up));
    format!(
        "  let gate = minimum({gate}, {limit})
  let u = maximum(minimum({up}, {limit}), -{limit}) + 1
  let s = gate * sigmoid(gate * 1.702)
"
    )
}
