//! Certificates that somebody has changed. Whatever is changed, nothing false is proven.

use shard_runtime::Random;
use shard_search::certificate::{
    Certificate, Claim, PriceSet, ReaderPrices, Run, verify_certificate,
};

use super::made::{PHASES, within_tenths};
use super::programs::{RESIDUAL, certificate, refused};

fn changed(change: impl FnOnce(&mut Certificate)) -> String {
    let mut certificate = certificate(RESIDUAL);
    assert!(verify_certificate(&certificate.text()).is_ok());
    change(&mut certificate);
    refused(&certificate)
}

/// Made-up prices.
fn made_up(random: &mut Random, from: &PriceSet) -> PriceSet {
    let price = |random: &mut Random| match random.index(4) {
        0 => 0,
        1 => random.index(1000) as i64,
        2 => random.index(1 << 40) as i64,
        _ => -(random.index(1 << 40) as i64),
    };
    let runs = |random: &mut Random, run: &Run| match (random.index(3), *run) {
        (0, Run::One(_)) => Run::One(price(random)),
        (0, Run::Many(_, times)) => Run::Many(price(random), times),
        (1, Run::One(p)) => Run::One(p.saturating_add(price(random) >> 20)),
        (_, run) => run,
    };
    let uses = from.readers.iter().map(|u| ReaderPrices {
        paid: u.paid.iter().map(|r| runs(random, r)).collect(),
        ..u.clone()
    });
    PriceSet { readers: uses.collect(), ..PriceSet::default() }
}

/// The residual layer with a plan for it that takes longer: one for the same layer with an
/// intermediate pinned.
fn with_a_worse_plan() -> (Certificate, u64) {
    let best = certificate(RESIDUAL);
    let pinned = certificate(&RESIDUAL.replace("let h =", "let h: B_xF ="));
    let mut worse = best.clone();
    worse.layers[0].plan.clone_from(&pinned.layers[0].plan);
    worse.layers[0].cost_ps = pinned.layers[0].cost_ps;
    let optimum = best.layers[0].cost_ps;
    assert!(worse.layers[0].cost_ps > optimum, "{} {optimum}", worse.layers[0].cost_ps);
    (worse, optimum)
}

#[test]
fn no_prices_prove_a_worse_plan_best() {
    let (mut worse, _) = with_a_worse_plan();
    worse.layers[0].proof = Claim::Certificate;
    worse.layers[0].lower_bound_ps = worse.layers[0].cost_ps;
    let prices = worse.layers[0].forms[0][0].clone();
    assert!(!prices.readers.is_empty(), "prices to change");
    let mut random = Random::new(7);
    for _ in 0..2000 {
        worse.layers[0].forms[0] = vec![made_up(&mut random, &prices), prices.clone()];
        refused(&worse);
    }
}

#[test]
fn no_prices_show_a_bound_above_the_optimum() {
    let (mut worse, optimum) = with_a_worse_plan();
    worse.layers[0].proof = Claim::None;
    // The claimed bound is above the optimum, so that every set of prices is worked out in full,
    // and the message tells what each shows.
    worse.layers[0].lower_bound_ps = worse.layers[0].cost_ps;
    let prices = worse.layers[0].forms[0][0].clone();
    let mut random = Random::new(11);
    for _ in 0..2000 {
        worse.layers[0].forms[0] = vec![made_up(&mut random, &prices)];
        let message = refused(&worse);
        let shown =
            message.strip_prefix("the prices show a bound of ").and_then(|m| m.split(' ').next());
        let bound: u64 = shown.and_then(|b| b.parse().ok()).unwrap_or_else(|| panic!("{message}"));
        assert!(bound <= optimum, "{bound} {optimum}");
    }
}

#[test]
fn a_true_bound_below_the_cost_is_confirmed_as_that() {
    let (mut worse, optimum) = with_a_worse_plan();
    (worse.layers[0].proof, worse.layers[0].lower_bound_ps) = (Claim::None, optimum);
    let verified = verify_certificate(&worse.text()).expect("true");
    assert_eq!((verified[0].lower_bound.0, verified[0].proof), (optimum, None));
}

