//! Programs that leave open what the others state: forms, labels, weights, and what one value's
//! readers want.

use std::fmt::Write;

use super::cases::{CHIP, Case};

/// What each of them may take, in milliseconds.
const MARK: f64 = 1000.0;

/// Every case, in the order of the table.
pub(super) fn cases() -> Vec<Case> {
    let mut all = Vec::new();
    let marked = |case: Case, is_marked: bool| if is_marked { case.mark(MARK) } else { case };
    for n in [1, 8, 64] {
        all.push(marked(Case::new(format!("latent_{n}"), latent(n)), n == 64));
    }
    for n in [4, 32] {
        all.push(marked(Case::new(format!("labelled_calls_{n}"), labelled_calls(n)), n == 32));
    }
    let labels = block("x=4, y=4, z=2, w=2", "BLE?l", "BSKD?c", "BSKD?d");
    all.push(Case::new("three_labels_4_axes", labels).axes(4).mark(MARK));
    for n in [8, 64] {
        all.push(marked(Case::new(format!("mismatched_{n}"), mismatched(n)), n == 64));
    }
    all
}

fn head(mesh: &str, sizes: &[(&str, usize)]) -> String {
    let dims: String = sizes.iter().map(|(dim, size)| format!("dim {dim} = {size}\n")).collect();
    format!("hardware {CHIP}\nmesh {mesh}\n\n{dims}\n")
}

/// Blocks of latent attention, in which the product of the cache and its weights may be absorbed
/// into the query.
fn latent(n: usize) -> String {
    let sizes = [("B", 64), ("E", 4096), ("S", 4096), ("H", 32), ("D", 128), ("C", 512)];
    let mut text = head("x=8, y=8", &sizes) + "layer latent(\n  x0: bf16 BE_xy,\n";
    for i in 0..n {
        let _ = writeln!(
            text,
            "  wq{i}: weight bf16 EHD?, wk{i}: weight bf16 CHD?, wv{i}: weight bf16 CHD?,"
        );
        let _ = writeln!(text, "  wo{i}: weight bf16 HDE?, c{i}: cache bf16 BSC?,");
    }
    text += ") -> bf16 BE_xy {\n";
    for i in 0..n {
        let _ = writeln!(text, "  let q{i} = einsum(rmsnorm(x{i} over E), wq{i} -> BHD)");
        let _ = writeln!(text, "  let k{i} = einsum(c{i}, wk{i} -> BSHD)");
        let _ = writeln!(text, "  let p{i} = softmax(einsum(q{i}, k{i} -> BHS) over S)");
        let _ = writeln!(text, "  let u{i} = einsum(einsum(p{i}, c{i} -> BHC), wv{i} -> BHD)");
        let _ = writeln!(text, "  let x{} = x{i} + einsum(u{i}, wo{i} -> BE)", i + 1);
    }
    text + &format!("  return x{n}\n}}\n")
}

/// A Llama block with its weights open, and these types of activation, keys and values.
fn block(mesh: &str, x: &str, keys: &str, values: &str) -> String {
    let sizes = [
        ("B", 64),
        ("L", 1),
        ("E", 4096),
        ("S", 4096),
        ("K", 8),
        ("G", 4),
        ("D", 128),
        ("F", 14336),
    ];
    head(mesh, &sizes)
        + &format!(
            "layer block(
  x: bf16 {x},
  wq: weight bf16 EKGD?, wk: weight bf16 EKD?, wv: weight bf16 EKD?, wo: weight bf16 KGDE?,
  w_gate: weight bf16 EF?, w_up: weight bf16 EF?, w_down: weight bf16 FE?,
  keys: cache bf16 {keys}, values: cache bf16 {values},
) -> (y: bf16 {x}, keys1: bf16 {keys}, values1: bf16 {values}) {{
  let h = rmsnorm(x over E)
  let q = rope(einsum(h, wq -> BLKGD) over D at L, S)
  let k = rope(einsum(h, wk -> BLKD) over D at L, S)
  let v = einsum(h, wv -> BLKD)
  let keys1 = append(keys, k, L -> S)
  let values1 = append(values, v, L -> S)
  let scores = einsum(q, keys1 -> BKGLS) / 11.3137
  let p = softmax(causal(scores over L, S) over S)
  let o = einsum(p, values1 -> BLKGD)
  let a = x + einsum(o, wo -> BLE)
  let n = rmsnorm(a over E)
  let f = silu(einsum(n, w_gate -> BLF)) * einsum(n, w_up -> BLF)
  let y = a + einsum(f, w_down -> BLE)
  return (y, keys1, values1)
}}
"
        )
}

/// Calls one after another of a block whose input and output have one layout each call.
fn labelled_calls(n: usize) -> String {
    let cache = "B_xSK_yD";
    let mut text =
        block("x=8, y=8", "B_xLE?l", cache, cache) + "\nlayer calls(\n  x0: bf16 B_xLE?,\n";
    for i in 0..n {
        let _ = writeln!(
            text,
            "  q{i}: weight bf16 EKGD?, k{i}: weight bf16 EKD?, v{i}: weight bf16 EKD?,"
        );
        let _ = writeln!(
            text,
            "  o{i}: weight bf16 KGDE?, g{i}: weight bf16 EF?, u{i}: weight bf16 EF?,"
        );
        let _ = writeln!(
            text,
            "  d{i}: weight bf16 FE?, ks{i}: cache bf16 {cache}, vs{i}: cache bf16 {cache},"
        );
    }
    text += ") -> bf16 B_xLE? {\n";
    for i in 0..n {
        let arguments = format!("x{i}, q{i}, k{i}, v{i}, o{i}, g{i}, u{i}, d{i}, ks{i}, vs{i}");
        let _ = writeln!(text, "  let (x{}, keys{i}, values{i}) = block({arguments})", i + 1);
    }
    text + &format!("  return x{n}\n}}\n")
}

/// The layouts that the weights of branches want, in turn.
const WANTED: [&str; 8] =
    ["E_xF_yz", "E_yF_xz", "E_zF_xy", "EF_xyz", "E_xyzF", "E_xyF_z", "E_yzF_x", "E_xF_zy"];

/// One value, and products with weights of ever other layouts.
fn mismatched(n: usize) -> String {
    let mut text = head("x=4, y=4, z=4", &[("B", 512), ("E", 8192), ("F", 8192)]);
    text += "layer branches(\n  x: bf16 B_xE_y,\n";
    for i in 0..n {
        let _ = writeln!(text, "  w{i}: weight bf16 {},", WANTED[i % WANTED.len()]);
    }
    text += ") -> bf16 B_xF_y {\n";
    for i in 0..n {
        let _ = writeln!(text, "  let h{i} = gelu(einsum(x, w{i} -> BF))");
    }
    let sum: Vec<String> = (0..n).map(|i| format!("h{i}")).collect();
    text + &format!("  return {}\n}}\n", sum.join(" + "))
}
