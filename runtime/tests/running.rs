//! `run` itself: arithmetic, inputs, schedules, emulated dtypes.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::common::check;
use shard_ir::{InstrId, Plan, text};
use shard_runtime::{
    Arithmetic, Report, RunError, RunOptions, Spare, Tensor, execute, in_program_order, run,
    run_against, run_plan,
};

fn plan(body: &str) -> Plan {
    text::parse(&format!("shir 1\nlayer l\nmesh x=2, y=2\ndims B=4, E=8, F=4, V=8\n{body}"))
        .unwrap_or_else(|e| panic!("{e}"))
        .remove(0)
}

fn matmul() -> Plan {
    plan(
        "%0 = parameter a : bf16 BE_x\n%1 = parameter w : weight bf16 E_xF_y\n\
         %2 = einsum BE,EF->BF %0, %1 : bf16 BF_y(partialsum-x)\n\
         %3 = reduce-scatter %2 sum over x along B : bf16 B_xF_y\nreturn c = %3 : F_yB_x\n",
    )
}

#[test]
fn given_inputs_are_used_and_results_come_in_the_declared_order() {
    let inputs: BTreeMap<String, Arc<Tensor>> = [
        ("a".to_string(), Tensor::new(vec![4, 8], (0..32).map(f64::from).collect()).unwrap()),
        ("w".to_string(), Tensor::filled(vec![8, 4], 1.0)),
    ]
    .map(|(name, tensor)| (name, Arc::new(tensor)))
    .into();
    let report = run_plan(&matmul(), &RunOptions { inputs, ..RunOptions::default() }).unwrap();
    assert!(report.equal && report.exact);
    assert_eq!(report.outputs[0].tensor.sizes, [4, 4]);
    assert_eq!(report.outputs[0].tensor.data[..4], [28.0, 92.0, 156.0, 220.0]);
    assert_eq!(report.outputs, report.expected);
}

/// A layer of `a`, `b` and `c`, to be multiplied.
fn chain(first: &str, mesh: &str, split: &str) -> Plan {
    text::parse(&format!(
        "shir 1\nlayer l\nmesh {mesh}\ndims A=4, B=8, C=4, D=6\n\
         %0 = parameter a : f32 A{split}B\n%1 = parameter b : f32 BC\n%2 = parameter c : f32 \
         CD\n{first}"
    ))
    .unwrap_or_else(|e| panic!("{e}"))
    .remove(0)
}

#[test]
fn a_plan_is_compared_with_what_the_source_says_and_not_with_itself() {
    let written = chain(
        "%3 = einsum AB,BC->AC %0, %1 : f32 AC\n%4 = einsum AC,CD->AD %3, %2 : f32 AD\nreturn y = \
            %4 : AD\n",
        "x=1",
        "",
    );
    let other_order =
        "%3 = einsum BC,CD->BD %1, %2 : f32 BD\n%4 = einsum AB,BD->AD %0, %3 : f32 A_xD\n";
    let plan = chain(&format!("{other_order}return y = %4 : A_xD\n"), "x=2", "_x");
    let report = run_against(&written, &in_program_order(&plan), &RunOptions::default()).unwrap();
    assert!(report.equal && report.exact);

    // Each op of this plan is executed correctly, but the plan is another program than the source.
    let doubled = format!("{other_order}%5 = add %4, %4 : f32 A_xD\nreturn y = %5 : A_xD\n");
    let plan = chain(&doubled, "x=2", "_x");
    assert!(run_plan(&plan, &RunOptions::default()).unwrap().equal);
    let report = run_against(&written, &in_program_order(&plan), &RunOptions::default()).unwrap();
    assert!(!report.equal);
    assert_eq!(report.first_wrong, None);
}

#[test]
fn wrong_inputs_are_refused() {
    let run_with = |name: &str, tensor: Tensor| {
        let inputs = [(name.to_string(), tensor.into())].into();
        run_plan(&matmul(), &RunOptions { inputs, ..RunOptions::default() })
            .unwrap_err()
            .to_string()
    };
    assert_eq!(
        run_with("q", Tensor::filled(vec![4, 8], 1.0)),
        "input q: the layer has no such parameter"
    );
    assert_eq!(
        run_with("a", Tensor::filled(vec![8, 4], 1.0)),
        "input a: has shape [8, 4], the parameter [4, 8]"
    );
    let take = plan(
        "%0 = parameter t : weight f32 VE\n%1 = parameter ids : int32 B\n%2 = take %0, %1 over V \
            : f32 BE\nreturn r = %2 : BE\n",
    );
    let inputs = [("ids".to_string(), Tensor::filled(vec![4], 0.5).into())].into();
    let error = run_plan(&take, &RunOptions { inputs, ..RunOptions::default() }).unwrap_err();
    assert_eq!(
        error.to_string(),
        "input ids: the parameter is int32 and an element is no whole number"
    );
}

