//! The reshards and the programs.

/// From, to, the mesh and the dims: one value, moved between two pinned layouts.
const RESHARDS: &[(&str, &str, &str, &str)] = &[
    // One axis.
    ("B_xE", "BE_x", "x=4", "B=64 E=256"),
    ("BE_x", "BE", "x=4", "B=64 E=256"),
    ("BE", "B_xE", "x=4", "B=64 E=256"),
    ("B_xE", "BE_x", "x=8", "B=64 E=256"),
    // Two axes of one size.
    ("B_xyE", "BE_xy", "x=4, y=4", "B=64 E=256"),
    ("B_xyE", "BE_yx", "x=4, y=4", "B=64 E=256"),
    ("B_xyE", "B_yxE", "x=4, y=4", "B=64 E=256"),
    ("B_xyE", "B_xE_y", "x=4, y=4", "B=64 E=256"),
    ("B_xyE", "B_yE_x", "x=4, y=4", "B=64 E=256"),
    ("B_xE_y", "B_yE_x", "x=4, y=4", "B=64 E=256"),
    ("B_xE_y", "B_xyE", "x=4, y=4", "B=64 E=256"),
    ("B_xE_y", "B_yxE", "x=4, y=4", "B=64 E=256"),
    ("B_xE", "B_yE", "x=4, y=4", "B=64 E=256"),
    ("B_xE", "BE_y", "x=4, y=4", "B=64 E=256"),
    ("B_xE", "B_yE_x", "x=4, y=4", "B=64 E=256"),
    ("B_xE", "B_yxE", "x=4, y=4", "B=64 E=256"),
    ("B_xyE", "BE", "x=4, y=4", "B=64 E=256"),
    ("B_xE_y", "BE", "x=4, y=4", "B=64 E=256"),
    ("B_xyE", "B_yE", "x=4, y=4", "B=64 E=256"),
    ("B_xyE", "BE_y", "x=4, y=4", "B=64 E=256"),
    ("B_xE_y", "BE_x", "x=4, y=4", "B=64 E=256"),
    // Two axes of different sizes.
    ("B_xE_y", "B_yE_x", "x=8, y=2", "B=64 E=256"),
    ("B_xyE", "B_yxE", "x=8, y=2", "B=64 E=256"),
    ("B_xyE", "B_yE_x", "x=8, y=2", "B=64 E=256"),
    ("B_xyE", "B_yE_x", "x=2, y=8", "B=64 E=256"),
    ("B_xE_y", "B_yxE", "x=8, y=2", "B=64 E=256"),
    ("B_xE", "B_yE", "x=8, y=2", "B=64 E=256"),
    ("B_yE", "B_xE", "x=8, y=2", "B=64 E=256"),
    ("B_xE", "BE_y", "x=8, y=2", "B=64 E=256"),
    ("B_xyE", "BE_yx", "x=8, y=2", "B=64 E=256"),
    ("B_xE_y", "B_yE_x", "x=2, y=3", "B=60 E=252"),
    ("B_xyE", "B_yxE", "x=2, y=3", "B=60 E=252"),
    ("B_xyE", "B_yE_x", "x=2, y=3", "B=60 E=252"),
    ("B_xE", "B_yE", "x=2, y=3", "B=60 E=252"),
    // Three axes.
    ("B_xyzE", "BE_xyz", "x=4, y=4, z=4", "B=64 E=256"),
    ("B_xyzE", "BE_zyx", "x=4, y=4, z=4", "B=64 E=256"),
    ("B_xyzE", "B_zyxE", "x=4, y=4, z=4", "B=64 E=256"),
    ("B_xyzE", "B_zE_xy", "x=4, y=4, z=4", "B=64 E=256"),
    ("B_xyE_z", "B_zE_xy", "x=4, y=4, z=4", "B=64 E=256"),
    ("B_xE_yz", "B_yzE_x", "x=4, y=4, z=4", "B=64 E=256"),
    ("B_xyE_z", "B_yzE_x", "x=4, y=2, z=2", "B=64 E=256"),
    ("B_xE_y", "B_yE_z", "x=4, y=4, z=4", "B=64 E=256"),
    ("B_xyE", "BE_z", "x=4, y=4, z=4", "B=64 E=256"),
    ("B_xE_yz", "B_zE_y", "x=4, y=4, z=4", "B=64 E=256"),
    ("B_xE_yz", "BE", "x=4, y=4, z=4", "B=64 E=256"),
    // Three dims: heads, queries and caches.
    ("B_xLE_y", "BL_yE_x", "x=4, y=4", "B=64 L=128 E=256"),
    ("B_xL_yE", "BL_xE_y", "x=4, y=4", "B=64 L=128 E=256"),
    ("B_xL_yE_z", "B_zL_xE_y", "x=2, y=2, z=2", "B=64 L=128 E=256"),
    ("B_xL_yE_z", "B_zL_xE_y", "x=4, y=2, z=2", "B=64 L=128 E=256"),
    ("B_xyLE", "BL_xE_y", "x=4, y=4", "B=64 L=128 E=256"),
    ("BL_xE_y", "B_xyLE", "x=4, y=4", "B=64 L=128 E=256"),
    ("B_xyLE", "BL_xE_y", "x=8, y=2", "B=64 L=128 E=256"),
    // Grouped queries: K groups of G heads; there are fewer groups than devices.
    ("BK_xyG", "BK_xG_y", "x=4, y=2", "B=64 K=8 G=8"),
    ("BK_xG_y", "B_yK_xG", "x=4, y=2", "B=64 K=8 G=8"),
    ("BK_xG_y", "B_xyKG", "x=4, y=2", "B=64 K=8 G=8"),
    ("BK_xG_y", "B_yxKG", "x=4, y=2", "B=64 K=8 G=8"),
    ("BK_yG_x", "BK_xG_y", "x=4, y=2", "B=64 K=8 G=8"),
    ("B_yK_xG", "B_xK_yG", "x=4, y=2", "B=64 K=8 G=8"),
    ("B_xyKG", "BK_yG_x", "x=4, y=2", "B=64 K=8 G=8"),
    // Unembeddings: scores over the vocabulary to scores over the batch.
    ("BV_xy", "B_xyV", "x=4, y=4", "B=64 V=512"),
    ("BV_xy", "B_yxV", "x=4, y=4", "B=64 V=512"),
    ("B_xV_y", "B_yV_x", "x=4, y=4", "B=64 V=512"),
    ("B_xV_y", "B_xyV", "x=8, y=4", "B=64 V=512"),
    ("BV_xyz", "B_zyxV", "x=4, y=2, z=2", "B=64 V=512"),
    ("BV_xyz", "B_zV_xy", "x=4, y=2, z=2", "B=64 V=512"),
    // Experts: tokens to the devices of their expert, and back.
    ("XC_xyE", "X_xyCE", "x=4, y=4", "X=16 C=64 E=128"),
    ("XC_xyE", "X_xCE_y", "x=4, y=4", "X=16 C=64 E=128"),
    ("XC_xyE", "X_yCE_x", "x=4, y=4", "X=16 C=64 E=128"),
    ("X_xyCE", "XC_yxE", "x=4, y=4", "X=16 C=64 E=128"),
    ("X_xC_yE", "X_yCE_x", "x=4, y=4", "X=16 C=64 E=128"),
    ("X_xCE_y", "X_yC_xE", "x=4, y=2", "X=16 C=64 E=128"),
];

