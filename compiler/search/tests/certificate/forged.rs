//! Thousands of forgeries: every field of a certificate and every word of its plan is changed. What
//! is still accepted must be true: a plan that is proven takes as long as the best plan of the
//! inputs, which is searched for anew.

use serde_json::Value;
use shard_check::{CheckOptions, check_source};
use shard_cost::Hardware;
use shard_grammar::SourceFile;
use shard_search::certificate::{Certificate, verify_certificate};
use shard_search::{LowerOptions, lower};

use super::programs::{RESIDUAL, certificate};

/// Layers with shared values, ops of every kind that prices tell apart, a composite in pieces, a
/// label and a pin, and a layer that calls another.
const OTHERS: [&str; 3] = [
    "mesh x=4
dim B = 64
dim E = 4096
layer norm(a: f32 BE_x, g: weight f32 E_x) -> f32 BE_x {
  let n = rmsnorm(a over E)
  return gelu(n * g) + n
}",
    "mesh x=2, y=2
dim B = 64
dim C = 128
dim D = 256
layer f(a: bf16 BC?l, w: weight bf16 CD_x, u: weight bf16 D_xC) -> bf16 BC?l {
  let h: B_yD? = gelu(einsum(a, w -> BD))
  return einsum(h, u -> BC) + softmax(a over C)
}
layer g(a: bf16 B_xC, b: bf16 B_xC) -> bf16 BC {
  return inner(a, b) * 2.0
}
layer inner(p: bf16 BC?, q: bf16 BC?) -> bf16 BC? {
  return relu(p) + q
}",
    "mesh x=4
dim B = 4096
dim E = 4096
layer f(v: bf16 B_xE) -> bf16 B_xE {
  return gelu(gelu(gelu(gelu(gelu(gelu(gelu(gelu(gelu(gelu(gelu(gelu(gelu(gelu(gelu(gelu(gelu(gelu(v))))))))))))))))))
}",
];

/// A value that a called layer reads whole is moved in that layer.
const MOVED_IN_A_CALL: &str = "mesh x=4
dim B = 64
dim E = 128
dim F = 65536
layer f(a: bf16 B_xE, w: weight bf16 EF_x) -> bf16 BF_x {
  return inner(a, w)
}
layer inner(p: bf16 BE?, w: weight bf16 EF?) -> bf16 BF? {
  return gelu(einsum(p, w -> BF))
}";

#[test]
fn a_move_is_in_the_layers_of_its_reader() {
    let best = certificate(MOVED_IN_A_CALL);
    let plan = &best.layers[0].plan;
    assert!(
        plan.lines()
            .any(|line| line.contains(" = all-gather %0 ") && line.contains(" @a in inner")),
        "{plan}"
    );
    assert!(verify_certificate(&best.text()).expect("true")[0].is_proven());
}

/// The time of the best plan of a layer with the inputs of a certificate, in picoseconds; `None`
/// where there is no plan.
fn optimum(certificate: &Certificate, layer: &str) -> Option<u64> {
    let inputs = &certificate.inputs;
    let file = SourceFile::new(inputs.file.as_str(), inputs.source.as_str());
    let options = CheckOptions {
        dim_overrides: inputs.dims.clone(),
        mesh_override: inputs.mesh.clone(),
        strict: inputs.strict,
    };
    let checked = check_source(&file, &options);
    let program = checked.programs.iter().find(|p| p.name == layer)?;
    let chip = Hardware::parse(&inputs.hardware).ok()?;
    let chip = inputs.memory_limit.map_or(chip.clone(), |bytes| chip.with_memory_limit(bytes));
    let options =
        LowerOptions { fuse: inputs.fuse, strict: inputs.strict, ..LowerOptions::default() };
    lower(program, &chip, &options).ok().map(|lowered| lowered.optimality.cost.0)
}

