//! Correct programs of strange sizes, from which spoiled programs are made: dims of 1 and of 2^40,
//! long chains, many dims, axes and operands, deep nesting, numbers at the ends of their range,
//! every op at its smallest.

use shard_ir::Map;
use std::fmt::Write;

/// The programs.
pub(super) fn programs() -> Vec<String> {
    let mut all = right();
    all.extend(WRONG.iter().map(|text| text.to_string()));
    all
}

/// Those without an error.
fn right() -> Vec<String> {
    let mut all: Vec<String> = WRITTEN.iter().map(|text| text.to_string()).collect();
    all.extend([chain(), dims(), axes(), operands(), nesting(), calls(), every_map()]);
    all
}

const WRITTEN: &[&str] = &[
    "mesh x=1, y=1\ndim B = 1\ndim E = 1\nlayer f(a: f32 B_xE, w: weight f32 E_yB) -> f32 BE_x \
        {\n  \
     let h = einsum(a, w -> EB)\n  return softmax(h over B) + mean(h over E)\n}\n",
    "mesh x=2, y=4\ndim B = 1099511627776\ndim E = 2\nlayer f(a: bf16 B?, b: bf16 E_x) -> bf16 \
        B_x? {\n  \
     return a * sum(b over E)\n}\n",
    "mesh x=1048576\ndim B = 1048576\nlayer f(a: f32 B_x) -> f32 B { return a }\n",
    "mesh x=3, y=5\ndim B = 15\ndim E = 45\nlayer f(a: f32 BE_xy, b: f32 B_yxE) -> f32 B_xE_y \
        {\n  return a + b / 3\n}\n",
    "mesh x=2\ndim B = 4\nlayer f(a: int32 B_x) -> (q: int32 B, r: bool B, s: f32 B_x?) {\n  \
     let q = a / (a - a)\n  let s = cast(a, f32) / 0 * 3e38 * 3e38\n  return (q, cast(q, bool), \
     s)\n}\n",
    "mesh x=2\ndim B = 4\nlayer f(a: f8 B_x, b: f16 B, c: int4 B) -> (p: f8 B, q: f16 B_x, r: \
        int4 B_x) {\n  \
     return (a * 448, -b * 65504, maximum(c, 7) + c)\n}\n",
    "mesh x=2\ndim B = 4\nlayer f4(f4: f4 B_x, b: bf16 B) -> (p: f4 B, q: bf16 B) {\n  \
     return (f4 * 6, einsum(f4, b -> B))\n}\n",
    "mesh x=2\ndim L = 1\ndim S = 2\ndim Q = 2\nlayer f(q: f32 LQ, c: cache f32 S_xQ) -> (o: f32 \
        LQ, d: cache f32 S_xQ) {\n  \
     let d = append(c, rope(q over Q at L), L -> S)\n  let s = causal(einsum(q, d -> LS) over L, \
     S)\n  \
     return (einsum(softmax(s over S), d -> LQ), d)\n}\n",
    "mesh x=2\ndim V = 2\ndim E = 1\ndim I = 3\nlayer f(t: weight f32 V_xE, i: int32 I) -> f32 IE \
        { return take(t, i over V) }\n",
    "mesh x=2\ndim A = 2\ndim B = 2\ndim C = 4\ndim D = 8\ndim W = 1\nlayer f(a: f32 AB_x, c: f32 \
        C_x) -> f32 W {\n  \
     let m = merge(a, AB -> C)\n  let d = concat(m + c, rename(merge(a, BA -> C), C -> C), C, C \
     -> D)\n  \
     return slice(d, D -> W, 7)\n}\n",
    "mesh x=2, y=2\ndim P = 1\ndim T = 4\ndim X = 2\ndim C = 2\ndim E = 2\n\
     layer f(x: f32 PT_xE, r: weight f32 EX?) -> f32 PTE? {\n  let g = softmax(einsum(x, r -> \
     PTX) over X)\n  \
     let s = route(g over X at T -> C, 1)\n  let t = einsum(s, x -> XPCE)\n  return einsum(s * g, \
     t -> PTE)\n}\n",
    "mesh x=2\ndim H = 3 pad 4\ndim L = 1\nphase a { L = 1 }\nphase b repeat 3 { L = 8 pad 10 }\n\
     layer f(x: f32 LH_x?l, w: weight host f32 H?) -> f32 LH?l repeat 2 { return x * w }\n",
    "mesh x=2\ndim B = 2\nstrict layer f(a: f32 B_x) -> f32 B(partialsum-x) { return \
        reshard(reshard(a, B), B(partialsum-x)) }\n",
    "mesh x=2, y=2\ndim B = 4\nlayer f(a: f32 B(partialsum-x, partialmax-y)) -> f32 B_xy { return \
        a }\n",
    "mesh data=2\nlayer f(a: f32 [], b: bool []) -> f32 [] { return -a + cast(b, f32) / 2e-320 }\n",
];

