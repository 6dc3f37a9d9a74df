//! The verifier names the instruction that is wrong, whatever is wrong with it.

use shard_ir::text::parse;
use shard_ir::verify::{VerifyErrorKind, verify};
use shard_ir::*;

fn plans() -> Vec<Plan> {
    parse(include_str!("plans.shir")).unwrap_or_else(|e| panic!("{e}"))
}

/// Whether the verifier's first complaint is about this instruction.
fn blames(plan: &Plan, id: InstrId) -> bool {
    verify(plan).is_err_and(|errors| errors[0].id == Some(id))
}

#[test]
fn every_wrong_layout_is_found() {
    for plan in plans() {
        for id in
            plan.ids().filter(|id| !matches!(plan.instruction(*id).kind, InstrKind::Parameter(_)))
        {
            let sizes = plan.sizes(&plan.instruction(id).dims);
            let shape = MeshShape { mesh: &plan.mesh, sizes: &sizes };
            let all = plan.mesh.all_axes();
            let mut tried = 0;
            for layout in shape.layouts(all, all).into_iter().step_by(7) {
                if layout != plan.instruction(id).layout {
                    let mut mutant = plan.clone();
                    mutant.instructions[id.index()].layout = layout;
                    assert!(blames(&mutant, id), "{} %{} as {layout:?}", plan.name, id.0);
                    tried += 1;
                }
            }
            assert!(tried > 0 || plan.instruction(id).dims.is_empty());
        }
    }
}

#[test]
fn every_wrong_dtype_is_found() {
    for plan in plans() {
        for id in plan.ids() {
            let instr = plan.instruction(id);
            // A parameter or constant of another dtype is legal by itself; an instruction that
            // reads it is not.
            let free = matches!(instr.kind, InstrKind::Parameter(_) | InstrKind::Constant(_));
            let is_einsum = instr.kind.op() == Some(&Op::Einsum);
            for dtype in Dtype::ALL.into_iter().filter(|d| *d != instr.dtype) {
                let mut mutant = plan.clone();
                mutant.instructions[id.index()].dtype = dtype;
                // An einsum that is accumulated in another float, or in int32, is legal, too.
                let accumulated = is_einsum
                    && (instr.dtype.is_float() && dtype.is_float()
                        || dtype == Dtype::Int32 && !instr.dtype.is_float());
                if !free && !accumulated {
                    assert!(blames(&mutant, id), "{} %{} as {dtype}", plan.name, id.0);
                }
            }
        }
    }
}

#[test]
fn every_operand_that_is_not_earlier_is_found() {
    for plan in plans() {
        for id in plan.ids() {
            for operand in 0..plan.instruction(id).operands.len() {
                for wrong in [id.0, id.0 + 1, u32::MAX] {
                    let mut mutant = plan.clone();
                    mutant.instructions[id.index()].operands[operand] = InstrId(wrong);
                    let errors = verify(&mutant).unwrap_err();
                    assert_eq!(errors[0].id, Some(id));
                    assert_eq!(errors[0].kind, VerifyErrorKind::OperandNotEarlier(InstrId(wrong)));
                }
            }
        }
    }
}

#[test]
fn another_operand_is_found_or_is_of_the_same_type() {
    for plan in plans() {
        for id in plan.ids() {
            for operand in 0..plan.instruction(id).operands.len() {
                for other in (0..id.0).map(InstrId) {
                    let mut mutant = plan.clone();
                    let was = mutant.instructions[id.index()].operands[operand];
                    mutant.instructions[id.index()].operands[operand] = other;
                    let (a, b) = (plan.instruction(was), plan.instruction(other));
                    let same_type = (&a.dims, a.dtype, a.layout) == (&b.dims, b.dtype, b.layout);
                    if same_type {
                        assert_eq!(verify(&mutant), Ok(()));
                    } else if let Err(errors) = verify(&mutant) {
                        assert_eq!(errors[0].id, Some(id), "%{}: {}", id.0, errors[0]);
                    }
                }
            }
        }
    }
}

#[test]
fn a_missing_or_extra_operand_is_found() {
    for plan in plans() {
        for id in plan.ids().skip(1) {
            let einsum = plan.instruction(id).kind == InstrKind::Op(Op::Einsum);
            let mut extra = plan.clone();
            extra.instructions[id.index()].operands.push(InstrId(0));
            assert!(einsum || blames(&extra, id), "%{}", id.0);
            let mut missing = plan.clone();
            if missing.instructions[id.index()].operands.pop().is_some() {
                assert!(blames(&missing, id), "%{}", id.0);
            }
        }
    }
}

