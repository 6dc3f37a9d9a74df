//! The forms of small programs: which there are, and that every one computes the same.

use std::collections::BTreeMap;

use shard_check::{CheckOptions, check_source};
use shard_grammar::SourceFile;
use shard_ir::reason::{Formula, Rewriting};
use shard_ir::{Def, Op, Plan, Program};
use shard_runtime::{Arithmetic, Random, RunOptions, Tensor, run_plan};

use super::graph::Logical;
use super::{Form, LAWS, Saturated, forms, saturate};
use crate::rules;
use crate::{Limits, SearchLimit};

fn program(source: &str) -> Program {
    let mut checked = check_source(&SourceFile::new("test", source), &CheckOptions::default());
    let errors: Vec<_> =
        checked.diagnostics.iter().filter(|d| d.is_error()).map(|d| &d.message).collect();
    assert!(errors.is_empty(), "{errors:?}\n{source}");
    checked.programs.swap_remove(checked.roots[0])
}

fn of(source: &str) -> Vec<Form> {
    let forms = forms(&program(source), false, &Limits::default());
    assert_eq!(forms.cut, None);
    forms.all
}

/// The programs that the tests of soundness are about: one or more for each rule, and some for
/// several at once. Dims are `A` to `E`, with sizes that a test chooses.
pub(super) const PROGRAMS: &[&str] = &[
    // Long einsums, with dims that stay, vanish early, and vanish late.
    "a: f32 AB, b: f32 BC, c: f32 CD) -> f32 AD {\n return einsum(a, b, c -> AD)\n}",
    "a: f32 AB, b: f32 ABC, c: f32 CD) -> f32 AD {\n return einsum(a, b, c -> AD)\n}",
    "a: f32 AB, b: f32 C, c: f32 D) -> f32 A {\n return einsum(a, b, c -> A)\n}",
    "a: f32 AB, b: f32 BC, c: f32 CD, d: f32 DE) -> f32 EA {\n return einsum(a, b, c, d -> EA)\n}",
    // Weights in blocks with their scales, which are one product; and what is almost that.
    "a: f32 ABC, w: weight int8 BCD, s: weight f32 BD) -> f32 AD {
 return einsum(a, w, s -> AD)\n}",
    "a: f32 ABC, w: weight int8 BCD, s: weight f32 B) -> f32 A {
 return sum(einsum(a, s, w -> AD) over D)\n}",
    "a: f32 ABC, w: weight int8 BCD, s: weight f32 D) -> f32 AD {
 return einsum(a, w, s -> AD)\n}",
    "a: f32 ABC, w: weight int8 BCD, s: f32 BD) -> f32 AD {\n return einsum(a, w, s -> AD)\n}",
    // Chains.
    "a: f32 AB, b: f32 BC, c: f32 CD) -> f32 AD {\n let h = einsum(a, b -> AC)\n return einsum(h, \
        c -> AD)\n}",
    "a: f32 AB, b: f32 BC, c: f32 CD) -> f32 AD {\n let h = einsum(b, c -> BD)\n return einsum(h, \
        a -> AD)\n}",
    "a: f32 AB, b: f32 BC, c: f32 CD, d: f32 DE) -> f32 AE {
 let h = einsum(a, b -> AC)\n let g = einsum(h, c -> AD)\n return einsum(g, d -> AE)\n}",
    "a: f32 AB, b: f32 BC, c: f32 CD) -> (y: f32 AD, h: f32 AC) {
 let h = einsum(a, b -> AC)\n return (einsum(h, c -> AD), h)\n}",
    "a: f32 AB, b: f32 BC, c: f32 AC) -> f32 A {\n let h = einsum(a, b -> AC)\n return einsum(h, \
        c -> A)\n}",
    "a: f32 AB, b: f32 BC, c: f32 C) -> f32 AC {\n let h = einsum(a, b -> AC)\n return einsum(h, \
        c -> AC)\n}",
    // The `B` that the inner einsum sums over is not the `B` outside.
    "a: f32 AB, b: f32 BC, c: f32 CB) -> f32 AB {\n let h = einsum(a, b -> AC)\n return einsum(h, \
        c -> AB)\n}",
    // Accumulated in f32, where the operands alone would give bf16.
    "a: bf16 AB, b: bf16 BC, c: bf16 CD) -> f32 AD {\n return einsum(einsum(a, b -> AC : f32), c \
        -> AD)\n}",
    "a: bf16 AB, b: bf16 BC, c: bf16 CD) -> f32 AD {\n return einsum(a, b, c -> AD : f32)\n}",
    // Sums of einsums.
    "a: f32 AB, b: f32 BC) -> f32 A {\n return sum(einsum(a, b -> AC) over C)\n}",
    "a: f32 AB, b: f32 BC) -> f32 A {\n return einsum(einsum(a, b -> AC) -> A)\n}",
    "a: f32 AB, b: f32 BC) -> f32 CA {\n return einsum(einsum(a, b -> AC) -> CA)\n}",
    // Shared operands.
    "a: f32 AB, b: f32 BC, c: f32 BC) -> f32 AC {\n return einsum(a, b -> AC) + einsum(a, c -> \
        AC)\n}",
    "a: f32 AB, b: f32 BC, c: f32 BC) -> f32 AC {\n return einsum(a, b -> AC) - einsum(a, c -> \
        AC)\n}",
    "a: f32 AB, b: f32 AB, c: f32 BC) -> f32 AC {\n return einsum(a, c -> AC) + einsum(c, b -> \
        AC)\n}",
    "a: f32 AB, b: f32 BC, c: f32 BC, d: f32 AC) -> f32 AC {
 return einsum(a, b -> AC) + d + einsum(a, c -> AC)\n}",
    "a: f32 AB, b: f32 BC, c: f32 BC, d: f32 AC) -> f32 AC {
 return d - (einsum(a, b -> AC) - (d - einsum(a, c -> AC)))\n}",
    "a: f32 AB, b: f32 BC, c: f32 BC, d: f32 AB) -> f32 AC {
 return einsum(a, b -> AC) + einsum(a, c -> AC) - einsum(d, b -> AC) + einsum(d, c -> AC)\n}",
    "a: f32 AB, b: f32 BC, c: f32 BC) -> (y: f32 AC, z: f32 AC) {
 let h = einsum(a, b -> AC)\n return (h + einsum(a, c -> AC), h)\n}",
    "a: f32 AB, b: f32 BC, c: f32 CD, d: f32 BD) -> f32 AD {
 let h = einsum(a, b -> AC)\n return einsum(h, c -> AD) + einsum(a, d -> AD)\n}",
    "a: f32 AB, b: f32 BC) -> f32 AC {\n return einsum(a, b -> AC) + einsum(a, b -> AC)\n}",
    // A mask of one query.
    "a: f32 OB, b: f32 BC) -> f32 OC {\n return einsum(causal(a over O, B), b -> OC)\n}",
    "a: f32 OB, b: f32 BC) -> (y: f32 OC, z: f32 OC) {
 let s = relu(einsum(a, b -> OC))\n return (causal(s over O, C), s)\n}",
    // The first position of the largest.
    "a: f32 AB, b: f32 BC) -> int32 A {\n return argmax(einsum(a, b -> AC) over C)\n}",
    // Equal ops.
    "a: f32 AB, b: f32 BC, c: f32 BD) -> (y: f32 AC, z: f32 AD) {
 return (einsum(relu(a), b -> AC), einsum(relu(a), c -> AD))\n}",
    "a: f32 AB, b: f32 BA) -> f32 AB {\n let x = a + b\n let y = b + a\n return (a + a) * y + x + \
        (a + a)\n}",
    // Pins stay.
    "a: f32 AB, b: f32 BC, c: f32 CD) -> f32 AD {
 let h: f32 AC_x = einsum(a, b -> AC)\n return einsum(h, c -> AD)\n}",
    "a: f32 AB, b: f32 BC, c: f32 BC) -> f32 AC {
 let h: f32 AC = einsum(a, b -> AC)\n return h + einsum(a, c -> AC) + einsum(a, c -> AC)\n}",
    // Sums up to a position, recurrences and the largest few, of which each device has a part.
    "a: f32 BA) -> f32 BA {\n return cumsum(a over B)\n}",
    "a: int32 AB) -> (y: int32 BA, z: int32 AB) {\n let y = cumsum(a over B)\n return (y, cumsum(y over \
        A))\n}",
    "a: f32 ABC, f: f32 AB) -> f32 ABC {\n return scan(a, f over B)\n}",
    "a: f32 BC, f: f32 CB) -> f32 BC {\n return scan(cumsum(a over B), f over C)\n}",
    // What looks back along a dim: a few positions of each part are seen by the next.
    "a: f32 AB) -> f32 AB {\n return shift(a over B, 1)\n}",
    "a: f32 AB, w: f32 OA) -> f32 AB {\n return conv(shift(a over A, 1), w over B, O)\n}",
    "a: f32 BC, w: f32 A) -> f32 BC {\n return conv(a, w over B, A)\n}",
    "a: f32 AB) -> f32 AO {\n return topk(a over B -> O)\n}",
    "a: f32 AB) -> (y: f32 A, z: int32 OA) {\n return (sum(topk(a over B -> O) over O), argtopk(a \
        over B -> O))\n}",
];