#[test]
fn changed_prices_lose_the_bound() {
    let message =
        changed(|c| c.layers[0].forms[0][0].readers[0].paid[0] = Run::One(-1_000_000_000));
    assert!(message.contains("the prices show a bound of"), "{message}");
    let message = changed(|c| c.layers[0].forms[0][0] = PriceSet::default());
    assert!(message.contains("the prices show a bound of"), "{message}");
    // Without any, a form is bounded by its flops.
    assert!(changed(|c| c.layers[0].forms[0].clear()).contains("the prices show a bound of"));
    assert!(changed(|c| c.layers[0].forms.clear()).contains("the prices show a bound of"));
    assert!(
        changed(|c| c.layers[0].forms.push(Vec::new()))
            .contains("1 forms of the program, and prices for 2")
    );
}

#[test]
fn prices_that_do_not_fit_the_program_are_refused() {
    assert!(changed(|c| c.layers[0].forms[0][0].readers[0].value = 99).contains("does not have"));
    assert!(changed(|c| c.layers[0].forms[0][0].readers[0].reader = 9).contains("does not have"));
    assert!(
        changed(|c| c.layers[0].forms[0][0].readers[0].paid.push(Run::One(0)))
            .contains("another number of prices")
    );
    assert!(
        changed(|c| c.layers[0].forms[0][0].readers[0].paid.push(Run::Many(0, u32::MAX)))
            .contains("another number")
    );
    assert!(
        changed(|c| c.layers[0].forms[0][0].readers[0].paid.clear())
            .contains("another number of prices")
    );
    for price in [i64::MIN, i64::MAX] {
        let message = changed(|c| c.layers[0].forms[0][0].readers[0].paid[0] = Run::One(price));
        assert!(message.contains("a bound of") || message.contains("another number"), "{message}");
    }
    let twice = changed(|c| {
        let first = c.layers[0].forms[0][0].readers[0].clone();
        c.layers[0].forms[0][0].readers.push(first);
    });
    assert!(twice.contains("prices twice"), "{twice}");
}

#[test]
fn a_changed_claim_is_refused() {
    assert!(changed(|c| c.layers[0].cost_ps -= 1).contains("the plan takes"));
    assert!(changed(|c| c.layers[0].lower_bound_ps -= 1).contains("the prices show"));
    assert!(changed(|c| c.layers[0].layer = "other".into()).contains("no such layer"));
    assert!(changed(|c| c.layers.clear()).contains("no layer"));
    assert!(changed(|c| c.schema = "shardc.certificate/1".into()).contains("the schema is"));
}

#[test]
fn other_inputs_make_another_claim() {
    assert!(
        changed(|c| c.inputs.hardware = c.inputs.hardware.replace("270e9", "27e9"))
            .contains("the plan takes")
    );
    assert!(changed(|c| c.inputs.dims = vec![("B".into(), "128".into())]).contains("other dims"));
    assert!(
        changed(|c| c.inputs.mesh = Some(vec![("x".into(), 2), ("y".into(), 2)]))
            .contains("another mesh")
    );
    assert!(
        changed(|c| c.inputs.source = c.inputs.source.replace("gelu", "relu"))
            .contains("nothing that the layer")
    );
    assert!(
        changed(|c| c.inputs.source = c.inputs.source.replace("F_yE_x)", "F_yE)"))
            .contains("as declared")
    );
    assert!(
        changed(|c| c.inputs.source = c.inputs.source.replace("-> bf16 BE_x", "-> bf16 BE"))
            .contains("declared")
    );
    assert!(
        changed(|c| c.inputs.source = c.inputs.source.replace("let h", "let h: B_xF"))
            .contains("layer computes")
    );
    assert!(changed(|c| c.inputs.source.push('}')).contains("does not check"));
    assert!(changed(|c| c.inputs.hardware.clear()).contains("hardware file"));
    assert!(changed(|c| c.inputs.strict = true).contains("nothing that the layer computes"));
}

#[test]
fn a_changed_plan_is_refused() {
    let certificate = certificate(RESIDUAL);
    let plan = certificate.layers[0].plan.clone();
    // Each line is left out, or has the text of another one.
    let lines: Vec<&str> = plan.lines().collect();
    for i in 0..lines.len() {
        let mut changed = certificate.clone();
        let without: Vec<&str> =
            lines.iter().enumerate().filter(|(l, _)| *l != i).map(|(_, t)| *t).collect();
        changed.layers[0].plan = without.join("\n");
        if !lines[i].is_empty() {
            refused(&changed);
        }
    }
    for (from, to) in [
        ("gelu", "relu"),
        ("add", "multiply"),
        ("return y", "return z"),
        ("layer mlp", "layer mlq"),
    ] {
        if plan.contains(from) {
            let mut changed = certificate.clone();
            changed.layers[0].plan = plan.replace(from, to);
            refused(&changed);
        }
    }
    let mut twice = certificate.clone();
    twice.layers[0].plan = format!("{plan}\n{}", plan.replace("shir 1", ""));
    refused(&twice);
}

