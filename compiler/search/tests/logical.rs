//! Whole plans, which the logical rules and the rules of layouts give together.

use shard_check::{CheckOptions, check_source};
use shard_cost::{Hardware, Objective};
use shard_grammar::SourceFile;
use shard_ir::reason::{Formula, Reason, Rewriting};
use shard_ir::{Collective, InstrId, InstrKind, Instruction, Plan, Program};
use shard_runtime::{RunOptions, in_program_order, resized_as, run_against};
use shard_search::{LowerOptions, Lowered, Proof, SearchLimit, Status, certificate, lower};

fn program(source: &str) -> Program {
    let mut checked = check_source(&SourceFile::new("test", source), &CheckOptions::default());
    let errors: Vec<_> =
        checked.diagnostics.iter().filter(|d| d.is_error()).map(|d| &d.message).collect();
    assert!(errors.is_empty(), "{errors:?}\n{source}");
    checked.programs.swap_remove(checked.roots[0])
}

fn lowered_on(hardware: &Hardware, source: &str) -> Lowered {
    let program = program(source);
    let lowered = lower(&program, hardware, &LowerOptions::default()).expect("it lowers");
    assert_eq!(lowered.optimality.status, Status::Proven);
    shard_ir::verify::verify(&lowered.plan).expect("the plan is legal");
    certificate::computes(&lowered.plan, &program).expect("the plan computes the layer");
    lowered
}

fn plan(source: &str) -> Plan {
    lowered_on(&Hardware::built_in("tpu-v4-flat").expect("a chip"), source).plan
}

fn moves(plan: &Plan, is: impl Fn(&Collective) -> bool) -> Vec<&Instruction> {
    plan.instructions.iter().filter(|i| matches!(&i.kind, InstrKind::Move(c) if is(c))).collect()
}

fn reductions(plan: &Plan) -> Vec<&Instruction> {
    moves(plan, |c| matches!(c, Collective::ReduceScatter { .. } | Collective::AllReduce { .. }))
}

/// The text of an einsum's subscripts, for each einsum.
fn equations(plan: &Plan) -> Vec<String> {
    let is_einsum = |id: &shard_ir::InstrId| plan.instruction(*id).kind.name() == "einsum";
    plan.ids().filter(is_einsum).map(|id| plan.equation(id)).collect()
}

const PALM: &str = include_str!("../benches/programs/palm.shard");

#[test]
fn the_parallel_block_has_one_reduce_scatter_for_attention_and_feed_forward_together() {
    for text in [PALM.to_string(), PALM.replace("dim L = 1\n", "dim L = 2048\n")] {
        let plan = plan(&text);
        // Chains of single-axis steps of one value are one instruction, so this counts reductions
        // of `E`-sized values.
        let e_sized: Vec<&str> = reductions(&plan)
            .iter()
            .filter(|i| plan.dim_names(&i.dims) == ["B", "L", "E"])
            .map(|i| i.name.as_deref().unwrap_or("the sum"))
            .collect();
        let mut values = e_sized.clone();
        values.dedup();
        assert_eq!(values.len(), 1, "{e_sized:?}");
    }
}

/// The instruction that an einsum reads first, by the einsum's name.
fn read_by(plan: &Plan, name: &str) -> InstrId {
    let is = |i: &&Instruction| i.kind.name() == "einsum" && i.name.as_deref() == Some(name);
    plan.instructions.iter().find(is).expect("the einsum is there").operands[0]
}

fn assert_gathered_to_each_layout_once(plan: &Plan) {
    let gathers = moves(plan, |c| matches!(c, Collective::AllGather { .. }));
    let layouts: Vec<_> =
        gathers.iter().filter(|i| i.name.as_deref() == Some("h")).map(|i| i.layout).collect();
    assert!(
        !layouts.is_empty() && layouts.iter().enumerate().all(|(i, l)| !layouts[..i].contains(l)),
        "{layouts:?}"
    );
}

#[test]
fn a_value_gathered_for_q_k_v_and_the_feed_forward_input_is_gathered_once() {
    let plan = plan(
        "mesh x=4, y=4, z=4\ndim B = 64\ndim E = 18432\ndim F = 73728\ndim H = 16384\ndim K = 1024\ndim V = 1024
layer f(x: bf16 BE_xyz, w_q: weight bf16 E_xH_yz, w_k: weight bf16 E_xK_yz, w_v: weight bf16 E_xV_yz,
        w_in: weight bf16 E_xF_yz) -> (q: bf16 BH_yzx, k: bf16 BK_yzx, v: bf16 BV_yzx, f: bf16 BF_yzx) {
  let h = rmsnorm(x over E)
  let q = einsum(h, w_q -> BH)
  let k = einsum(h, w_k -> BK)
  let v = einsum(h, w_v -> BV)
  let f = einsum(h, w_in -> BF)
  return (q, k, v, f)\n}",
    );
    let read = read_by(&plan, "q");
    assert_eq!(plan.layout_text(read), "BE_x");
    assert!(["k", "v", "f"].iter().all(|name| read_by(&plan, name) == read));
    assert_gathered_to_each_layout_once(&plan);
}

