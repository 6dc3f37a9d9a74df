//! Compares the forms of a program with those that the checker of certificates enumerates by
//! itself.

use std::collections::{BTreeMap, BTreeSet};

use shard_check::{CheckOptions, check_source};
use shard_grammar::SourceFile;
use shard_ir::{Binary, Def, Op, Program};
use shard_runtime::Random;

use super::forms;
use crate::Limits;

/// Gives each value of a form a number, the same for values that are computed alike. Two forms are
/// equal if the numbers of their values and results are.
#[derive(Default)]
struct Numbers(BTreeMap<String, usize>);

impl Numbers {
    fn of(&mut self, form: &Program) -> (Vec<usize>, Vec<usize>) {
        let mut all: Vec<usize> = Vec::new();
        let mut pins = 0;
        for value in &form.values {
            let mut operands: Vec<usize> =
                value.def.operands().iter().map(|o| all[o.index()]).collect();
            let what = match &value.def {
                Def::Parameter { .. } => format!("{:?}", value.name),
                Def::Constant(number) => format!("{number}"),
                // No two pins are one.
                Def::Pin { pattern, .. } => {
                    pins += 1;
                    format!("{pattern:?} {:?} {:?}", value.span, value.name)
                }
                Def::Op { op, .. } => {
                    let commutes =
                        [Binary::Add, Binary::Mul, Binary::Maximum, Binary::Minimum, Binary::Equal]
                            .map(Op::Binary);
                    if *op == Op::Einsum || commutes.contains(op) {
                        operands.sort_unstable();
                    }
                    format!("{op:?}")
                }
            };
            let key = format!(
                "{what} {operands:?} {:?} {:?} {:?} {}",
                value.dims, value.dtype, value.fold, value.times
            );
            let next = self.0.len();
            all.push(*self.0.entry(key).or_insert(next));
        }
        assert!(pins <= form.values.len());
        let outputs = form.outputs.iter().map(|output| all[output.value.index()]).collect();
        // Values that nothing needs are in the form written alone, so that they do not count.
        let mut values: Vec<usize> =
            form.live_values().into_iter().map(|id| all[id.index()]).collect();
        values.sort_unstable();
        (values, outputs)
    }
}

/// Asserts that the search and the checker have the same forms of a program, and returns how many.
fn compared(program: &Program) -> usize {
    let limits = Limits { forms: 4096, ..Limits::default() };
    let found = forms(program, program.strict, &limits);
    let own = shard_certificate::forms(program);
    let mut numbers = Numbers::default();
    let by_search: BTreeSet<_> = found.all.iter().map(|form| numbers.of(&form.program)).collect();
    let by_checker: BTreeSet<_> = own.all.iter().map(|form| numbers.of(form)).collect();
    assert_eq!(by_search.len(), found.all.len(), "{}: a form twice", program.name);
    assert_eq!(by_checker.len(), own.all.len(), "{}: a form twice", program.name);
    assert_eq!(by_search, by_checker, "{}", program.name);
    assert_eq!(found.cut.is_some(), own.cut.is_some(), "{}", program.name);
    assert_eq!(
        numbers.of(&own.all[0]),
        numbers.of(&found.all[0].program),
        "the one written comes first"
    );
    by_alternatives(program, &own.all, &mut numbers);
    own.all.len()
}

/// Asserts that the programs with one alternative of each cluster are the forms of a program,
/// without the form written where that is none of them.
fn by_alternatives(program: &Program, forms: &[Program], numbers: &mut Numbers) {
    let Ok(choices) = shard_certificate::Choices::of(program) else { return };
    let mut all: Vec<Vec<usize>> = vec![Vec::new()];
    for count in choices.alternatives() {
        all = all
            .iter()
            .flat_map(|picks| (0..count).map(move |pick| [&picks[..], &[pick]].concat()))
            .collect();
    }
    let made: BTreeSet<_> = all
        .iter()
        .filter_map(|picks| choices.form(picks))
        .map(|form| numbers.of(&form.program))
        .collect();
    assert_eq!(
        made.len(),
        choices.count(),
        "{}: two of the same, or one that is none",
        program.name
    );
    let apart = usize::from(choices.written_is_apart());
    let listed: BTreeSet<_> = forms[apart..].iter().map(|form| numbers.of(form)).collect();
    // A strict layer that computes something twice has the form written alone, where nothing else
    // is open.
    assert!(made == listed || (listed.is_empty() && made.len() == 1), "{}", program.name);
}

fn programs(source: &str) -> Vec<Program> {
    let checked = check_source(&SourceFile::new("test", source), &CheckOptions::default());
    let errors: Vec<_> =
        checked.diagnostics.iter().filter(|d| d.is_error()).map(|d| &d.message).collect();
    assert!(errors.is_empty(), "{errors:?}\n{source}");
    checked.programs
}

#[test]
fn the_checker_has_the_same_forms_of_every_example() {
    let mut open =
        vec![std::path::PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples"))];
    let (mut files, mut several) = (0, 0);
    while let Some(path) = open.pop() {
        if path.is_dir() && !path.ends_with("errors") {
            open.extend(
                std::fs::read_dir(&path)
                    .expect("a folder")
                    .map(|entry| entry.expect("an entry").path()),
            );
        } else if path.extension().is_some_and(|extension| extension == "shard") {
            files += 1;
            for program in programs(&std::fs::read_to_string(&path).expect("text")) {
                several += usize::from(compared(&program) > 1);
            }
        }
    }
    assert!(files > 30 && several > 0, "{files} {several}");
}

#[test]
fn the_checker_has_the_same_forms_of_small_and_of_random_programs() {
    let mut most = 0;
    for text in super::tests::PROGRAMS {
        for sizes in [[2, 2, 2, 2, 2], [4, 1, 2, 3, 1], [64, 4, 64, 4, 64], [8, 64, 2, 128, 4]] {
            most = most.max(compared(&programs(&super::tests::source(text, sizes))[0]));
        }
    }
    // Nests of products and sums of square matrices, some of them shared.
    let mut random = Random::for_part(12, 0);
    for _ in 0..400 {
        let mut names: Vec<String> = ["a", "b", "c", "d"].map(String::from).to_vec();
        let mut lines = String::new();
        for i in 0..2 + random.between(0, 4) {
            let mut pick = || names[random.between(0, names.len() as i64 - 1) as usize].clone();
            let (one, other) = (pick(), pick());
            let right = match random.between(0, 6) {
                0 => format!("{one} + {other}"),
                1 => format!("{one} - {other}"),
                2 => format!("relu({one})"),
                3 => format!("einsum({one}, rename({other}, B -> C), u -> AB)"),
                4 => format!("einsum({one} -> BA)"),
                _ => format!("einsum(einsum({one}, w -> AC), u -> AB)"),
            };
            let right =
                if right.ends_with("BA)") { format!("einsum({one}, v -> AB)") } else { right };
            lines.push_str(&format!(" let v{i} = {right}\n"));
            names.push(format!("v{i}"));
        }
        let last = names.last().expect("a name");
        let source = format!(
            "mesh x=2\ndim A = 4\ndim B = 8\ndim C = 8\nlayer f(a: f32 AB, b: f32 AB, c: f32 AB, \
                d: f32 AB, w: f32 BC, u: f32 CB, v: f32 B) \
             -> f32 AB {{\n{lines} return {last}\n}}"
        );
        let checked =
            check_source(&SourceFile::new("test", source.as_str()), &CheckOptions::default());
        if checked.diagnostics.iter().all(|d| !d.is_error()) {
            most = most.max(compared(&checked.programs[0]));
        }
    }
    assert!(most > 10, "{most}");
}