/// Whether a file is accepted; asserts that what it then says is true.
pub(crate) fn accepted(text: &str, what: &str) -> bool {
    let Ok(verified) = verify_certificate(text) else { return false };
    let certificate: Certificate = serde_json::from_str(text).expect("it was read");
    for layer in verified {
        let best = optimum(&certificate, &layer.layer);
        let best = best.unwrap_or_else(|| panic!("{what}: {layer:?} of a layer without a plan"));
        assert!(
            layer.lower_bound.0 <= best,
            "{what}: {layer:?}, and the best plan takes {best} ps"
        );
        assert!(
            !layer.is_proven() || layer.cost.0 == best,
            "{what}: {layer:?}, and the best plan takes {best} ps"
        );
    }
    true
}

/// The places of all leaves of a document, and of all arrays and objects.
fn places(value: &Value, at: String, out: &mut Vec<String>) {
    match value {
        Value::Object(fields) => {
            fields.iter().for_each(|(key, v)| places(v, format!("{at}/{key}"), out))
        }
        Value::Array(items) => {
            items.iter().enumerate().for_each(|(i, v)| places(v, format!("{at}/{i}"), out))
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
    out.push(at);
}

/// Other values for a place.
fn others(value: &Value) -> Vec<Value> {
    match value {
        Value::Null => vec![Value::from(1), Value::from("x"), serde_json::json!([["x", 2]])],
        Value::Bool(is) => vec![Value::from(!is), Value::Null],
        Value::Number(number) => {
            let n = number.as_i64().unwrap_or(i64::MAX);
            let all = [
                0,
                1,
                -1,
                n.saturating_add(1),
                n.saturating_sub(1),
                n.saturating_mul(2),
                n / 2,
                i64::MAX,
            ];
            all.into_iter().filter(|m| *m != n).map(Value::from).collect()
        }
        Value::String(text) => ["", "x", "search", "none", "certificate"]
            .into_iter()
            .filter(|other| other != text)
            .map(Value::from)
            .chain([Value::Null])
            .collect(),
        Value::Array(items) => {
            let mut all = vec![Value::Null, Value::Array(Vec::new())];
            if let Some(first) = items.first() {
                all.push(Value::Array(items.iter().chain([first]).cloned().collect()));
                all.push(Value::Array(items[1..].to_vec()));
                all.push(Value::Array(items.iter().rev().cloned().collect()));
            }
            all.retain(|other| other.as_array() != Some(items));
            all
        }
        Value::Object(_) => vec![Value::Null, Value::Array(Vec::new()), serde_json::json!({})],
    }
}

/// Changes every field that is no price, and some of the prices. Returns the number of forgeries,
/// and of those that are accepted.
fn change_every_field(best: &Certificate) -> (usize, usize) {
    let (mut tried, mut held) = (0, 0);
    let whole: Value = serde_json::from_str(&best.text()).expect("JSON");
    let mut all = Vec::new();
    places(&whole, String::new(), &mut all);
    // There are many prices, all alike, of which tampered.rs makes up thousands.
    let is_price = |place: &String| place.contains("/paid/");
    let prices: Vec<&String> = all.iter().filter(|p| is_price(p)).collect();
    let step = prices.len() / 60 + 1;
    let some = prices.into_iter().step_by(step);
    for place in all.iter().filter(|p| !is_price(p)).chain(some) {
        for other in others(whole.pointer(place).expect("a place")) {
            let mut changed = whole.clone();
            *changed.pointer_mut(place).expect("a place") = other.clone();
            held += usize::from(accepted(&changed.to_string(), &format!("{place} = {other}")));
            tried += 1;
        }
    }
    (tried, held)
}

#[test]
fn no_changed_field_proves_anything_false() {
    let (mut tried, mut held) = (0, 0);
    for source in [RESIDUAL].into_iter().chain(OTHERS) {
        let (more, true_still) = change_every_field(&certificate(source));
        (tried, held) = (tried + more, held + true_still);
    }
    eprintln!("{tried} forgeries, {held} accepted, all true");
    assert!(tried > 1000 && held > 0);
}

#[test]
fn no_changed_field_of_branches_or_of_forms_bounded_together_proves_anything_false() {
    let (mut tried, mut held) = (0, 0);
    for best in [
        super::branches::divided(),
        super::branches::divided_by_label(),
        super::together::of_two_blocks(),
    ] {
        let (more, true_still) = change_every_field(&best);
        eprintln!("{more} forgeries, {true_still} accepted, all true");
        (tried, held) = (tried + more, held + true_still);
    }
    assert!(tried > 2000 && held > 0, "{tried} {held}");
}

/// The words of a text: runs of letters, digits and underscores, single signs, and single blanks.
fn words(text: &str) -> Vec<&str> {
    let mut all = Vec::new();
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let is_word = |c: char| c.is_alphanumeric() || c == '_';
        let end = if is_word(first) {
            rest.find(|c| !is_word(c)).unwrap_or(rest.len())
        } else {
            first.len_utf8()
        };
        all.push(&rest[..end]);
        rest = &rest[end..];
    }
    all
}

#[test]
fn no_changed_word_of_a_plan_proves_anything_false() {
    let (mut tried, mut held) = (0, 0);
    for source in [RESIDUAL].into_iter().chain(OTHERS) {
        let best = certificate(source);
        for (l, layer) in best.layers.iter().enumerate() {
            // The rules behind `;` are remarks, which another test is about.
            let plan: String = layer
                .plan
                .lines()
                .map(|line| format!("{}\n", line.split(" ;").next().unwrap_or_default()))
                .collect();
            let all = words(&plan);
            let mut known: Vec<&str> =
                all.iter().copied().filter(|w| !w.trim().is_empty()).collect();
            known.sort_unstable();
            known.dedup();
            let step = (all.len() * known.len()) / 2500 + 1;
            let pairs = (0..all.len()).flat_map(|at| known.iter().map(move |other| (at, *other)));
            let pairs =
                pairs.filter(|(at, other)| !all[*at].trim().is_empty() && all[*at] != *other);
            for (at, other) in pairs.step_by(step) {
                for changed in [vec![other], vec![all[at], " ", other], Vec::new()] {
                    let words = all[..at].iter().chain(&changed).chain(&all[at + 1..]);
                    let mut forged = best.clone();
                    forged.layers[l].plan = words.copied().collect();
                    let what = format!(
                        "word {at}, `{}`, as {changed:?}\n{}",
                        all[at], forged.layers[l].plan
                    );
                    // The forger states the right time of the forged plan, since another test is
                    // about that.
                    held += usize::from(accepted(&forged.text(), &what));
                    let says = shard_ir::text::parse(&forged.layers[l].plan);
                    if let Some(plan) = says.ok().filter(|p| p.len() == 1).map(|mut p| p.remove(0))
                        && shard_ir::verify::verify(&plan).is_ok()
                    {
                        let chip = Hardware::parse(&forged.inputs.hardware).expect("a chip");
                        forged.layers[l].cost_ps =
                            shard_cost::price(&plan, &chip).totals.serial_time.0;
                        held += usize::from(accepted(&forged.text(), &what));
                    }
                    tried += 1;
                }
            }
        }
    }
    eprintln!("{tried} forgeries, {held} accepted, all true");
    assert!(tried > 5000);
}

/// A plan names the value of the source that each instruction makes, and its layers; readers rely
/// on that.
#[test]
fn names_that_are_not_those_of_the_values_are_refused() {
    let best = certificate(OTHERS[1]);
    for (layer, from, to) in [
        (0, " @h", " @a"),
        (0, " @h", " @nothing"),
        (1, " in inner", " in outer"),
        (1, " in inner", ""),
    ] {
        let mut forged = best.clone();
        let plan = &mut forged.layers[layer].plan;
        assert!(plan.contains(from), "{plan}");
        *plan = plan.replacen(from, to, 1);
        let error = verify_certificate(&forged.text()).expect_err("a forged name").message;
        assert!(error.contains("is called what it is not"), "{error}");
    }
}