#[test]
fn so_it_is_in_a_block_where_keys_and_values_read_what_is_not_gathered() {
    let plan = plan(PALM);
    assert_eq!(read_by(&plan, "q"), read_by(&plan, "f"));
    assert_gathered_to_each_layout_once(&plan);
}

#[test]
fn it_is_gathered_once_where_each_reader_writes_the_norm_again() {
    let source = |h: [&str; 2]| {
        format!(
            "mesh x=4\ndim B = 64\ndim E = 4096\ndim F = 8192\ndim H = 4096
layer f(x: bf16 BE_x, a: weight bf16 EF_x, b: weight bf16 EH_x) -> (y: bf16 BF_x, z: bf16 BH_x) {{
  let h = rmsnorm(x over E)
  return (einsum({}, a -> BF), einsum({}, b -> BH))
}}",
            h[0], h[1]
        )
    };
    let hardware = Hardware::built_in("tpu-v4-flat").expect("a chip");
    let once = lowered_on(&hardware, &source(["h", "h"]));
    let twice = lowered_on(&hardware, &source(["h", "rmsnorm(x over E)"]));
    assert_eq!(once.optimality.cost, twice.optimality.cost);
    // The norm is in pieces, the last of which has the name.
    let is_norm =
        |i: &&shard_ir::Instruction| i.name.as_deref() == Some("h") && i.origin.piece_of.is_some();
    let norm = twice.plan.instructions.iter().find(is_norm).expect("a norm");
    assert!(norm.origin.rules.names().next() == Some("equal_ops_are_one_value"));
    let merged = Rewriting::Merged { times: 2, names: vec!["h".to_string()] };
    assert_eq!(norm.origin.reason, Some(Reason::Rewritten(merged)));
}

/// A replicated activation against weights that are split over the contracted dim.
fn against_split_weights(batch: u64, network: f64) -> Plan {
    let hardware = Hardware::parse(&format!(
        "name = \"h\"\n[chip]\nflops = {{ bf16 = 1e14 }}\nhbm_bytes = 1e12\nhbm_bandwidth = 1e12\n
[network]\nkind = \"flat\"\nbandwidth = {network:e}\nlatency = 0.0\n"
    ));
    let source = format!(
        "mesh x=4\ndim B = {batch}\ndim E = 1024\ndim F = 1024
layer f(x: bf16 BE, w: weight bf16 E_xF) -> bf16 BF {{\n  return einsum(x, w -> BF)\n}}"
    );
    lowered_on(&hardware.expect("a chip"), &source).plan
}

#[test]
fn weights_split_over_the_contracted_dim_are_gathered_or_the_activation_is_sliced_whichever_is_cheaper()
 {
    // Few tokens: the result is small, so it is reduced.
    let few = against_split_weights(8, 1e11);
    assert_eq!(moves(&few, |c| matches!(c, Collective::Slice { .. })).len(), 1);
    assert!(!reductions(&few).is_empty());
    assert!(
        !moves(&few, |_| true).iter().any(|i| i.name.as_deref() == Some("w")),
        "the weights stay where they are"
    );
    // Many tokens, and a slow network: the weights are what is small.
    let many = against_split_weights(16_384, 1e9);
    let gathered = moves(&many, |c| matches!(c, Collective::AllGather { .. }));
    assert!(gathered.iter().any(|i| i.name.as_deref() == Some("w")));
    assert!(reductions(&many).is_empty());
}

#[test]
fn linear_ops_wait_with_the_reduction_until_the_value_is_smallest() {
    // Scaled, renamed, split, merged, summed and multiplied with a replicated factor: all of it on
    // the partial sum.
    let plan = plan(
        "mesh x=4\ndim B = 64\ndim E = 4096\ndim F = 4096\ndim G = 64\ndim H = 64\ndim K = 4096
layer f(x: bf16 BE_x, w: weight bf16 E_xF) -> bf16 B {
  let h = einsum(x, w -> BF) * 0.5
  let s = split(rename(-h, F -> K), K -> GH)
  let k: BK? = merge(s, GH -> K)
  return sum(k over K)\n}",
    );
    let reduced = reductions(&plan);
    assert!(!reduced.is_empty());
    assert!(
        reduced.iter().all(|i| plan.dim_names(&i.dims) == ["B"]),
        "only what is summed is reduced"
    );
}