#[test]
fn dims_and_axes_that_do_not_exist_are_found() {
    let plan = &plans()[0];
    for id in plan.ids() {
        let mut mutant = plan.clone();
        mutant.instructions[id.index()].dims[0] = DimId(999);
        assert!(blames(&mutant, id));
        let mut mutant = plan.clone();
        mutant.instructions[id.index()].dims[0] = mutant.instructions[id.index()].dims[1];
        assert!(blames(&mutant, id));
        let mut mutant = plan.clone();
        let instr = &mut mutant.instructions[id.index()];
        instr.layout = instr.layout.with_partial(AxisId(7), Reduction::Sum);
        assert!(blames(&mutant, id));
        let mut mutant = plan.clone();
        let instr = &mut mutant.instructions[id.index()];
        instr.kind = InstrKind::Move(Collective::AllReduce {
            kind: Reduction::Sum,
            axes: AxisSet::EMPTY.with(AxisId(5)),
        });
        assert!(blames(&mutant, id));
    }
}

#[test]
fn sizes_that_no_longer_divide_are_found() {
    for size in [1, 2, 63, 65] {
        let mut plan = plans().remove(0);
        plan.dims[2].size = size;
        plan.dims[2].useful = 1;
        assert!(blames(&plan, InstrId(0)), "E={size}");
    }
}

#[test]
fn a_broken_table_of_dims_or_result_is_found() {
    let plan = plans().remove(0);
    for (size, useful) in [(0, 0), (4, 5), (4, 0), (u64::MAX, 1)] {
        let mut mutant = plan.clone();
        mutant.dims[0] = Dim { name: "B".to_string(), size, useful };
        assert_eq!(
            verify(&mutant).unwrap_err()[0].to_string(),
            format!("dim B has size {size} and useful size {useful}")
        );
    }
    let mut mutant = plan.clone();
    mutant.dims[1].name = "B".to_string();
    assert_eq!(verify(&mutant).unwrap_err()[0].to_string(), "dim B is declared twice");
    let mut mutant = plan.clone();
    mutant.outputs[0].dims.pop();
    assert_eq!(
        verify(&mutant).unwrap_err()[0].to_string(),
        "result y is not a permutation of the dims of an instruction"
    );
    let mut mutant = plan.clone();
    mutant.outputs[0].id = InstrId(10);
    assert!(verify(&mutant).is_err());
    let mut mutant = plan;
    mutant.dims[0].size = 1 << 40;
    mutant.dims[3].size = 1 << 40;
    assert_eq!(verify(&mutant).unwrap_err()[0].id, Some(InstrId(4)));
}

#[test]
fn errors_speak_the_words_of_the_field() {
    let mut plan = plans().remove(0);
    plan.instructions[4].layout = plan.instructions[4].layout.with_replicated(AxisId(0));
    let errors = verify(&plan).unwrap_err();
    assert_eq!(
        errors[0].to_string(),
        "%4 einsum: the result's layout is BLF_yz(partialsum-x), written BLF_yz"
    );
    // The next instruction is checked against the written layout, so it is wrong, too: the partial
    // sum is gone.
    assert_eq!(
        errors[1].to_string(),
        "%5 reduce-scatter: the operand is not partial over mesh axis x in this way"
    );
}

macro_rules! complains {
    ($($name:ident: $lines:literal => $message:literal;)+) => {$(
        #[test]
        fn $name() {
            let text = format!("shir 1\nlayer l\nmesh x=2, y=4\ndims B=8, E=8, F=8, K=2, G=4, \
                L=2\n{}", $lines);
            let plan = parse(&text).unwrap_or_else(|e| panic!("{e}")).remove(0);
            assert_eq!(verify(&plan).unwrap_err()[0].to_string(), $message);
        }
    )+};
}

