//! Certificates whose plans are divided by how a weight is stored, or by the layout of a label.

use shard_runtime::Random;
use shard_search::certificate::{
    Branch, Branches, Certificate, Claim, PriceSet, Run, Unshown, verify_certificate,
};
use shard_search::{Limits, Proof, Stop};

use super::forged::accepted;
use super::made::{SMALL, TIGHT, within_tenths};
use super::programs::{certificate_of, certificate_within, inputs_on, refused, shown};

/// A certificate within some memory, whose plans are divided by what is stored.
pub(crate) fn divided() -> Certificate {
    let found =
        (4..10).map(within_tenths).find(|certificate| !certificate.layers[0].branches.is_empty());
    found.expect("some memory in which one set of prices is not enough")
}

/// A layer with two labels, where each layout of a label is cheap for some op.
const LABELS: &str = "mesh x=2, y=2, z=2
dim B = 64
dim E = 1024
dim F = 2048
layer block(a: bf16 BE?l, w: weight bf16 EF?, u: weight bf16 FE?, c: cache bf16 BF?m) -> (y: bf16 BE?l, d: bf16 BF?m) {
  let h = einsum(a, w -> BF) + c
  return (einsum(gelu(h), u -> BE) + softmax(a over E), h)
}";

/// A certificate whose plans are divided by the layouts of a label.
pub(crate) fn divided_by_label() -> Certificate {
    let mut best = certificate_of(inputs_on(SMALL, LABELS));
    // Any division of the plans is allowed, also where one set of prices is enough.
    if best.layers[0].branches.is_empty() {
        let set = best.layers[0].forms[0][0].clone();
        let leaf = || Branch::Leaf { prices: 0 };
        let tree = vec![Branch::Label { label: 0, layouts: vec![0, 2] }, leaf(), leaf()];
        best.layers[0].branches = vec![Branches { form: 0, prices: vec![set], tree }];
        best.layers[0].forms[0].clear();
    }
    best
}

#[test]
fn what_one_set_of_prices_does_not_show_of_all_several_show_of_branches() {
    let best = divided();
    let of = &best.layers[0].branches[0];
    assert!(of.tree.len() >= 3 && of.tree.len() % 2 == 1, "{:?}", of.tree);
    let layer = shown(&best);
    assert_eq!((layer.proof, layer.unshown), (Some(Proof::Certificate), None), "{layer:?}");
    // Each set of prices alone shows less.
    for set in &of.prices {
        let mut whole = best.clone();
        (whole.layers[0].branches, whole.layers[0].forms) = (Vec::new(), vec![vec![set.clone()]]);
        assert!(refused(&whole).contains("the prices show a bound of"), "{set:?}");
    }
}

#[test]
fn a_certificate_whose_time_is_up_has_the_prices_of_its_first_form() {
    let stop = Stop::default();
    stop.time_is_up();
    let limits = Limits { stop, ..Limits::default() };
    let in_time = divided();
    let best = certificate_within(in_time.inputs.clone(), &limits);
    assert!(best.layers[0].branches.is_empty(), "{:?}", best.layers[0].branches);
    let (layer, whole) = (shown(&best), shown(&in_time));
    assert_eq!((layer.proof, layer.unshown), (Some(Proof::Search), Some(Unshown::Time)));
    assert!((1..whole.lower_bound.0).contains(&layer.lower_bound.0), "{layer:?}");
}

#[test]
fn plans_are_divided_by_the_layouts_of_a_label() {
    assert!(verify_certificate(&divided_by_label().text()).is_ok());
}

/// Where activations do not fit, the plans are not divided by what is stored.
#[test]
fn what_only_the_search_rules_out_is_said_to_be_so() {
    let mut said = 0;
    for tenths in 3..10 {
        let certificate = within_tenths(tenths);
        let layer = shown(&certificate);
        eprintln!(
            "{tenths}: {:?} {:?} {}",
            layer.proof,
            layer.unshown,
            certificate.layers[0].branches.len()
        );
        match layer.proof {
            Some(Proof::Certificate) => assert_eq!(layer.unshown, None),
            Some(Proof::Search) => {
                assert_eq!(layer.unshown, Some(Unshown::Searched));
                said += 1;
            }
            None => {}
        }
    }
    eprintln!("{said} by search");
}