pub(super) fn source(program: &str, sizes: [u64; 5]) -> String {
    let dims: String = ["A", "B", "C", "D", "E"]
        .iter()
        .zip(sizes)
        .map(|(d, s)| format!("dim {d} = {s}\n"))
        .collect();
    format!("mesh x=2\n{dims}dim O = 1\nlayer f({program}")
}

/// What a program computes of small whole numbers.
fn results(program: &Program) -> Vec<Tensor> {
    let plan = Plan::unsharded(program);
    shard_ir::verify::verify(&plan).expect("a legal plan");
    let mut random = Random::for_part(7, 0);
    let mut inputs = BTreeMap::new();
    for value in &program.values {
        if let (Def::Parameter { .. }, Some(name)) = (&value.def, &value.name) {
            let sizes: Vec<usize> =
                program.sizes(&value.dims).iter().map(|s| *s as usize).collect();
            let data = (0..sizes.iter().product()).map(|_| random.between(-2, 2) as f64).collect();
            inputs.insert(name.clone(), Tensor { sizes, data }.into());
        }
    }
    let report =
        run_plan(&plan, &RunOptions { inputs, ..RunOptions::default() }).expect("the plan runs");
    // What is masked is minus infinity, which is no whole number.
    let masks = |v: &shard_ir::Value| matches!(v.def, Def::Op { op: Op::Mask { .. }, .. });
    assert!(report.equal && (report.exact || program.values.iter().any(masks)));
    report.outputs.into_iter().map(|o| o.tensor).collect()
}