/// Wrong ones: names with umlauts, an axis in braces.
const WRONG: &[&str] = &[
    "mesh größe=2\ndim Größe = 4\nlayer f(a: f32 [Größe]) -> f32 [Größe] { return a }\n",
    "mesh {data=2}\nlayer f(a: f32 []) -> f32 [] { return a + 1 }\n",
];

const HEADER: &str = "mesh x=2, y=2\ndim B = 4\ndim E = 4\n";

/// A value that each of many lines makes from the two values before.
fn chain() -> String {
    let mut text = format!("{HEADER}layer f(v0: f32 B_xE, v1: f32 BE_y) -> f32 B_xE_y {{\n");
    for i in 2..40 {
        let _ = writeln!(text, "  let v{i} = relu(v{}) - v{}", i - 1, i - 2);
    }
    text + "  return v39\n}\n"
}

/// Values of as many dims as a tensor may have.
fn dims() -> String {
    let names: Vec<char> = ('A'..='N').collect();
    let mut text = "mesh x=2\n".to_string();
    names.iter().for_each(|name| text += &format!("dim {name} = 2\n"));
    let all: String = names.iter().collect();
    text + &format!(
        "layer f(a: f32 {all}, b: f32 A_x) -> f32 A_x {{ return sum(a over {}) * b }}\n",
        &all[1..]
    )
}

/// Many mesh axes, all of them free.
fn axes() -> String {
    let axes: Vec<String> = ('a'..='h').map(|name| format!("{name}=2")).collect();
    let header = format!("mesh {}\ndim B = 256\ndim E = 256\n", axes.join(", "));
    header + "layer f(a: f32 B_abcdE_e, w: weight f32 E?) -> f32 BE_hgfedcba { return a * w }\n"
}

/// One einsum of many operands.
fn operands() -> String {
    let names: Vec<String> = (0..7).map(|i| format!("a{i}")).collect();
    let parameters: Vec<String> = names.iter().map(|name| format!("{name}: f32 B_xE")).collect();
    format!(
        "{HEADER}layer f({}) -> f32 E_x {{ return einsum({} -> E) }}\n",
        parameters.join(", "),
        names.join(", ")
    )
}

/// As deep as the language allows.
fn nesting() -> String {
    let (open, close) = ("abs(".repeat(50), ")".repeat(50));
    format!("{HEADER}layer f(a: f32 B_x) -> f32 B {{ return {open}a{close} }}\n")
}

/// Layers that call each other, each twice.
fn calls() -> String {
    let mut text = format!("{HEADER}layer l0(a: f32 B?) -> f32 B? {{ return relu(a) }}\n");
    for i in 1..5 {
        let _ =
            writeln!(text, "layer l{i}(a: f32 B?) -> f32 B_x {{ return l{0}(l{0}(a)) }}", i - 1);
    }
    text
}

/// Every map, extremum, reduction and composite, one after the other.
fn every_map() -> String {
    let mut text = format!("{HEADER}layer f(v: f32 B_xE_y, w: f32 B) -> f32 BE_x {{\n");
    let mut last = "v".to_string();
    for (i, map) in Map::ALL.iter().filter_map(|map| map.row().source).enumerate() {
        let _ = writeln!(text, "  let m{i} = {map}({last})");
        last = format!("m{i}");
    }
    for (i, form) in ["softmax", "rmsnorm", "layernorm", "sum", "mean", "max"].iter().enumerate() {
        let _ = writeln!(text, "  let n{i} = v * {form}({last} over E)");
        last = format!("n{i}");
    }
    text + &format!("  return minimum(maximum({last}, w), 3)\n}}\n")
}

#[cfg(test)]
mod tests {
    /// A corpus of wrong programs would spoil nothing.
    #[test]
    fn strange_programs_are_right() {
        for text in super::right() {
            crate::judge::compile(&text);
        }
    }
}