#[test]
fn fractions_are_computed_in_f32() {
    let inputs = [("a".to_string(), Tensor::filled(vec![4, 8], 0.1).into())].into();
    let report = run_plan(&matmul(), &RunOptions { inputs, ..RunOptions::default() }).unwrap();
    assert!(report.equal && !report.exact && report.tolerance == 1e-5);
}

#[test]
fn what_cancelled_stays_as_far_off_as_its_terms_were_large() {
    // The sum of a layernorm is 0 but for roundings, which a relu and a product keep.
    let body = "%0 = parameter a : f32 BE\n%1 = parameter s : weight f32 B\n\
                %2 = layernorm %0 over E : f32 BE\n%3 = slice %2 over xy along E : f32 BE_xy\n\
                %4 = sum %3 over E : f32 B(partialsum-xy)\n%5 = all-reduce %4 sum over xy : f32 \
                B\n%6 = relu %5 : f32 B\n%7 = mul %6, %1 : f32 B\n%8 = add %7, %6 : f32 B\n\
                return r = %8 : B\n";
    for seed in 0..16 {
        let options = RunOptions { seed, ..RunOptions::default() };
        let report = run_plan(&plan(body), &options).unwrap();
        assert!(report.equal && !report.exact && report.scale() > 1.0, "{seed}: {report:?}");
    }
}

#[test]
fn whole_numbers_that_overflow_start_again_in_f32() {
    let mut body =
        "%0 = parameter a : f32 B_xE(partialsum-y)\n%1 = all-reduce %0 sum over y : f32 B_xE\n"
            .to_string();
    for n in 1..9 {
        body.push_str(&format!("%{} = square %{n} : f32 B_xE\n", n + 1));
    }
    let report = check(&plan(&format!("{body}return r = %9 : B_xE\n")), 1);
    assert!(!report.exact);
}

#[test]
fn the_seed_decides_the_data_and_nothing_else_does() {
    let options = |seed| RunOptions { seed, ..RunOptions::default() };
    let run = |seed| run_plan(&matmul(), &options(seed)).unwrap();
    assert_eq!(run(1), run(1));
    assert_ne!(run(1).outputs, run(2).outputs);
}

#[test]
fn emulated_dtypes_round_partial_sums_in_their_own_dtype() {
    let emulated = RunOptions { emulate_dtypes: true, seed: 4, ..RunOptions::default() };
    let report = run_plan(&matmul(), &emulated).unwrap();
    assert!(report.equal && !report.exact && report.max_abs_err > 0.0, "{report:?}");
    assert!(report.tolerance > 0.01 && report.max_abs_err < 0.02 * report.scale());
    // Every result is a bf16.
    let data = &report.outputs[0].tensor.data;
    assert!(data.iter().all(|v| (*v as f32).to_bits() & 0xffff == 0));
    // With a tolerance of 0 the difference counts.
    assert!(!run_plan(&matmul(), &RunOptions { tolerance: Some(0.0), ..emulated }).unwrap().equal);
}

#[test]
fn emulated_integers_and_f8_run() {
    let body = "%0 = parameter a : int8 BE_x\n%1 = parameter w : weight int8 E_xF\n%2 = einsum \
        BE,EF->BF %0, %1 : int32 BF(partialsum-x)\n\
                %3 = all-reduce %2 sum over x : int32 BF\n%4 = cast %3, f8 : f8 BF\n%5 = \
                parameter p : int4 B(partialsum-y)\n\
                %6 = all-reduce %5 sum over y : int4 B\nreturn r = %4 : BF\nreturn s = %6 : B\n";
    let report =
        run_plan(&plan(body), &RunOptions { emulate_dtypes: true, ..RunOptions::default() })
            .unwrap();
    assert!(report.equal);
}