#[test]
fn every_form_computes_what_the_program_says() {
    let mut compared = 0;
    let mut met: BTreeMap<&str, usize> = BTreeMap::new();
    for text in PROGRAMS {
        for sizes in
            [[2, 2, 2, 2, 2], [4, 1, 2, 3, 1], [1, 2, 4, 2, 3], [2, 4, 1, 1, 2], [3, 2, 2, 5, 4]]
        {
            let source =
                source(text, sizes).replace("_x", if sizes[2] % 2 == 0 { "_x" } else { "" });
            let written = program(&source);
            let expected = results(&written);
            for form in of(&source) {
                assert_eq!(
                    results(&form.program),
                    expected,
                    "{source}\n{:#?}",
                    form.program.values
                );
                let stays = |p: &Program| {
                    let is = |d: &Def| matches!(d, Def::Parameter { .. } | Def::Pin { .. });
                    p.values
                        .iter()
                        .filter(|v| is(&v.def))
                        .map(|v| v.name.clone())
                        .collect::<Vec<_>>()
                };
                assert_eq!(stays(&form.program), stays(&written), "{source}");
                for made in form.made.values() {
                    *met.entry(made.rule.name).or_default() += 1;
                }
                compared += 1;
            }
        }
    }
    eprintln!("{compared} forms; {met:?}");
    let logical = rules::RULES.iter().filter(|r| r.family == rules::Family::Logical);
    assert!(logical.clone().all(|rule| met.contains_key(rule.name)), "{met:?}");
    assert_eq!(met.len(), logical.count());
    assert!(Arithmetic::Exact != Arithmetic::F32 && compared > 300, "{compared}");
}

fn chain(operands: usize, size: u64) -> String {
    let names: Vec<String> = (0..=operands).map(|i| format!("D{i}")).collect();
    let dims: String = names.iter().map(|d| format!("dim {d} = {size}\n")).collect();
    let parameters: Vec<String> =
        (0..operands).map(|i| format!("w{i}: f32 D{i}D{}", i + 1)).collect();
    let steps: String = (2..=operands)
        .map(|i| {
            let last = if i == 2 { "w0".to_string() } else { format!("h{}", i - 1) };
            format!(" let h{i} = einsum({last}, w{} -> D0D{i})\n", i - 1)
        })
        .collect();
    let parameters = parameters.join(", ");
    format!(
        "mesh x=2\n{dims}layer f({parameters}) -> f32 D0D{operands} {{\n{steps} return \
            h{operands}\n}}"
    )
}