fn header(mesh: &str, dims: &str) -> String {
    let dims: String =
        dims.split(' ').map(|dim| format!("dim {}\n", dim.replace('=', " = "))).collect();
    format!("hardware tpu-v4-flat\nmesh {mesh}\n\n{dims}\n")
}

pub(crate) fn reshards() -> Vec<(String, String)> {
    let case = |(from, to, mesh, dims): &(&str, &str, &str, &str)| {
        let layer = format!("layer f(v: bf16 {from}) -> bf16 {to} {{\n  return v\n}}\n");
        (format!("{from} {to} on {mesh}"), header(mesh, dims) + &layer)
    };
    RESHARDS.iter().map(case).collect()
}

/// Einsums one after another, each weight in a layout: the mesh, the layout of the input, those of
/// the weights, and that of the result.
const CHAINS: &[(&str, &str, &[&str], &str)] = &[
    ("x=4, y=4", "BE_xy", &["E_xF_y", "F_yE_x"], "BE_xy"),
    ("x=4, y=4", "B_xyE", &["E_xF_y", "F_yE_x"], "B_xyE"),
    ("x=4, y=4", "B_xE_y", &["E_xF_y", "F_yE_x"], "B_yE_x"),
    ("x=4, y=4", "B_xE_y", &["E_yF_x", "F_xE_y"], "B_xE_y"),
    ("x=4, y=4", "B_xE", &["EF_y", "F_yE"], "B_xE"),
    ("x=4, y=4", "B_xE", &["EF_y", "FE_y"], "B_xE_y"),
    ("x=8, y=2", "BE_xy", &["E_xF_y", "F_yE_x"], "BE_yx"),
    ("x=8, y=2", "B_yE_x", &["E_xF_y", "F_yE_x"], "B_xE_y"),
    ("x=8, y=2", "B_xyE", &["EF_xy", "F_xyE"], "B_yxE"),
    ("x=8, y=2", "BE", &["E_xF_y", "F_xE_y"], "BE"),
    ("x=4, y=4, z=4", "BE_xyz", &["E_xF_yz", "F_yzE_x"], "BE_xyz"),
    ("x=4, y=4, z=4", "B_xyE_z", &["E_xF_yz", "F_yzE_x"], "B_zE_xy"),
    ("x=4, y=4, z=4", "B_xE_yz", &["E_yzF_x", "F_xE_yz"], "B_yzE_x"),
    ("x=4, y=2, z=2", "B_xE_yz", &["E_yF_xz", "F_zxE_y"], "B_yzE_x"),
    ("x=4, y=4", "BE_xy", &["E_xF_y", "F_xE_y", "E_xF_y"], "BF_xy"),
    ("x=4, y=4", "BE_xy", &["E_xyF", "FE_xy", "E_xyF"], "BF_xy"),
    ("x=4, y=4", "B_xE_y", &["EF_xy", "F_yxE", "EF_xy", "F_yxE"], "B_yE_x"),
];

