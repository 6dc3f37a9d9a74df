//! Nothing that is typed makes the checker panic or hang, and every label lies in the file.

use std::path::Path;

use crate::common::check;
use shard_check::Diagnostic;

/// A small generator of numbers, the same on every machine.
struct Numbers(u64);

impl Numbers {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }
    fn below(&mut self, n: usize) -> usize {
        (self.next() % n.max(1) as u64) as usize
    }
}

fn examples() -> Vec<String> {
    let mut files = Vec::new();
    let mut folders = vec![Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples")];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).expect("examples").flatten() {
            let path = entry.path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|e| e == "shard") {
                files.push(path);
            }
        }
    }
    files.sort();
    files
        .iter()
        .map(|f| std::fs::read_to_string(f).expect("text"))
        .filter(|t| t.len() < 4000)
        .collect()
}

fn holds(text: &str, diagnostics: &[Diagnostic]) {
    assert!(diagnostics.len() <= 201);
    for d in diagnostics {
        let edits = d.edits().map(|e| e.span);
        for span in d.labels.iter().map(|l| l.span).chain(edits) {
            assert!(
                span.start <= span.end && span.end <= text.len(),
                "{}: {span:?} in {text:?}",
                d.code
            );
            assert!(
                text.is_char_boundary(span.start) && text.is_char_boundary(span.end),
                "{}: {text:?}",
                d.code
            );
        }
        assert!(!d.message.contains('\n'), "{}: {}", d.code, d.message);
    }
}

const WORDS: &[&str] = &[
    "let ",
    "return ",
    "layer ",
    "dim ",
    "mesh ",
    "x",
    "B",
    "_x",
    "?",
    "?l",
    "(",
    ")",
    "{",
    "}",
    "->",
    "=",
    ",",
    "0",
    "1",
    "99999999999999999",
    "einsum",
    "gelu",
    "sum",
    " over ",
    "partialsum-x",
    "(partialsum-x)",
    "weight ",
    "cache ",
    "bf16 ",
    "f32 ",
    "int32 ",
    "[",
    "]",
    "repeat 3",
    "strict ",
    "cast",
    "reshard",
    "*",
    "/",
    "-",
    "+",
    "\n",
    "é",
    "//",
    "///",
    "\"",
];

#[test]
fn a_mutated_example_is_checked_without_panic() {
    let examples = examples();
    let mut numbers = Numbers(0x5eed_1234_5678_9abc);
    for round in 0..4000 {
        let mut text = examples[round % examples.len()].clone();
        for _ in 0..=numbers.below(4) {
            let mut at = numbers.below(text.len() + 1);
            while !text.is_char_boundary(at) {
                at -= 1;
            }
            let mut end = (at + numbers.below(6)).min(text.len());
            while !text.is_char_boundary(end) {
                end += 1;
            }
            match numbers.below(4) {
                0 => text.replace_range(at..end, ""),
                1 => text.insert_str(at, WORDS[numbers.below(WORDS.len())]),
                2 => text.replace_range(at..end, WORDS[numbers.below(WORDS.len())]),
                _ => {
                    // A stretch of another example: names meet other types.
                    let other = &examples[numbers.below(examples.len())];
                    let lines: Vec<&str> = other.lines().collect();
                    text.insert_str(at, lines[numbers.below(lines.len())]);
                }
            }
        }
        holds(&text, &check(&text).diagnostics);
    }
}

#[test]
fn random_bytes_are_checked_without_panic() {
    let mut numbers = Numbers(0x0dd_ba11);
    for _ in 0..2000 {
        let bytes: Vec<u8> = (0..numbers.below(200)).map(|_| numbers.next() as u8).collect();
        let text = String::from_utf8_lossy(&bytes).into_owned();
        holds(&text, &check(&text).diagnostics);
    }
}

#[test]
fn random_words_are_checked_without_panic() {
    let mut numbers = Numbers(0xfeed_beef);
    for _ in 0..3000 {
        let mut text = String::from(
            "mesh x=4, y=2\ndim B = 8\ndim E = 4\nlayer f(x: f32 BE, y: f32 B_x) -> f32 B { ",
        );
        for _ in 0..numbers.below(40) {
            text.push_str(WORDS[numbers.below(WORDS.len())]);
        }
        holds(&text, &check(&text).diagnostics);
    }
}

#[test]
fn every_suggested_edit_takes_its_problem_away() {
    for text in examples() {
        for d in check(&text).diagnostics {
            for help in d.helps.iter().filter(|h| !h.edits.is_empty()) {
                let mut mended = text.clone();
                let mut edits = help.edits.clone();
                edits.sort_by_key(|e| std::cmp::Reverse(e.span));
                for edit in edits {
                    mended.replace_range(edit.span.start..edit.span.end, &edit.replacement);
                }
                let again = check(&mended);
                let same = again
                    .diagnostics
                    .iter()
                    .filter(|a| a.code == d.code && a.message == d.message)
                    .count();
                let before = check(&text)
                    .diagnostics
                    .iter()
                    .filter(|a| a.code == d.code && a.message == d.message)
                    .count();
                assert!(
                    same < before,
                    "{}: {} stays after `{}`:\n{mended}",
                    d.code,
                    d.message,
                    help.text
                );
            }
        }
    }
}