#[test]
fn a_chain_is_multiplied_in_the_order_that_takes_least_time_and_the_plan_says_so() {
    let source = "mesh x=2, y=2\ndim B = 4096\ndim E = 64\ndim F = 4096\ndim G = 64
layer f(x: bf16 BE_x, w1: weight bf16 EF_y, w2: weight bf16 F_yG) -> bf16 B_xG {
  let h = einsum(x, w1 -> BF)
  let y = einsum(h, w2 -> BG)
  return y\n}";
    let hardware = Hardware::built_in("tpu-v4-flat").expect("a chip");
    let lowered = lowered_on(&hardware, source);
    assert_eq!(equations(&lowered.plan), ["EF,FG->EG", "BE,EG->BG"]);
    let y = lowered
        .plan
        .instructions
        .iter()
        .find(|i| i.kind.name() == "einsum" && i.name.as_deref() == Some("y"));
    let origin = &y.expect("y is computed").origin;
    assert!(origin.rules.names().next() == Some("einsum_of_an_einsum_reassociates"));
    let Some(Reason::Rewritten(Rewriting::Computed { formula, flops })) = &origin.reason else {
        panic!("{origin:?}")
    };
    let named = |name: &str| Formula::Named(name.to_string());
    let product = |operands: [Formula; 2]| Formula::Op {
        op: shard_ir::Op::Einsum,
        operands: operands.to_vec(),
    };
    assert_eq!(*formula, product([named("x"), product([named("w1"), named("w2")])]));
    assert!(flops.is_some_and(|(after, before)| after < before));
    let small = shard_runtime::shrink(&lowered.plan);
    let written = resized_as(&small, &Plan::unsharded(&program(source))).expect("the same dims");
    assert_eq!(equations(&written), ["BE,EF->BF", "BF,FG->BG"]);
    let report =
        run_against(&written, &in_program_order(&small), &RunOptions::default()).expect("it runs");
    assert!(report.equal && report.exact);

    // A pinned intermediate is there, whatever it costs.
    let pinned = lowered_on(&hardware, &source.replace("let h =", "let h: BF_y? ="));
    assert_eq!(equations(&pinned.plan), ["BE,EF->BF", "BF,FG->BG"]);
    assert!(pinned.optimality.cost > lowered.optimality.cost);
    // So it is in a strict layer.
    let strict = LowerOptions { strict: true, ..LowerOptions::default() };
    let error =
        lower(&program(source), &hardware, &strict).expect_err("collectives are not written");
    let shard_search::LowerError::Strict { plan, .. } = error else { panic!("{error}") };
    assert_eq!(equations(&plan), ["BE,EF->BF", "BF,FG->BG"]);
}

#[test]
fn a_shared_operand_is_taken_out_of_a_sum_where_that_saves_time() {
    let source = "mesh x=4\ndim B = 8192\ndim E = 1024\ndim F = 1024
layer f(x: bf16 B_xE, a: weight bf16 EF, b: weight bf16 EF, c: bf16 B_xF) -> bf16 B_xF {
  return einsum(x, a -> BF) + c + einsum(x, b -> BF)\n}";
    let lowered = lowered_on(&Hardware::built_in("tpu-v4-flat").expect("a chip"), source);
    assert_eq!(equations(&lowered.plan), ["BE,EF->BF"]);
    assert_eq!(lowered.optimality.proof, Some(Proof::Certificate));
}

#[test]
fn what_takes_as_long_as_the_form_written_is_not_taken() {
    // Square matrices all alike, so that the two orders tie.
    let source = "mesh x=2\ndim A = 64\ndim B = 64\ndim C = 64\ndim D = 64
layer f(a: bf16 AB, b: bf16 BC, c: bf16 CD) -> bf16 AD {
  let h = einsum(a, b -> AC)
  return einsum(h, c -> AD)\n}";
    assert_eq!(equations(&plan(source)), ["AB,BC->AC", "AC,CD->AD"]);
}

#[test]
fn a_limit_that_left_forms_out_is_named() {
    // 132 orders of one product: more alternatives of one cluster than are listed.
    let dims: String = "ABCDEFGH".chars().map(|dim| format!("dim {dim} = 64\n")).collect();
    let source = format!(
        "mesh x=2\n{dims}layer f(a: bf16 AB, b: bf16 BC, c: bf16 CD, d: bf16 DE, e: bf16 EF, f: \
            bf16 FG, g: bf16 GH) \
         -> bf16 AH {{\n  return einsum(a, b, c, d, e, f, g -> AH)\n}}\n"
    );
    let hardware = Hardware::built_in("tpu-v4-flat").expect("a chip");
    let mut options = LowerOptions::default();
    options.limits.forms = 2;
    let cut = lower(&program(&source), &hardware, &options).expect("it lowers").optimality;
    assert_eq!((cut.status, cut.stopped_by), (Status::Bounded, Some(SearchLimit::EnumeratedForms)));
    assert!(cut.lower_bound < cut.cost);
}

