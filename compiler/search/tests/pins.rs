//! What is proven within memory holds with every pin. Random layers whose weights, inputs and
//! results are open are searched at several limits, and again with each of these pinned to each
//! layout.
//!
//! The layers are larger than what a brute force can enumerate. A pinned layer is searched by the
//! same code, but takes another path: what one search misses, another one finds.

use rayon::prelude::*;
use shard_check::{CheckOptions, check_source};
use shard_cost::{Hardware, Memory};
use shard_grammar::SourceFile;
use shard_ir::{AxisSet, Def, LayoutPattern, MeshShape, Program};
use shard_runtime::Random;
use shard_search::{LowerError, LowerOptions, Lowered, Status, least_kept, lower};

/// A layer that is being written, one statement a line.
struct Layer {
    random: Random,
    weights: Vec<String>,
    body: Vec<String>,
    /// The dims of each value, `v0`, `v1` and so on.
    values: Vec<String>,
}

/// Dims that a product may give a value in place of another.
const FEATURES: [&str; 4] = ["E", "F", "D", "K"];

impl Layer {
    fn pick(&mut self, of: usize) -> usize {
        self.random.below(of as u64) as usize
    }

    fn say(&mut self, dims: String, expression: String) {
        let name = format!("v{}", self.values.len());
        self.body.push(format!("  let {name} = {expression}"));
        self.values.push(dims);
    }

    /// A value, the later ones more often.
    fn value(&mut self) -> usize {
        let count = self.values.len();
        if self.random.below(3) == 0 { self.pick(count) } else { count - 1 }
    }

    /// A product with a new weight, which gives a value another feature.
    fn product(&mut self) {
        let at = self.value();
        let dims = self.values[at].clone();
        let from = dims.chars().last().expect("a value has dims").to_string();
        let others: Vec<&str> = FEATURES.into_iter().filter(|to| !dims.contains(to)).collect();
        let to = others[self.pick(others.len())];
        let name = format!("w{}", self.weights.len());
        self.weights.push(format!("{name}: weight bf16 {from}{to}?"));
        let out = dims.replace(&from, to);
        self.say(out.clone(), format!("einsum(v{at}, {name} -> {out})"));
    }

    fn map(&mut self) {
        let at = self.value();
        let dims = self.values[at].clone();
        let last = dims.chars().last().expect("a value has dims");
        let expression = match self.pick(3) {
            0 => format!("gelu(v{at})"),
            1 => format!("rmsnorm(v{at} over {last})"),
            _ => format!("softmax(v{at} over {last})"),
        };
        self.say(dims, expression);
    }

    /// A sum or a product of two values alike.
    fn both(&mut self) {
        let at = self.value();
        let dims = self.values[at].clone();
        let alike: Vec<usize> =
            (0..self.values.len()).filter(|v| *v != at && self.values[*v] == dims).collect();
        if alike.is_empty() {
            return self.map();
        }
        let other = alike[self.pick(alike.len())];
        let sign = ["+", "*"][self.pick(2)];
        self.say(dims, format!("v{at} {sign} v{other}"));
    }

    /// The layer, `n` statements long; its last value and perhaps another are results.
    fn written(mut self, statements: usize) -> String {
        for _ in 0..statements {
            match self.pick(5) {
                0..3 => self.product(),
                3 => self.map(),
                _ => self.both(),
            }
        }
        let last = self.values.len() - 1;
        let mut results = vec![last];
        let other = self.pick(last + 1);
        if other != last && self.random.below(2) == 0 {
            results.push(other);
        }
        let names: Vec<String> = results.iter().map(|v| format!("v{v}")).collect();
        let types: Vec<String> = results
            .iter()
            .enumerate()
            .map(|(i, v)| format!("r{i}: bf16 {}?", self.values[*v]))
            .collect();
        let mesh = ["x=2, y=2", "x=4, y=2", "x=2, y=2, z=2", "x=4, y=4"][self.pick(4)];
        let mut sizes = String::new();
        for dim in ["B", "E", "F", "D", "K"] {
            sizes += &format!("dim {dim} = {}\n", 64 << self.random.below(5));
        }
        let repeat = ["", " repeat 4"][self.pick(2)];
        // Of a stack, what goes in is what comes out.
        let repeat =
            if self.values[last] == self.values[0] && results.len() == 1 { repeat } else { "" };
        let (input, types) = if repeat.is_empty() {
            ("v0: bf16 BE?".to_string(), types.join(", "))
        } else {
            ("v0: bf16 BE?l".to_string(), "r0: bf16 BE?l".to_string())
        };
        let parameters: Vec<String> = std::iter::once(input).chain(self.weights).collect();
        format!(
            "mesh {mesh}\n{sizes}layer f({}) -> ({types}){repeat} {{\n{}\n  return ({})\n}}\n",
            parameters.join(", "),
            self.body.join("\n"),
            names.join(", ")
        )
    }
}

fn source(seed: u64, number: u64) -> String {
    let mut random = Random::for_part(seed, number);
    let statements = 3 + random.below(5) as usize;
    let layer =
        Layer { random, weights: Vec::new(), body: Vec::new(), values: vec!["BE".to_string()] };
    layer.written(statements)
}