complains! {
    gelu_of_a_partial_sum: "%0 = parameter a : f32 BE(partialsum-x)\n%1 = gelu %0 : f32 \
        BE(partialsum-x)\n"
        => "%1 map: the op is not linear in %0, which is partialsum-x";
    neg_of_a_partial_max: "%0 = parameter a : f32 BE(partialmax-x)\n%1 = neg %0 : f32 \
        BE(partialmax-x)\n"
        => "%1 map: the op does not commute with a maximum in %0, which is partialmax-x";
    log_of_a_partial_max: "%0 = parameter a : f32 B(partialmax-x)\n%1 = log %0 : f32 \
        B(partialmax-x)\n"
        => "%1 map: the op does not commute with a maximum in %0, which is partialmax-x";
    a_bias_added_to_a_partial_sum: "%0 = parameter a : f32 BE(partialsum-y)\n%1 = parameter b : \
        f32 E\n%2 = add %0, %1 : f32 BE(partialsum-y)\n"
        => "%2 binary: %1 is not partial over mesh axis y: it would be added y=4 times";
    a_product_of_partial_sums: "%0 = parameter a : f32 B(partialsum-x)\n%1 = mul %0, %0 : f32 \
        B(partialsum-x)\n"
        => "%1 binary: two operands are partial over mesh axis x: a product of sums is no sum of \
            products";
    one_axis_on_two_dims: "%0 = parameter a : f32 B_xE\n%1 = parameter b : f32 EF_x\n%2 = einsum \
        BE,EF->BF %0, %1 : f32 B_xF\n"
        => "%2 einsum: mesh axis x splits B (of %0) and F (of %1): only the diagonal blocks would \
            be computed";
    operands_that_disagree: "%0 = parameter a : f32 BE_x\n%1 = parameter b : f32 EF\n%2 = einsum \
        BE,EF->BF %0, %1 : f32 BF\n"
        => "%2 einsum: %0 and %1 split E differently";
    softmax_over_a_split_dim: "%0 = parameter a : f32 BE_x\n%1 = softmax %0 over E : f32 BE_x\n"
        => "%1 softmax: E must be whole in %0";
    a_straddling_split: "%0 = parameter a : f32 B_y\n%1 = split %0, B -> KG : f32 KG\n"
        => "%1 split: the blocks of B do not fall on whole parts";
    a_gather_of_the_major_axis: "%0 = parameter a : f32 B_xy\n%1 = all-gather %0 over x along B : \
        f32 B_y\n"
        => "%1 all-gather: the axes are not the minor-most axes of B";
    a_table_and_ids_partial_over_one_axis: "%0 = parameter t : f32 EF(partialsum-x)\n%1 = \
        parameter i : int32 B(partialsum-x)\n%2 = take %0, %1 over E : f32 BF(partialsum-x)\n"
        => "%2 take: the op is not linear in %1, which is partialsum-x";
    ids_along_the_dim_that_they_index: "%0 = parameter t : f32 E_xF\n%1 = parameter i : int32 \
        E_x\n%2 = take %0, %1 over E : f32 E_xF\n"
        => "%2 take: a dim would stand twice in the result";
    places_split_over_an_axis_of_the_rows: "%0 = parameter a : f32 B_xE\n%1 = parameter i : int32 \
        B_x\n%2 = scatter-add %0, %1 over B -> F : f32 F_xE\n"
        => "%2 scatter-add: mesh axis x splits F, which the result alone has, and %0 is not whole \
            over it";
    places_split_over_an_axis_of_terms: "%0 = parameter a : f32 BE(partialsum-x)\n%1 = parameter i \
        : int32 B\n%2 = scatter-add %0, %1 over B -> F : f32 F_xE\n"
        => "%2 scatter-add: mesh axis x splits F, which the result alone has, and %0 is not whole \
            over it";
    a_sum_of_rows_that_is_written_as_whole: "%0 = parameter a : f32 B_yE\n%1 = parameter i : int32 \
        B_y\n%2 = scatter-add %0, %1 over B -> F : f32 F_xE\n"
        => "%2 scatter-add: the result's layout is F_xE(partialsum-y), written F_xE";
    places_of_a_dim_that_an_operand_has: "%0 = parameter a : f32 BE\n%1 = pad %0, E -> F, 0 : f32 \
        BF_x\n"
        => "%1 pad: the result's layout is BF, written BF_x";
    an_integer_quotient_of_a_partial_sum: "%0 = parameter a : int32 B(partialsum-x)\n%1 = \
        parameter b : int32 B\n%2 = div %0, %1 : int32 B(partialsum-x)\n"
        => "%2 binary: the op is not linear in %0, which is partialsum-x";
}

#[test]
fn the_places_of_a_scatter_add_are_split_as_it_is_written() {
    let operands = "%0 = parameter a : f32 B_yE\n%1 = parameter i : int32 B_y\n";
    let made = |rest: &str| {
        let text = format!(
            "shir 1\nlayer l\nmesh x=2, y=4, z=2\ndims B=8, E=8, F=8\n{operands}%2 = scatter-add \
             %0, %1 over B -> F : f32 {rest}\nreturn r = %2 : {rest}\n"
        );
        let plan = parse(&text).unwrap_or_else(|e| panic!("{e}")).remove(0);
        verify(&plan).map_err(|errors| errors[0].to_string())
    };
    for layout in ["FE", "F_xE", "F_zE", "F_xzE", "F_zxE"] {
        assert_eq!(made(&format!("{layout}(partialsum-y)")), Ok(()), "{layout}");
        assert!(made(layout).is_err(), "{layout}: what other devices have is lacking");
    }
    for layout in ["F_yE", "F_xyE", "FE_x(partialsum-y)", "F_xE(partialsum-yz)"] {
        assert!(made(layout).is_err(), "{layout}");
    }
}