/// Two kernels of elementwise ops: a kernel has at most 16.
fn chain_of_twenty() -> String {
    let lines: String = (1..20).map(|i| format!("  let v{i} = gelu(v{})\n", i - 1)).collect();
    format!(
        "mesh x=4\ndim B = 4096\ndim E = 4096\nlayer f(v0: bf16 B_xE) -> bf16 B_xE {{\n{lines}  \
            return gelu(v19)\n}}"
    )
}

/// A chain of ops counts a composite as one op. So an op that says that it is a piece of one would
/// begin no kernel, and the plan would be priced at half of what it takes.
#[test]
fn an_op_that_calls_itself_a_piece_of_a_composite_is_refused() {
    let best = certificate(&chain_of_twenty());
    let plan = &best.layers[0].plan;
    let lines: Vec<&str> = plan.lines().collect();
    for i in (0..lines.len()).filter(|i| lines[*i].starts_with('%')) {
        for word in ["q", "gelu", "softmax", "v7"] {
            let mut forged = best.clone();
            let changed = match lines[i].split_once(" ;") {
                Some((before, rule)) => format!("{before} of {word} ;{rule}"),
                None => format!("{} of {word}", lines[i]),
            };
            forged.layers[0].plan = lines
                .iter()
                .enumerate()
                .map(|(j, l)| if j == i { &changed } else { *l })
                .collect::<Vec<_>>()
                .join("\n");
            assert!(refused(&forged).contains("no part of a softmax or norm"), "{changed}");
        }
    }
}

/// Ops that the layer writes out are no composite, even if they compute what a composite would.
#[test]
fn a_norm_that_is_written_out_is_not_taken_for_a_norm_in_pieces() {
    let written = "mesh x=4\ndim B = 64\ndim E = 4096\nlayer f(a: f32 BE_x) -> f32 BE_x {
  let q = einsum(a, a -> B)\n  return a * rsqrt(q / 4096 + 1e-6)\n}";
    let composite = "mesh x=4\ndim B = 64\ndim E = 4096\nlayer f(a: f32 BE_x) -> f32 BE_x {
  return rmsnorm(a over E)\n}";
    let (written, composite) = (certificate(written), certificate(composite));
    assert!(!written.layers[0].plan.contains(" of "), "{}", written.layers[0].plan);
    assert!(composite.layers[0].plan.contains(" of rmsnorm"), "{}", composite.layers[0].plan);
    let mut forged = written.clone();
    forged.layers[0].plan = composite.layers[0].plan.clone();
    assert!(refused(&forged).contains("nothing that the layer computes"));
    // And the other way round: without the word, the pieces are ops that the layer does not have.
    let mut forged = composite.clone();
    forged.layers[0].plan = composite.layers[0].plan.replace(" of rmsnorm", "");
    assert!(refused(&forged).contains("nothing that the layer computes"));
}

#[test]
fn a_plan_that_does_not_fit_is_refused() {
    let small = |c: &mut Certificate| {
        let line = c
            .inputs
            .hardware
            .lines()
            .find(|l| l.starts_with("hbm_bytes"))
            .expect("a key")
            .to_string();
        c.inputs.hardware = c.inputs.hardware.replace(&line, "hbm_bytes = 1000");
    };
    let message = changed(small);
    assert!(
        message.starts_with("the plan does not fit: it needs ") && message.ends_with(" has 1000"),
        "{message}"
    );
}

#[test]
fn a_plan_for_another_chip_is_refused() {
    let other = |c: &mut Certificate| {
        let plan = &mut c.layers[0].plan;
        *plan = plan.replace("hardware tpu-v4-flat", "hardware h100");
    };
    assert_eq!(changed(other), "the plan is for h100, and the inputs are for tpu-v4-flat");
    let unnamed = |c: &mut Certificate| {
        c.layers[0].plan = c.layers[0].plan.replace("hardware tpu-v4-flat\n", "")
    };
    assert_eq!(changed(unnamed), "the plan is for no chip, and the inputs are for tpu-v4-flat");
}

