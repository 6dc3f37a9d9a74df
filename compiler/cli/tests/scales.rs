//! Weights in blocks: a product with their scales is one op, however axes split it.

use crate::common::{fed, shardc};

/// The layers differ in whether a dim that is summed is split, in whether the weight or its other
/// operand moves, and in what one scale covers: 32 numbers of a column, 32 whole rows, or a square.
const LAYERS: &str = "hardware tpu-v5p
mesh x=2, y=4
dim B = 64
dim W = 32
dim E = 4096
dim K = E / W
dim F = 8192
dim V = 128
dim F1 = F / V
dim E1 = E / V
dim W1 = 128

layer split_sum(x: bf16 BE_y, w: weight f4 K_yWF_x, s: weight f8 K_yF_x) -> bf16 BF_x {
  return einsum(split(x, E -> KW), w, s -> BF)
}

layer gathered(x: bf16 B_xyE, w: weight f4 K_yWF_x, s: weight f8 KF) -> bf16 B_yxF {
  return gelu(einsum(split(x, E -> KW), w, s -> BF))
}

layer rows(x: bf16 BE_y, w: weight int8 K_yWF, s: weight f32 K_y) -> bf16 BF_y {
  return einsum(split(x, E -> KW), w, s -> BF : bf16)
}

layer open(
  x:  bf16 BE_y?,
  w:  weight f4 KWF?,
  s:  weight f8 KF?,
  w2: weight int4 F1VE?,
  s2: weight bf16 F1E?,
) -> bf16 BE_y? {
  let h = gelu(einsum(split(x, E -> KW), w, s -> BF))
  return einsum(split(h, F -> F1V), w2, s2 -> BE)
}

layer squares(x: bf16 B_xE_y, w: weight f8 E1VF1W1?, s: weight f32 E1F1?) -> bf16 B_xF_y? {
  return merge(einsum(split(x, E -> E1V), w, s -> BF1W1 : bf16), F1W1 -> F)
}
";

#[test]
fn a_product_with_scales_is_computed_as_written_in_every_plan() {
    for loops in [&[][..], &["--fuse"]] {
        let ran = fed(&[&["run", "--tolerance", "1e-5"], loops, &["-"]].concat(), LAYERS);
        assert_eq!(
            (ran.status, ran.out.matches(": equal").count()),
            (0, 5),
            "{}{}",
            ran.err,
            ran.out
        );
    }
}

#[test]
fn a_product_with_scales_is_one_op_and_the_checker_says_that_no_plan_is_faster() {
    let scratch = std::env::temp_dir().join(format!("shardc-scales-{}", std::process::id()));
    std::fs::create_dir_all(&scratch).expect("a folder");
    for loops in [&[][..], &["--fuse"]] {
        let path = scratch.join("certificate.json");
        let path = path.to_str().expect("UTF-8");
        let asked = ["explain", "--no-alternatives", "--certificate", path];
        let ran = fed(&[&asked[..], loops, &["-"]].concat(), LAYERS);
        assert_eq!(ran.out.matches("proven by certificate").count(), 5, "{}{}", ran.err, ran.out);
        for product in ["einsum BKW,KWF,KF->BF", "einsum BKW,KWF,K->BF", "einsum BF1V,F1VE,F1E->BE"]
        {
            assert!(ran.out.contains(product), "no {product} in\n{}", ran.out);
        }
        let ran = shardc(&["verify-certificate", path]);
        assert_eq!(
            (ran.status, ran.out.matches(": proven").count()),
            (0, 5),
            "{}{}",
            ran.err,
            ran.out
        );
    }
    std::fs::remove_dir_all(&scratch).expect("the folder");
}

#[test]
fn a_written_plan_with_scales_is_read_back_as_the_same_program() {
    let scratch = std::env::temp_dir().join(format!("shardc-scales-fmt-{}", std::process::id()));
    std::fs::create_dir_all(&scratch).expect("a folder");
    let path = scratch.join("explicit.shard");
    std::fs::write(&path, LAYERS).expect("the file");
    let name = path.to_str().expect("UTF-8");
    assert_eq!(shardc(&["fmt", "--explicit", name]).status, 0);
    let costs = |text: &str| {
        let ran = fed(&["explain", "--no-alternatives", "-"], text);
        let lines = ran.out.lines().filter(|line| line.starts_with("proven")).map(str::to_string);
        lines.collect::<Vec<_>>()
    };
    let explicit = std::fs::read_to_string(&path).expect("the file");
    assert_eq!((costs(&explicit).len(), costs(&explicit)), (5, costs(LAYERS)), "{explicit}");
    std::fs::remove_dir_all(&scratch).expect("the folder");
}