#[test]
fn branches_that_do_not_cover_all_plans_are_refused() {
    let best = divided();
    let with = |change: &dyn Fn(&mut Branches)| {
        let mut forged = best.clone();
        change(&mut forged.layers[0].branches[0]);
        refused(&forged)
    };
    let last = best.layers[0].branches[0].tree.len() - 1;
    let leaf = |prices: u32| Branch::Leaf { prices };
    assert!(with(&|of| of.tree.truncate(last)).contains("do not cover all plans"));
    assert!(with(&|of| of.tree.clear()).contains("do not cover all plans"));
    assert!(with(&|of| of.tree.push(leaf(0))).contains("more behind the tree"));
    assert!(with(&|of| of.tree[last] = leaf(99)).contains("which there are not"));
    assert!(
        with(&|of| of.tree[0] = Branch::Stored { stored: 0, up_to: 0 })
            .contains("no weight or cache")
    );
    assert!(
        with(&|of| of.tree[0] = Branch::Stored { stored: 99, up_to: 0 })
            .contains("no weight or cache")
    );
    assert!(
        with(&|of| of.tree[0] = Branch::Label { label: 0, layouts: vec![] }).contains("no label 0")
    );
    assert!(with(&|of| of.form = 1).contains("does not have"));
    let mut twice = best.clone();
    twice.layers[0].branches.push(best.layers[0].branches[0].clone());
    assert!(refused(&twice).contains("twice of one"));
    let mut named = divided_by_label();
    named.layers[0].branches[0].tree[0] = Branch::Label { label: 0, layouts: vec![9999] };
    assert!(refused(&named).contains("and another is named"));
}

/// Made-up divisions and prices, each of which shows a true bound.
#[test]
fn no_tree_shows_a_bound_above_the_optimum() {
    let mut random = Random::new(31);
    let mut tried = 0;
    for best in [divided(), divided_by_label()] {
        let optimum = best.layers[0].cost_ps;
        let program = &shard_ir::text::parse(&best.layers[0].plan).expect("a plan")[0];
        let parameters = program.instructions.len().min(5);
        let sets = best.layers[0].branches[0].prices.clone();
        for _ in 0..600 {
            let mut forged = best.clone();
            let layer = &mut forged.layers[0];
            (layer.proof, layer.lower_bound_ps) = (Claim::None, u64::MAX);
            let mut tree = Vec::new();
            let mut open = 1;
            while open > 0 {
                let division = match random.index(if tree.len() > 12 { 1 } else { 4 }) {
                    0 | 1 => Branch::Leaf { prices: random.index(sets.len()) as u32 },
                    2 => Branch::Stored {
                        stored: random.index(parameters) as u32,
                        up_to: (random.index(1 << 24) as u64) << random.index(8),
                    },
                    _ => Branch::Label {
                        label: random.index(2) as u16,
                        layouts: (0..random.index(6)).map(|_| random.index(8) as u32).collect(),
                    },
                };
                open = if matches!(division, Branch::Leaf { .. }) { open - 1 } else { open + 1 };
                tree.push(division);
            }
            let prices: Vec<PriceSet> = sets.iter().map(|set| made_up(&mut random, set)).collect();
            layer.branches = vec![Branches { form: 0, prices, tree }];
            let message = refused(&forged);
            if let Some(shown) = message.strip_prefix("the prices show a bound of ") {
                let shown: u64 =
                    shown.split(' ').next().and_then(|b| b.parse().ok()).expect("a bound");
                assert!(shown <= optimum, "{shown} {optimum}");
                tried += 1;
            }
            assert!(!message.contains("below the bound"), "{message}");
        }
    }
    eprintln!("{tried} trees");
    assert!(tried >= 200, "{tried}");
}

/// A set with some of its prices changed.
fn made_up(random: &mut Random, from: &PriceSet) -> PriceSet {
    let mut set = from.clone();
    let readers = set.readers.iter_mut().flat_map(|of| &mut of.paid);
    for run in readers.chain(set.sides.iter_mut().flat_map(|of| &mut of.paid)) {
        let more = (random.index(1 << 30) as i64 - (1 << 29)) * i64::from(random.index(4) == 0);
        *run = match *run {
            Run::One(price) => Run::One(price.saturating_add(more)),
            Run::Many(price, times) => Run::Many(price.saturating_add(more), times),
        };
    }
    set
}

/// A division that leaves plans out, and a leaf of another branch.
#[test]
fn leaves_that_change_places_prove_nothing_false() {
    let best = divided();
    let count = best.layers[0].branches[0].tree.len();
    for one in 0..count {
        for other in 0..count {
            let mut forged = best.clone();
            forged.layers[0].branches[0].tree.swap(one, other);
            accepted(&forged.text(), &format!("entries {one} and {other} of the tree"));
        }
    }
    assert!(
        certificate_of(inputs_on(SMALL, TIGHT)).layers[0].branches.is_empty(),
        "with room for all, nothing is divided"
    );
}