#[test]
fn what_the_prices_prove_is_proven_whatever_the_file_claims() {
    for claim in [Claim::Search, Claim::None, Claim::Certificate] {
        let mut certificate = certificate(RESIDUAL);
        certificate.layers[0].proof = claim;
        assert!(verify_certificate(&certificate.text()).expect("true")[0].is_proven());
    }
}

#[test]
fn phases_and_layers_twice_are_refused() {
    assert!(
        changed(|c| c.inputs.source.push_str("\nphase p { B = 8 }\n")).contains("another phase")
    );
    let two = "\nphase p { B = 8 }\nphase q { B = 16 }\n";
    assert!(changed(|c| c.inputs.source.push_str(two)).contains("one plan for each phase"));
    assert!(
        changed(|c| c.layers[0].plan = c.layers[0].plan.replace("layer mlp", "layer mlp phase p"))
            .contains("phase")
    );
    assert!(changed(|c| c.layers.push(c.layers[0].clone())).contains("twice"));
}

/// Plans of two phases in the other's order, of one alone, or with weights stored for each by
/// itself.
#[test]
fn phases_that_do_not_store_alike_or_are_not_all_there_are_refused() {
    let best = certificate(PHASES);
    let plans: Vec<shard_ir::Plan> = shard_ir::text::parse(&best.layers[0].plan).expect("plans");
    let with = |plans: &[shard_ir::Plan]| {
        let mut forged = best.clone();
        forged.layers[0].plan = shard_ir::text::print_all(plans);
        refused(&forged)
    };
    assert!(with(&[plans[1].clone(), plans[0].clone()]).contains("another phase"));
    assert!(with(&plans[..1]).contains("one plan for each phase"));
    // A step of which the weights are stored otherwise.
    let other = certificate(&PHASES.replace("EF?", "EF_y").replace("FE?", "FE_x"));
    let others = shard_ir::text::parse(&other.layers[0].plan).expect("plans");
    let stored = |plan: &shard_ir::Plan| plan.instructions[1].layout;
    if stored(&others[1]) != stored(&plans[0])
        || others[1].instructions[2].layout != plans[0].instructions[2].layout
    {
        assert!(with(&[plans[0].clone(), others[1].clone()]).contains("in different layouts"));
    }
}

/// A bound on the plans that fit in one memory does not hold for another memory.
#[test]
fn another_memory_is_another_claim() {
    let best = within_tenths(8);
    let limit = best.inputs.memory_limit.expect("limited");
    assert!(verify_certificate(&best.text()).is_ok());
    let with = |limit: Option<u64>| {
        let mut forged = best.clone();
        forged.inputs.memory_limit = limit;
        refused(&forged)
    };
    assert!(with(None).contains("the prices show a bound of"));
    assert!(with(Some(limit * 2)).contains("the prices show a bound of"));
    assert!(with(Some(limit / 2)).contains("does not fit"));
}

#[test]
fn made_up_side_prices_show_no_bound_above_the_optimum() {
    let mut best = within_tenths(8);
    let optimum = best.layers[0].cost_ps;
    best.layers[0].proof = Claim::None;
    // Prices never show this bound, so that the message tells what they show.
    best.layers[0].lower_bound_ps = u64::MAX;
    // Of all plans at once, and not of branches.
    let set = match std::mem::take(&mut best.layers[0].branches).as_slice() {
        [of, ..] => of.prices[0].clone(),
        [] => best.layers[0].forms[0][0].clone(),
    };
    assert!(!set.sides.is_empty(), "prices to change");
    let mut random = Random::new(5);
    for _ in 0..1000 {
        let mut set = set.clone();
        for side in &mut set.sides {
            for run in &mut side.paid {
                let more =
                    (random.index(1 << 30) as i64 - (1 << 29)) * i64::from(random.index(2) == 0);
                *run = match *run {
                    Run::One(price) => Run::One(price + more),
                    Run::Many(price, times) => Run::Many(price + more, times),
                };
            }
        }
        best.layers[0].forms[0] = vec![set];
        let message = refused(&best);
        let shown =
            message.strip_prefix("the prices show a bound of ").and_then(|m| m.split(' ').next());
        let bound: u64 = shown.and_then(|b| b.parse().ok()).unwrap_or_else(|| panic!("{message}"));
        assert!(bound <= optimum, "{bound} {optimum}");
    }
}