#[test]
fn a_schedule_that_reads_what_it_has_freed_is_refused() {
    let plan = matmul();
    let good = in_program_order(&plan);
    assert!(run(&good, &RunOptions::default()).unwrap().equal);
    let mut early = good.clone();
    early.frees = vec![vec![], vec![], vec![InstrId(2)], vec![]];
    let mut swapped = good.clone();
    swapped.steps.swap(1, 2);
    let mut short = good.clone();
    short.steps.pop();
    let mut twice = good.clone();
    twice.steps.push(twice.steps[0]);
    let mut lost = good.clone();
    lost.frees[3].push(InstrId(3));
    for (schedule, id) in [(early, 3), (swapped, 2), (short, 3), (twice, 0), (lost, 3)] {
        match run(&schedule, &RunOptions::default()) {
            Err(RunError::Schedule { id: at, .. }) => assert_eq!(at, InstrId(id)),
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn another_order_that_respects_operands_gives_the_same() {
    let plan = matmul();
    let good = in_program_order(&plan);
    let mut other = good.clone();
    other.steps.swap(0, 1);
    other.frees = vec![vec![]; 4];
    let freed = run(&good, &RunOptions::default()).unwrap();
    let kept = run(&other, &RunOptions::default()).unwrap();
    // A schedule that frees nothing holds more, and gives the same.
    assert!(freed.peak_bytes < kept.peak_bytes);
    assert_eq!(freed, Report { peak_bytes: freed.peak_bytes, ..kept });
    let (a, b) = (
        execute(&good, &RunOptions::default()).unwrap(),
        execute(&other, &RunOptions::default()).unwrap(),
    );
    assert_eq!(a.arithmetic, Arithmetic::Exact);
    assert!(a.peak_bytes <= b.peak_bytes);
}

#[test]
fn the_peak_is_what_liveness_says() {
    let plan = matmul();
    let trace = execute(&in_program_order(&plan), &RunOptions::default()).unwrap();
    assert_eq!(trace.peak_bytes, shard_ir::Liveness::of(&plan).peak_bytes());
}

#[test]
fn a_single_device_runs_too() {
    let plan = text::parse(
        "shir 1\nlayer l\ndims B=4\n%0 = parameter a : f32 B\n%1 = exp %0 : \
        f32 B\n%2 = constant 2.5 : f32 []\n%3 = mul %1, %2 : f32 B\nreturn r = %3 : B\n",
    )
    .unwrap()
    .remove(0);
    let report = check(&plan, 0);
    assert_eq!((report.devices, report.exact), (1, false));
}

/// Blocks are large enough for their memory to be kept, and of several sizes.
#[test]
fn memory_that_other_executions_have_left_changes_no_bit() {
    let body = "shir 1\nlayer l\nmesh x=2, y=2\ndims B=256, E=256, F=512\n\
         %0 = parameter a : f32 BE_x\n%1 = parameter w : weight f32 E_xF_y\n\
         %2 = einsum BE,EF->BF %0, %1 : f32 BF_y(partialsum-x)\n\
         %3 = all-reduce %2 sum over x : f32 BF_y\n%4 = gelu %3 : f32 BF_y\n\
         %5 = all-gather %4 over y along F : f32 BF\nreturn c = %5 : BF\n";
    let plan = text::parse(body).unwrap_or_else(|e| panic!("{e}")).remove(0);
    let with = |seed, spare: &Arc<Spare>| {
        let options =
            RunOptions { seed, single: true, spare: spare.clone(), ..RunOptions::default() };
        let report = run_plan(&plan, &options).unwrap();
        assert!(report.equal && !report.exact);
        report.outputs
    };
    let spare = Arc::default();
    with(1, &spare);
    assert_eq!(with(2, &spare), with(2, &Arc::default()));
}

/// The sizes and the data of the one result of a plan with these inputs; devices and reference must
/// agree on it.
fn result_of(plan: &Plan, inputs: &[(&str, Tensor)], options: RunOptions) -> Vec<f64> {
    let given = |(name, tensor): &(&str, Tensor)| (name.to_string(), tensor.clone().into());
    let inputs = inputs.iter().map(given).collect();
    let report = run_plan(plan, &RunOptions { inputs, ..options }).unwrap();
    assert!(report.equal, "{report:?}");
    report.outputs[0].tensor.data.clone()
}

#[test]
fn rope_at_the_end_of_a_dim_is_the_end_of_rope_over_all_of_it() {
    let plan = text::parse(
        "shir 1\nlayer l\nmesh x=2\ndims L=4, S=16, Q=4\n%0 = parameter a : f32 SQ\n%1 = rope %0 \
            over Q at S : f32 SQ\n\
         %2 = slice-dim %1, S -> L, 12 : f32 LQ\n%3 = slice-dim %0, S -> L, 12 : f32 LQ\n%4 = \
         slice %3 over x along L : f32 L_xQ\n\
         %5 = rope %4 over Q at L, S : f32 L_xQ\n%6 = all-gather %5 over x along L : f32 LQ\n%7 = \
         sub %2, %6 : f32 LQ\n\
         return d = %7 : LQ\n",
    )
    .unwrap()
    .remove(0);
    let difference = result_of(&plan, &[], RunOptions::default());
    assert!(difference.iter().all(|d| d.abs() < 1e-6), "{difference:?}");
}

#[test]
fn a_decode_step_turns_its_one_token_by_the_last_position() {
    let turned = |extent: &str| {
        let body = format!(
            "%0 = parameter a : f32 BQ\n%1 = rope %0 over Q at B{extent} : f32 BQ\nreturn r = %1 \
                : BQ\n"
        );
        let plan =
            text::parse(&format!("shir 1\nlayer l\ndims B=1, Q=2, S=8\n{body}")).unwrap().remove(0);
        result_of(
            &plan,
            &[("a", Tensor::new(vec![1, 2], vec![1.0, 0.0]).unwrap())],
            RunOptions::default(),
        )
    };
    assert_eq!(turned(""), [1.0, 0.0]);
    let [c, s] = [7f64.cos(), 7f64.sin()];
    let end = turned(", S");
    assert!((end[0] - c).abs() < 1e-6 && (end[1] - s).abs() < 1e-6, "{end:?}");
}

#[test]
fn an_einsum_in_f32_keeps_its_partial_sums_in_f32() {
    let sum = |dtype: &str| {
        let body = format!(
            "%0 = parameter a : bf16 BE_x\n%1 = parameter w : weight bf16 E_xF\n%2 = einsum \
                BE,EF->BF %0, %1 : {dtype} BF(partialsum-x)\n\
             %3 = all-reduce %2 sum over x : {dtype} BF\nreturn c = %3 : BF\n"
        );
        let row = [256.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0];
        let a = Tensor::new(vec![4, 8], row.repeat(4)).unwrap();
        let options = RunOptions { emulate_dtypes: true, ..RunOptions::default() };
        result_of(&plan(&body), &[("a", a), ("w", Tensor::filled(vec![8, 4], 1.0))], options)
    };
    // 257 is no bf16.
    assert_eq!(sum("bf16"), [256.0; 16]);
    assert_eq!(sum("f32"), [257.0; 16]);
}

#[test]
fn an_id_out_of_range_takes_zeros_from_whole_and_from_split_tables() {
    for (layout, partial, rest) in
        [("VE", "BE", ""), ("V_xE", "BE(partialsum-x)", "%3 = all-reduce %2 sum over x : f32 BE\n")]
    {
        let body = format!(
            "%0 = parameter t : weight f32 {layout}\n%1 = parameter ids : int32 B\n%2 = take %0, \
                %1 over V : f32 {partial}\n{rest}\
             return r = %{} : BE\n",
            if rest.is_empty() { 2 } else { 3 }
        );
        let ids = Tensor::new(vec![4], vec![-1.0, 8.0, 7.0, 1e9]).unwrap();
        let rows = result_of(
            &plan(&body),
            &[("ids", ids), ("t", Tensor::filled(vec![8, 8], 3.0))],
            RunOptions::default(),
        );
        let expected: Vec<f64> = [0.0, 0.0, 3.0, 0.0].iter().flat_map(|v| [*v; 8]).collect();
        assert_eq!(rows, expected, "{layout}");
    }
}

#[test]
fn whole_numbers_divide_toward_zero_and_by_zero_to_zero() {
    let body = "%0 = parameter a : int32 E_x\n%1 = parameter b : int32 E_x\n%2 = div %0, %1 : \
        int32 E_x\nreturn r = %2 : E_x\n";
    let numbers = |list: [i32; 8]| Tensor::new(vec![8], list.map(f64::from).to_vec()).unwrap();
    let inputs =
        [("a", numbers([7, -7, 7, -7, 5, -5, 0, 1])), ("b", numbers([2, 2, -2, -2, 0, 0, 0, 3]))];
    for emulate_dtypes in [false, true] {
        let out =
            result_of(&plan(body), &inputs, RunOptions { emulate_dtypes, ..RunOptions::default() });
        assert_eq!(out, [3.0, -3.0, -3.0, 3.0, 0.0, 0.0, 0.0, 0.0]);
    }
}