/// A softmax and a norm in pieces, and elementwise ops before and behind them.
const IN_PIECES: &str = "shir 1

layer f
mesh x=4
dims B=8, E=16

%0 = parameter a : bf16 BE_x
%1 = gelu %0 : bf16 BE_x @g
%2 = max %1 over E : bf16 B(partialmax-x) of p
%3 = all-reduce %2 max over x : bf16 B of p
%4 = sub %1, %3 : bf16 BE_x of p
%5 = exp %4 : bf16 BE_x of p
%6 = sum %5 over E : bf16 B(partialsum-x) of p
%7 = all-reduce %6 sum over x : bf16 B of p
%8 = div %5, %7 : bf16 BE_x @p of p
%9 = einsum BE,BE->B %8, %8 : bf16 B(partialsum-x) of rmsnorm
%10 = all-reduce %9 sum over x : bf16 B of rmsnorm
%11 = constant size E : bf16 [] of rmsnorm
%12 = constant 1e-6 : bf16 [] of rmsnorm
%13 = div %10, %11 : bf16 B of rmsnorm
%14 = add %13, %12 : bf16 B of rmsnorm
%15 = rsqrt %14 : bf16 B of rmsnorm
%16 = mul %8, %15 : bf16 BE_x of rmsnorm
%17 = gelu %16 : bf16 BE_x @y
return y = %17 : BE_x
";

#[test]
fn the_word_behind_of_is_held_to_what_the_instructions_compute() {
    let plan = parse(IN_PIECES).unwrap_or_else(|e| panic!("{e}")).remove(0);
    assert_eq!(verify(&plan), Ok(()));
    let found = shard_ir::composite::in_pieces(&plan).expect("pieces");
    assert_eq!(
        found.iter().map(|c| (c.operand.0, c.last().0)).collect::<Vec<_>>(),
        [(1, 8), (8, 16)]
    );
    // The mark is refused on any other instruction and with any other name, and may not be left
    // out.
    for id in plan.ids() {
        for word in [None, Some("p"), Some("rmsnorm"), Some("q"), Some("softmax")] {
            let mut mutant = plan.clone();
            let own = &mut mutant.instructions[id.index()].origin.piece_of;
            if own.as_deref() != word {
                *own = word.map(str::to_string);
                let errors = verify(&mutant).expect_err("a forged word");
                let of_piece = match word {
                    Some(_) => matches!(errors[0].kind, VerifyErrorKind::NoPiece(_)),
                    // Where the first piece has no mark, the second begins no composite.
                    None => matches!(
                        errors[0].kind,
                        VerifyErrorKind::NoPiece(_) | VerifyErrorKind::UnmarkedPiece
                    ),
                };
                assert!(of_piece, "%{} of {word:?}: {errors:?}", id.0);
            }
        }
    }
}

#[test]
fn a_piece_without_a_mark_is_told_that_it_has_none() {
    let text = IN_PIECES.replace("%5 = exp %4 : bf16 BE_x of p", "%5 = exp %4 : bf16 BE_x");
    let plan = parse(&text).unwrap_or_else(|e| panic!("{e}")).remove(0);
    let errors = verify(&plan).expect_err("a piece without a mark");
    let texts: Vec<String> = errors.iter().map(ToString::to_string).collect();
    assert_eq!(
        texts,
        [
            "%5 map: it is among the pieces of a softmax or norm, and not marked `of` it as these are"
        ]
    );
}

#[test]
fn pieces_that_compute_something_else_are_no_composite() {
    for (from, to) in [
        ("1e-6", "1e-5"),
        ("constant size E", "constant 16.0"),
        ("exp %4", "gelu %4"),
        ("div %5, %7", "div %4, %7"),
        ("mul %8, %15", "mul %5, %15"),
        ("sub %1, %3", "sub %3, %1"),
        ("sub %1, %3", "add %1, %3"),
        ("rsqrt %14", "sqrt %14"),
    ] {
        let text = IN_PIECES.replace(from, to);
        assert_ne!(text, IN_PIECES);
        let plan = parse(&text).unwrap_or_else(|e| panic!("{from}: {e}")).remove(0);
        let errors = verify(&plan).expect_err(from);
        assert!(matches!(errors[0].kind, VerifyErrorKind::NoPiece(_)), "{from}: {errors:?}");
    }
}