#[test]
fn a_chain_of_square_einsums_has_as_many_forms_as_there_are_bracketings() {
    for (operands, catalan) in [(2, 1), (3, 2), (4, 5), (5, 14), (6, 42)] {
        assert_eq!(of(&chain(operands, 8)).len(), catalan);
    }
    let long = forms(&program(&chain(8, 8)), false, &Limits::default());
    assert_eq!((long.all.len(), long.cut.map(|c| c.limit)), (64, Some(SearchLimit::Forms)));
}

#[test]
fn a_long_chain_is_cut_by_a_count_and_says_so() {
    let long = forms(&program(&chain(40, 8)), false, &Limits::default());
    assert!(
        long.cut.is_some_and(|c| matches!(
            c.limit,
            SearchLimit::EnumeratedForms | SearchLimit::LogicalNodes
        )),
        "{:?}",
        long.cut
    );
}

#[test]
fn what_takes_more_than_twice_the_flops_is_no_form() {
    let chain = |b: u64| {
        of(&source(
            "a: f32 AB, b: f32 BC, c: f32 CD) -> f32 AD {\n return einsum(einsum(a, b -> AC), c \
                -> AD)\n}",
            [b, 64, 64, 64, 1],
        ))
    };
    // 2 * 64 (64 64 + 64 b) against 2 * 64 * 2 b: twice as many where b = 21.3.
    assert_eq!(chain(21).len(), 1);
    assert_eq!(chain(22).len(), 2);
}

#[test]
fn pins_types_and_names_of_dims_stop_the_rules() {
    for (text, count) in [
        // A pin between.
        (
            "a: f32 AB, b: f32 BC, c: f32 CD) -> f32 AD {\n let h: f32 AC = einsum(a, b -> AC)\n \
                return einsum(h, c -> AD)\n}",
            1,
        ),
        // No dim shared by `b` and `c`: an outer product.
        (
            "a: f32 AB, b: f32 B, c: f32 AD) -> f32 AD {\n let h = einsum(a, b -> A)\n return \
                einsum(h, c -> AD)\n}",
            1,
        ),
        // int8 with int8 is int32, and nothing that bfloat16 is multiplied with.
        (
            "a: bf16 AB, b: weight int8 BC, c: weight int8 CD) -> bf16 AD {
 return einsum(einsum(a, b -> AC), c -> AD)\n}",
            1,
        ),
        // The product of the two in bfloat16 would be rounded more.
        (
            "a: f32 AB, b: bf16 BC, c: bf16 CD) -> f32 AD {\n return einsum(einsum(a, b -> AC), c \
                -> AD)\n}",
            1,
        ),
        // A sum of int8 weights could overflow.
        (
            "a: bf16 AB, b: weight int8 BC, c: weight int8 BC) -> bf16 AC {
 return einsum(a, b -> AC) + einsum(a, c -> AC)\n}",
            1,
        ),
        (
            "a: bf16 AB, b: weight bf16 BC, c: weight bf16 BC) -> bf16 AC {
 return einsum(a, b -> AC) + einsum(a, c -> AC)\n}",
            2,
        ),
        // What is not linear lies between.
        (
            "a: f32 AB, b: f32 BC, c: f32 CD) -> f32 AD {\n return einsum(gelu(einsum(a, b -> \
                AC)), c -> AD)\n}",
            1,
        ),
    ] {
        assert_eq!(of(&source(text, [4, 4, 4, 4, 4])).len(), count, "{text}");
    }
}

#[test]
fn in_a_strict_layer_only_the_order_of_long_einsums_is_free() {
    for (text, count) in [
        (
            "a: f32 AB, b: f32 BC, c: f32 CD) -> f32 AD {\n return einsum(einsum(a, b -> AC), c \
                -> AD)\n}",
            1,
        ),
        ("a: f32 AB, b: f32 BC, c: f32 CD) -> f32 AD {\n return einsum(a, b, c -> AD)\n}", 3),
        ("a: f32 AB) -> f32 AB {\n return relu(a) + relu(a)\n}", 1),
    ] {
        let program = program(&source(text, [4, 4, 4, 4, 4]));
        assert_eq!(forms(&program, true, &Limits::default()).all.len(), count, "{text}");
    }
}