#[test]
fn more_forms_than_may_be_searched_are_bounded_together() {
    let source = "mesh x=2\ndim A = 64\ndim B = 64\ndim C = 64\ndim D = 64\ndim E = 64
layer f(a: bf16 AB, b: bf16 BC, c: bf16 CD, d: bf16 DE) -> bf16 AE {
  return einsum(einsum(einsum(a, b -> AC), c -> AD), d -> AE)\n}";
    let hardware = Hardware::built_in("tpu-v4-flat").expect("a chip");
    let mut options = LowerOptions::default();
    options.limits.forms = 2;
    let apart = lower(&program(source), &hardware, &options).expect("it lowers").optimality;
    assert_eq!(apart.status, Status::Proven);
    assert_eq!(apart.cost, lowered_on(&hardware, source).optimality.cost);
}

#[test]
fn sixty_four_blocks_with_a_choice_each_are_proven() {
    // The product with the latent cache can be absorbed into the query: 2^64 forms.
    let (mut parameters, mut body) = (String::new(), String::new());
    for i in 0..64 {
        parameters +=
            &format!(", q{i}: weight bf16 EHD?, k{i}: weight bf16 CHD?, c{i}: cache bf16 BSC?");
        parameters += &format!(", v{i}: weight bf16 CHD?, o{i}: weight bf16 HDE?");
        body += &format!(
            "  let a{i} = einsum(rmsnorm(x{i} over E), q{i} -> BHD)
  let b{i} = einsum(c{i}, k{i} -> BSHD)
  let p{i} = softmax(einsum(a{i}, b{i} -> BHS) over S)
  let u{i} = einsum(p{i}, c{i} -> BHC)
  let x{} = x{i} + einsum(einsum(u{i}, v{i} -> BHD), o{i} -> BE)\n",
            i + 1
        );
    }
    let dims = "dim B = 64\ndim E = 4096\ndim S = 4096\ndim H = 32\ndim D = 128\ndim C = 512\n";
    let source = format!(
        "mesh x=4, y=4\n{dims}layer f(x0: bf16 B_xE_y{parameters}) -> bf16 B_xE_y {{\n{body}  \
            return x64\n}}\n"
    );
    let hardware = Hardware::built_in("tpu-v5e").expect("a chip");
    let lowered = lower(&program(&source), &hardware, &LowerOptions::default()).expect("it lowers");
    assert_eq!(lowered.optimality.status, Status::Proven);
    // None of them multiplies the cache out.
    assert!(!equations(&lowered.plan).iter().any(|equation| equation.ends_with("BSHD")));
}

#[test]
fn where_communication_alone_counts_a_form_of_more_flops_may_be_the_best() {
    let chip = Hardware::built_in("tpu-v4-flat").expect("a chip");
    let mut dearer_in_flops = 0;
    for (a, b, c, r) in [
        ("A_xB", "BC_y", "C_xD", "AD"),
        ("AB_x", "B_yC", "CD_x", "A_xD"),
        ("A_xB", "B_xC", "C_xD", "A_xD"),
    ] {
        for sizes in 0..81 {
            let size = |place: u32| 32_u64.pow(1 + sizes / 3_u32.pow(place) % 3);
            let dims: String = "ABCD"
                .chars()
                .zip(0..)
                .map(|(dim, i)| format!("dim {dim} = {}\n", size(i)))
                .collect();
            let source = format!(
                "mesh x=4, y=2\n{dims}layer f(a: f32 {a}, b: f32 {b}, c: f32 {c}) -> f32 {r} {{\n  \
                 return einsum(a, b, c -> AD)\n}}\n"
            );
            let program = program(&source);
            let by = |objective, whole_space| {
                let options = LowerOptions {
                    objective,
                    whole_space,
                    any_size: true,
                    ..LowerOptions::default()
                };
                lower(&program, &chip, &options).expect("it lowers")
            };
            let (found, all) = (by(Objective::Comm, false), by(Objective::Comm, true));
            assert_eq!(found.optimality.cost, all.optimality.cost, "{source}");
            let flops = |lowered: &Lowered| shard_cost::price(&lowered.plan, &chip).totals.flops;
            dearer_in_flops += usize::from(flops(&found) > flops(&by(Objective::Serial, false)));
        }
    }
    assert!(dearer_in_flops > 10, "{dearer_in_flops}");
}
