//! Forms that are too many to be bounded one by one.

use shard_check::{CheckOptions, check_source};
use shard_cost::Hardware;
use shard_grammar::SourceFile;
use shard_ir::Program;
use shard_runtime::Random;
use shard_search::certificate::{
    AlternativePrices, Certificate, Claim, Found, Inputs, PriceSet, ReaderPrices, Run, certify,
    verify_certificate,
};
use shard_search::{Limits, LowerOptions, Proof, lower};

use super::programs::{CHIP, inputs_on, refused, shown};
use crate::common::blocks::blocks;
use crate::common::dice::Dice;

/// Blocks of latent attention, in which the product of the cache and its weights may be absorbed
/// into the query.
fn latent(n: usize) -> String {
    let sizes = [("B", 64), ("E", 1024), ("S", 1024), ("H", 8), ("D", 128), ("C", 256)];
    let sizes: String = sizes.iter().map(|(dim, size)| format!("dim {dim} = {size}\n")).collect();
    let (mut parameters, mut body) = ("x0: bf16 BE_xy".to_string(), String::new());
    for i in 0..n {
        parameters += &format!(
            ", wq{i}: weight bf16 EHD?, wk{i}: weight bf16 CHD?, wv{i}: weight bf16 CHD?, wo{i}: \
                weight bf16 HDE?, \
             c{i}: cache bf16 BSC?"
        );
        body += &format!(
            "  let q{i} = einsum(rmsnorm(x{i} over E), wq{i} -> BHD)\n  let k{i} = einsum(c{i}, \
                wk{i} -> BSHD)\n  \
             let p{i} = softmax(einsum(q{i}, k{i} -> BHS) over S)\n  \
             let u{i} = einsum(einsum(p{i}, c{i} -> BHC), wv{i} -> BHD)\n  let x{} = x{i} + \
             einsum(u{i}, wo{i} -> BE)\n",
            i + 1
        );
    }
    format!(
        "mesh x=4, y=2\n{sizes}layer latent({parameters}) -> bf16 BE_xy {{\n{body}  return x{n}\n}}"
    )
}

fn program(inputs: &Inputs) -> Program {
    let file = SourceFile::new(inputs.file.as_str(), inputs.source.as_str());
    let mut checked = check_source(&file, &CheckOptions::default());
    let errors: Vec<_> =
        checked.diagnostics.iter().filter(|d| d.is_error()).map(|d| &d.message).collect();
    assert!(errors.is_empty(), "{errors:?}\n{}", inputs.source);
    checked.programs.swap_remove(checked.roots[0])
}

fn chip() -> Hardware {
    Hardware::parse(CHIP).expect("a chip")
}

/// The certificate of a program whose forms are bounded together if they are more than `forms`; and
/// the time of its best plan, where all forms are looked at one by one.
fn with_forms(source: &str, forms: usize) -> (Certificate, u64) {
    let (inputs, chip) = (inputs_on(CHIP, source), chip());
    let program = program(&inputs);
    let limits = Limits { forms, ..Limits::default() };
    let options = LowerOptions { limits: limits.clone(), ..LowerOptions::default() };
    let lowered = lower(&program, &chip, &options).unwrap_or_else(|e| panic!("{e}\n{source}"));
    let found = [Found { plans: vec![&lowered.plan], status: lowered.optimality.status }];
    let best = match forms {
        64 => lowered.optimality.cost.0,
        _ => {
            let limits = Limits { forms: 4096, ..Limits::default() };
            let options = LowerOptions { limits, ..LowerOptions::default() };
            lower(&program, &chip, &options).expect("a plan").optimality.cost.0
        }
    };
    (certify(inputs, &found, &limits).unwrap_or_else(|e| panic!("{e}\n{source}")), best)
}

/// Two blocks, whose forms are bounded together.
pub(crate) fn of_two_blocks() -> Certificate {
    with_forms(&latent(2), 1).0
}

#[test]
fn blocks_of_more_forms_than_can_be_listed_are_proven_by_the_prices_of_one() {
    for n in [8, 16] {
        let (certificate, _) = with_forms(&latent(n), 64);
        let together = certificate.layers[0].together.as_ref().expect("bounded together");
        assert_eq!((together.picks.len(), certificate.layers[0].forms.len()), (n, 0));
        let layer = shown(&certificate);
        assert_eq!(layer.proof, Some(Proof::Certificate), "{n}: {layer:?}");
    }
}

#[test]
fn a_bound_on_all_forms_together_is_one_on_each() {
    let (mut tried, mut proven, mut apart) = (0, 0, 0);
    for seed in 0..std::env::var("SHARDC_PROGRAMS").map_or(30, |n| n.parse().expect("a number")) {
        let source = blocks(&mut Dice(seed));
        let (certificate, best) = with_forms(&source, 1);
        let Some(together) = &certificate.layers[0].together else { continue };
        let layer = shown(&certificate);
        assert!(
            layer.lower_bound.0 <= best,
            "seed {seed}: {layer:?}, and the best plan takes {best} ps\n{source}"
        );
        tried += 1;
        proven += usize::from(layer.proof == Some(Proof::Certificate));
        apart += usize::from(together.picks.len() > 1);
    }
    eprintln!("{tried} bounded together, {proven} proven, {apart} of several clusters");
    assert!(tried >= 15 && proven * 4 >= tried * 3 && apart >= 5, "{tried} {proven} {apart}");
}