/// The others have three orders each, of which one is taken for the one written.
#[test]
fn a_product_with_a_weight_in_blocks_and_its_scales_is_one() {
    let args = |w: &str, s: &str| format!("a: f32 ABC, w: {w} BCD, s: {s}");
    let one = |args: String| {
        let text = format!("{args}) -> f32 AD {{\n return einsum(a, w, s -> AD)\n}}");
        let forms = of(&source(&text, [8, 8, 8, 8, 8]));
        let whole =
            |form: &Form| form.program.values.iter().any(|value| value.def.operands().len() == 3);
        (forms.len(), forms.iter().filter(|form| whole(form)).count())
    };
    for stored in ["f8", "f4", "int8", "int4"] {
        let w = format!("weight {stored}");
        for scales in ["weight f8 BD", "weight f32 BD", "weight host f32 B"] {
            assert_eq!(one(args(&w, scales)), (1, 1), "{stored} {scales}");
        }
        for scales in ["weight f32 D", "weight f32 BCD", "f32 BD", "cache f32 BD", "weight f32 AB"]
        {
            assert_eq!(one(args(&w, scales)), (3, 0), "{stored} {scales}");
        }
    }
    assert_eq!(one(args("weight bf16", "weight f32 BD")), (3, 0));
}

#[test]
fn transformer_blocks_and_feed_forward_layers_have_one_form() {
    for name in ["feed_forward", "palm", "llama"] {
        let path = format!("{}/benches/programs/{name}.shard", env!("CARGO_MANIFEST_DIR"));
        let text = std::fs::read_to_string(path).expect("the program");
        for text in [text.replace("dim L = 1\n", "dim L = 2048\n"), text] {
            let all = of(&text);
            assert_eq!((all.len(), all[0].rewritten), (1, false), "{name}");
        }
    }
}

#[test]
fn a_rewritten_value_says_why() {
    let forms = of(&source(
        "a: f32 AB, b: f32 BC, c: f32 CD) -> f32 AD {\n let h = einsum(a, b -> AC)\n let y = \
            einsum(h, c -> AD)\n return y\n}",
        [64, 4, 64, 4, 1],
    ));
    let made: Vec<_> = forms[1].made.values().map(|m| (m.rule.name, m.reason.clone())).collect();
    let named = |name: &str| Formula::Named(name.to_string());
    let product =
        |operands: [Formula; 2]| Formula::Op { op: Op::Einsum, operands: operands.to_vec() };
    let formula = product([named("a"), product([named("b"), named("c")])]);
    let reason = Rewriting::Computed { formula, flops: Some((4096.0, 65536.0)) };
    let rule = rules::REASSOCIATED.name;
    assert_eq!(made, [(rule, None), (rule, Some(reason))]);
}

#[test]
fn what_is_accumulated_in_f32_is_so_in_every_form() {
    // A long einsum is also the product of its outer two with the one between.
    for (body, count) in
        [("einsum(einsum(a, b -> AC : f32), c -> AD)", 2), ("einsum(a, b, c -> AD : f32)", 3)]
    {
        let text = format!("a: bf16 AB, b: bf16 BC, c: bf16 CD) -> f32 AD {{\n return {body}\n}}");
        let forms = of(&source(&text, [8, 8, 8, 8, 8]));
        assert_eq!(forms.len(), count, "{body}");
        for form in forms {
            let einsums = form.program.values.iter().filter(|v| matches!(v.def, Def::Op { .. }));
            assert!(
                einsums.clone().count() == 2
                    && einsums.into_iter().all(|v| v.dtype == shard_ir::Dtype::F32)
            );
        }
    }
}

#[test]
fn forms_do_not_hang_on_how_the_library_merges_classes() {
    let mut others = 0;
    for text in PROGRAMS {
        let program = program(&source(text, [4, 2, 4, 2, 4]));
        // Some limits end the rules within a round.
        for limit in [2, 5, 9, 4096] {
            let [one, other] = [false, true].map(|other_way| {
                let mut logical = Logical::merged(&program, other_way);
                let all = saturate(&mut logical, LAWS, limit);
                Saturated {
                    logical,
                    cut: (!all).then_some(SearchLimit::LogicalNodes),
                    strict: false,
                }
            });
            assert_eq!(one.cut, other.cut, "{text}");
            assert_eq!(one.logical.classes(), other.logical.classes(), "{text}");
            for class in one.logical.classes() {
                assert_eq!(one.logical.nodes(class), other.logical.nodes(class), "{text}");
            }
            let [one_forms, other_forms] =
                [&one, &other].map(|one| format!("{:?}", one.forms(&Limits::default())));
            assert_eq!(one_forms, other_forms, "{text}");
            others += usize::from(one.logical.ids() != other.logical.ids());
        }
    }
    assert!(others > PROGRAMS.len(), "{others} e-graphs were merged in another way");
}