fn chip(random: &mut Random, hbm_bytes: u64) -> Hardware {
    let flops = [1e12, 1e13, 1e14][random.below(3) as usize];
    let network = [1e9, 1e10, 1e11][random.below(3) as usize];
    Hardware::parse(&format!(
        "name = \"small\"\nsource = \"a test\"\n[chip]\nflops = {{ bf16 = {flops:e} }}\nhbm_bytes \
         = {hbm_bytes}\nhbm_bandwidth = 1e12\n[network]\nkind = \"flat\"\nbandwidth = \
         {network:e}\nlatency = 0\n"
    ))
    .expect("a hardware file")
}

/// The program with each parameter that is open and has no label in each layout.
fn pinned(program: &Program) -> Vec<Program> {
    let mut all = Vec::new();
    for (at, value) in program.values.iter().enumerate() {
        let Def::Parameter { pattern, .. } = &value.def else { continue };
        if pattern.label.is_some() {
            continue;
        }
        let sizes = program.sizes(&value.dims);
        let shape = MeshShape { mesh: &program.mesh, sizes: &sizes };
        for layout in pattern.candidates(shape, AxisSet::EMPTY, AxisSet::EMPTY) {
            let mut pinned = program.clone();
            if let Def::Parameter { pattern, .. } = &mut pinned.values[at].def {
                *pattern = LayoutPattern::exactly(layout, value.dims.len());
            }
            all.push(pinned);
        }
    }
    all
}

/// The outcome for some layers.
#[derive(Default, Debug)]
struct Tally {
    limits: usize,
    proven: usize,
    /// Limits at which it is proven that no plan fits.
    without: usize,
    pins: usize,
    /// Limits at which no plan was found, though a pin has one, and nothing false was said.
    missed: usize,
}

impl Tally {
    fn and(self, other: Tally) -> Tally {
        Tally {
            limits: self.limits + other.limits,
            proven: self.proven + other.proven,
            without: self.without + other.without,
            pins: self.pins + other.pins,
            missed: self.missed + other.missed,
        }
    }
}

/// Searches layers at limits between the least that weights take and what the fastest plan takes,
/// with at most so many pins of each: as many layers at once as there are cores.
fn held_to_pins(seed: u64, numbers: std::ops::Range<u64>, most_pins: u64) -> Tally {
    let tally = |number| held_to_pins_of(seed, number, most_pins);
    numbers.into_par_iter().map(tally).reduce(Tally::default, Tally::and)
}

/// The same of one layer.
fn held_to_pins_of(seed: u64, number: u64, most_pins: u64) -> Tally {
    let mut tally = Tally::default();
    let options = LowerOptions::default();
    let source = source(seed, number);
    let mut random = Random::for_part(seed ^ 1, number);
    let on = |hbm_bytes: u64| chip(&mut Random::for_part(seed ^ 2, number), hbm_bytes);
    let file = SourceFile::new("test.shard", source.as_str());
    let checked = check_source(&file, &CheckOptions::default());
    assert!(!checked.has_errors(), "{source}{:?}", checked.diagnostics);
    let program = &checked.programs[0];
    let fastest = lower(program, &on(1 << 40), &options).expect("a plan");
    let (least, most) = (least_kept(program), Memory::of(&fastest.plan).peak().0);
    for part in [2, 4, 6, 7] {
        let limit = least + most.saturating_sub(least) / 8 * part;
        let told = format!("seed {seed}, {number}, {limit} bytes\n{source}");
        let chip = on(limit);
        let found = lower(program, &chip, &options);
        tally.limits += 1;
        let bound = match &found {
            Ok(Lowered { optimality, .. }) => {
                tally.proven += usize::from(optimality.status == Status::Proven);
                Some(optimality.lower_bound)
            }
            Err(LowerError::NoPlanFits { proven, .. }) => {
                tally.without += usize::from(*proven);
                proven.then_some(fastest.optimality.cost)
            }
            Err(other) => panic!("{other}\n{told}"),
        };
        let mut a_pin_has_one = false;
        let pins = pinned(program);
        let kept = pins.len() as u64;
        for pin in &pins {
            if random.below(kept) >= most_pins {
                continue;
            }
            tally.pins += 1;
            let with = match lower(pin, &chip, &options) {
                Ok(with) => with,
                Err(LowerError::NoPlanFits { .. } | LowerError::Unreachable { .. }) => continue,
                Err(other) => panic!("{other}\n{told}"),
            };
            a_pin_has_one = true;
            let is_false = match &found {
                Ok(_) => bound.is_some_and(|bound| with.optimality.cost < bound),
                Err(_) => bound.is_some(),
            };
            assert!(
                !is_false,
                "{told}{:?}\nbeaten by {:?}\n{:?}",
                found.map(|found| found.optimality),
                with.optimality,
                pin.values.iter().map(|value| &value.def).collect::<Vec<_>>()
            );
        }
        tally.missed += usize::from(found.is_err() && a_pin_has_one);
    }
    tally
}

#[test]
fn no_pin_of_a_random_layer_beats_what_is_proven_within_memory() {
    let tally = held_to_pins(1, 0..12, 6);
    assert!((tally.proven + tally.without) * 10 > tally.limits * 9, "{tally:?}");
}

#[test]
#[ignore = "slow: 60 layers, each with ten pins at four limits"]
fn no_pin_of_many_random_layers_beats_what_is_proven_within_memory() {
    let tally = held_to_pins(2, 0..60, 10);
    println!("{tally:?}");
    assert!((tally.proven + tally.without) * 10 > tally.limits * 9, "{tally:?}");
}