/// A value that is moved for two readers: the mesh, the layout of the input, the weight of each
/// reader, the result of each.
const PROJECTIONS: &[(&str, &str, [&str; 2], [&str; 2])] = &[
    ("x=4, y=4", "BE_xy", ["E_xF_y", "E_yF_x"], ["BF_xy", "BF_yx"]),
    ("x=4, y=4", "B_xE_y", ["E_xF_y", "E_yF_x"], ["B_xF_y", "B_yF_x"]),
    ("x=4, y=4", "B_xyE", ["EF_xy", "E_xyF"], ["BF_xy", "B_xyF"]),
    ("x=4, y=4", "B_xyE", ["E_xF_y", "E_xF_y"], ["B_xyF", "B_yxF"]),
    ("x=8, y=2", "BE_xy", ["E_xF_y", "E_yF_x"], ["BF_xy", "BF_yx"]),
    ("x=8, y=2", "B_xE_y", ["E_xF_y", "E_yF_x"], ["B_xF_y", "B_yF_x"]),
    ("x=8, y=2", "B_xyE", ["EF_xy", "E_xyF"], ["BF_xy", "B_xyF"]),
    ("x=4, y=4, z=4", "BE_xyz", ["E_xF_yz", "E_yzF_x"], ["BF_xyz", "B_xyzF"]),
    ("x=4, y=4, z=4", "B_xyzE", ["E_xF_yz", "E_yzF_x"], ["B_zyxF", "B_xF_yz"]),
    ("x=4, y=2, z=2", "B_xE_yz", ["E_yzF_x", "E_xF_yz"], ["B_yzF_x", "B_xF_yz"]),
    ("x=4, y=4", "B_xE_y", ["E_yF", "EF_y"], ["BF_xy", "B_yF_x"]),
    ("x=4, y=4", "BE", ["E_xyF", "EF_xy"], ["BF", "B_xyF"]),
];