/// Made-up prices.
fn made_up(random: &mut Random, readers: &mut [ReaderPrices]) {
    let price = |random: &mut Random| match random.index(4) {
        0 => 0,
        1 => random.index(1 << 20) as i64,
        2 => random.index(1 << 40) as i64,
        _ => -(random.index(1 << 40) as i64),
    };
    for run in readers.iter_mut().flat_map(|of| &mut of.paid) {
        *run = match (random.index(6), *run) {
            (0, Run::One(_)) => Run::One(price(random)),
            (0, Run::Many(_, times)) => Run::Many(price(random), times),
            (1, Run::One(p)) => Run::One(p.saturating_add(price(random) >> 20)),
            (_, run) => run,
        };
    }
}

#[test]
fn no_prices_of_many_forms_show_a_bound_above_the_optimum() {
    let mut tried = 0;
    let mut random = Random::new(23);
    for source in [latent(2), blocks(&mut Dice(3)), blocks(&mut Dice(8)), blocks(&mut Dice(21))] {
        let (best, optimum) = with_forms(&source, 1);
        if best.layers[0].together.is_none() {
            continue;
        }
        for _ in 0..400 {
            let mut forged = best.clone();
            let layer = &mut forged.layers[0];
            (layer.proof, layer.lower_bound_ps) = (Claim::None, u64::MAX);
            let together = layer.together.as_mut().expect("bounded together");
            match random.index(3) {
                0 => made_up(&mut random, &mut together.prices.readers),
                1 => together
                    .alternatives
                    .iter_mut()
                    .for_each(|of| made_up(&mut random, &mut of.readers)),
                _ => {
                    made_up(&mut random, &mut together.prices.readers);
                    together.alternatives.retain(|_| random.index(2) == 0);
                }
            }
            // The claimed bound is false, so that the message tells what is shown.
            let message = refused(&forged);
            let shown = message
                .strip_prefix("the prices show a bound of ")
                .and_then(|m| m.split(' ').next());
            let shown: u64 =
                shown.and_then(|b| b.parse().ok()).unwrap_or_else(|| panic!("{message}"));
            assert!(shown <= optimum, "{shown} {optimum}\n{source}");
            tried += 1;
        }
    }
    eprintln!("{tried} sets of prices made up");
    assert!(tried >= 1200, "{tried}");
}

#[test]
fn prices_of_a_form_are_of_no_other() {
    let (best, optimum) = with_forms(&latent(2), 1);
    let changed = |change: &dyn Fn(&mut Certificate)| {
        let mut forged = best.clone();
        change(&mut forged);
        forged
    };
    fn of(certificate: &mut Certificate) -> &mut shard_search::certificate::Together {
        certificate.layers[0].together.as_mut().expect("bounded together")
    }
    for pick in 0..8 {
        let forged = changed(&|c| of(c).picks[0] = pick);
        if let Ok(verified) = verify_certificate(&forged.text()) {
            assert!(verified[0].lower_bound.0 <= optimum, "{verified:?}");
        }
    }
    assert!(
        refused(&changed(&|c| of(c).picks[0] = 99))
            .contains("a form that the program does not have")
    );
    assert!(
        refused(&changed(&|c| of(c).picks.clear()))
            .contains("a form that the program does not have")
    );
    let twice = changed(&|c| {
        let first = of(c).alternatives[0].clone();
        of(c).alternatives.push(first);
    });
    assert!(refused(&twice).contains("has prices twice"));
    let none = changed(&|c| of(c).alternatives[0].alternative = 99);
    assert!(refused(&none).contains("has no other alternative 99"));
    let own = changed(&|c| {
        let (cluster, alternative) = (1, of(c).picks[1]);
        of(c).alternatives = vec![AlternativePrices { cluster, alternative, readers: Vec::new() }];
    });
    assert!(refused(&own).contains("has no other alternative"));
    // Without prices a reader pays nothing: the bound is lower, and as true.
    let bare =
        changed(&|c| of(c).prices = PriceSet { scale: of(c).prices.scale, ..PriceSet::default() });
    assert!(refused(&bare).contains("the prices show a bound of"));
    // Prices of single forms stand beside prices of all forms together.
    let both = changed(&|c| c.layers[0].forms = vec![vec![PriceSet::default()]]);
    assert!(refused(&both).contains("0 forms of the program, and prices for 1"));
    let neither = changed(&|c| c.layers[0].together = None);
    assert!(refused(&neither).contains("the prices show a bound of"));
}

/// Values that cross the border of a cluster have the prices of the solved form, whatever is chosen
/// in the cluster.
#[test]
fn an_alternative_has_no_prices_of_its_own_for_those_outside() {
    let (best, _) = with_forms(&latent(2), 1);
    let mut refused_borders = 0;
    let whole = best.layers[0].together.clone().expect("bounded together");
    for of in &whole.prices.readers {
        let mut forged = best.clone();
        let together = forged.layers[0].together.as_mut().expect("bounded together");
        let last = together.alternatives.len() - 1;
        together.alternatives[last].readers.push(of.clone());
        let message = refused(&forged);
        refused_borders += usize::from(message.contains("is outside of it"));
    }
    assert!(refused_borders > 0);
}