/// Attention of grouped queries: the mesh, the layout of queries, that of stored keys, and that of
/// the result.
const GROUPED: &[(&str, &str, &str, &str)] = &[
    ("x=4, y=2", "BK_xG_yQ", "B_xyKSQ", "BK_xG_yQ"),
    ("x=4, y=2", "BK_xG_yQ", "B_yxKSQ", "BK_xG_yQ"),
    ("x=4, y=2", "BK_xG_yQ", "B_yK_xSQ", "BK_xyGQ"),
    ("x=4, y=2", "B_xyKGQ", "BK_xSQ", "B_xyKGQ"),
    ("x=4, y=2", "B_xyKGQ", "BK_xyQS", "BK_xG_yQ"),
    ("x=4, y=2", "BK_yG_xQ", "B_yK_xSQ", "B_xK_yGQ"),
    ("x=4, y=4", "BK_xG_yQ", "B_xyKSQ", "BK_xG_yQ"),
    ("x=4, y=4", "BK_xG_yQ", "B_yK_xSQ", "BK_yG_xQ"),
    ("x=4, y=4", "B_xK_yGQ", "B_yK_xSQ", "B_xK_yGQ"),
    ("x=2, y=2, z=2", "BK_xyG_zQ", "B_xyzKSQ", "BK_xyG_zQ"),
    ("x=2, y=2, z=2", "BK_xyG_zQ", "B_zK_xySQ", "B_zyK_xGQ"),
    ("x=2, y=2, z=2", "B_xyK_zGQ", "B_zyK_xSQ", "B_xyK_zGQ"),
];

pub(crate) fn programs() -> Vec<(String, String)> {
    let bare = |layout: &str| layout.chars().filter(|c| c.is_ascii_uppercase()).collect::<String>();
    let mut all = Vec::new();
    for (mesh, input, weights, output) in CHAINS {
        let mut layer = format!("layer f(\n  h0: bf16 {input},\n");
        weights
            .iter()
            .enumerate()
            .for_each(|(i, w)| layer += &format!("  w{i}: weight bf16 {w},\n"));
        layer += &format!(") -> bf16 {output} {{\n");
        for (i, w) in weights.iter().enumerate() {
            let dim = bare(w).pop().unwrap_or('E');
            layer += &format!("  let h{} = gelu(einsum(h{i}, w{i} -> B{dim}))\n", i + 1);
        }
        layer += &format!("  return h{}\n}}\n", weights.len());
        let name = format!("chain {input} {} {output} on {mesh}", weights.join(" "));
        all.push((name, header(mesh, "B=256 E=512 F=1024") + &layer));
    }
    for (mesh, input, [a, b], [one, other]) in PROJECTIONS {
        let layer = format!(
            "layer f(\n  x: bf16 {input},\n  a: weight bf16 {a},\n  b: weight bf16 {b},\n) -> \
                (one: bf16 {one}, other: bf16 {other}) {{\n  \
             let p = einsum(x, a -> BF)\n  let q = einsum(x, b -> BF)\n  return (p, q)\n}}\n"
        );
        all.push((
            format!("two of {input}: {a} {one}, {b} {other} on {mesh}"),
            header(mesh, "B=256 E=512 F=1024") + &layer,
        ));
    }
    for (mesh, queries, keys, output) in GROUPED {
        let layer = format!(
            "layer f(\n  q: bf16 {queries},\n  k: cache bf16 {keys},\n  v: cache bf16 {keys},\n) \
                -> bf16 {output} {{\n  \
             let p = softmax(einsum(q, k -> BKGS) over S)\n  return einsum(p, v -> BKGQ)\n}}\n"
        );
        all.push((
            format!("grouped {queries} {keys} {output} on {mesh}"),
            header(mesh, "B=64 K=8 G=8 Q=32 S=128") + &layer,
        ));
    }
    all
}
