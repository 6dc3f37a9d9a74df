//! Other files that repeat facts of the catalogue of ops agree with it: the editor's grammar, the
//! schemas, the tables of the specification, the list of diagnostics, and the places that
//! `CONTRIBUTING.md` lists. `SHARDC_UPDATE=1` writes the grammar, the schemas, the maps of the
//! tables and the list of diagnostics.

use std::collections::BTreeSet;
use std::path::PathBuf;

use shard_check::diagnostics::ALL;
use shard_ir::catalogue::{self, Code, Flag, Lead, Map, Move, Partial, Row, filled};
use shard_snapshots::files::{holds, read, root, rust_files};

#[test]
fn the_editors_grammar_knows_every_word() {
    let words: Vec<&str> = Code::sources().chain(["reshard"]).collect();
    let wanted = format!("\\\\b({})\\\\b(?=\\\\s*\\\\()", words.join("|"));
    let from = "\"name\": \"support.function.shard\",\n      \"match\": \"";
    holds("editors/vscode/syntaxes/shard.tmLanguage.json", from, "\"\n", &wanted);
}

#[test]
fn the_schemas_list_every_op_and_every_move() {
    let lines = |indent: usize, names: &[&str]| {
        let line = |name: &&str| format!("{:indent$}{name:?}", "");
        names.iter().map(line).collect::<Vec<_>>().join(",\n")
    };
    let (ops, moves) = (catalogue::op_names(), Move::names());
    let all = [&["parameter", "constant"][..], &ops, &moves, &["collective-einsum"]].concat();
    let from = "\"description\": \"Dense, in program order.\"\n        },\n        \"op\": \
        {\n          \"enum\": [\n";
    for name in ["explain", "cost", "lower"] {
        let path = format!("spec/schema/{name}.schema.json");
        holds(&path, from, "\n          ]", &lines(12, &all));
        // The instructions with the fields of an op, and those with the fields of a move.
        for names in [&ops, &moves] {
            let first = format!("\"enum\": [\n                  {:?},\n", names[0]);
            holds(&path, &first, "\n                ]", &lines(18, &names[1..]));
        }
    }
}

// Each file has the definitions that it needs, since a validator does not find those of another
// file by itself.
#[test]
fn the_schemas_of_cost_and_lower_define_instructions_as_that_of_explain() {
    let explain = read(&root().join("spec/schema/explain.schema.json"));
    let behind = |text: &str, from: &str| text.split_once(from).map(|(_, rest)| rest.to_string());
    for name in ["cost", "lower"] {
        let path = format!("spec/schema/{name}.schema.json");
        let definitions =
            behind(&read(&root().join(&path)), "\n  \"$defs\": {").expect("definitions");
        // A definition is indented by four spaces, and its parts by more.
        for line in definitions.lines().filter(|line| line.starts_with("    \"")) {
            let from = format!("\n{line}\n");
            let wanted =
                behind(&explain, &from).unwrap_or_else(|| panic!("that of explain has no {line}"));
            let wanted = wanted.split_once("\n    }").expect("its end").0;
            holds(&path, &from, "\n    }", wanted);
        }
    }
}

/// The words of the maps for which a condition holds.
fn maps(of: impl Fn(&Row) -> bool, between: &str) -> String {
    let rows = Map::ALL.iter().map(|map| map.row()).filter(|row| of(row));
    rows.filter_map(|row| row.source).collect::<Vec<_>>().join(between)
}

#[test]
fn the_specification_lists_every_map() {
    let may_be_partial = |row: &Row| row.sums != Partial::No || row.maxima != Partial::No;
    holds("spec/language.md", "\nmap        = \"", "\"\n", &maps(|_| true, "\" | \""));
    holds("spec/language.md", "\n| `gelu ", "` |", maps(|_| true, " ").trim_start_matches("gelu "));
    let types = "spec/types.md";
    let exact = |row: &Row| row.is(Flag::Exact);
    holds(types, "one of whole numbers |\n| `", "` |", &maps(|row| !exact(row), " "));
    holds(types, "a float, the operand's |\n| `", "`, `-a` |", &maps(exact, " "));
    holds(types, "| `-a` | yes | no |\n| `", "` | no | yes |", &maps(may_be_partial, " "));
    holds(types, "` | no | yes |\n| `", "` | no | no |", &maps(|row| !may_be_partial(row), " "));
}

#[test]
fn the_tables_of_the_specification_name_every_op() {
    for page in ["spec/language.md", "spec/types.md"] {
        let text = read(&root().join(page));
        let rows: Vec<&str> = text.lines().filter(|line| line.starts_with('|')).collect();
        let has = |word: &str| {
            let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
            rows.iter().any(|row| {
                row.split('|')
                    .nth(1)
                    .is_some_and(|cell| cell.split(|c| !is_word(c)).any(|w| w == word))
            })
        };
        for word in Code::sources() {
            assert!(has(word), "{page} has no row of `{word}`");
            assert!(
                page != "spec/language.md" || text.contains(&format!("\"{word}\"")),
                "{page}: no \"{word}\" in the grammar"
            );
        }
    }
}

#[test]
fn the_list_of_diagnostics_has_every_code() {
    let row = |(code, title, _): &(&str, &str, _)| format!("| [{code}]({code}.md) | {title} |\n");
    let (last, others) = ALL.split_last().expect("codes");
    let (path, from) = ("spec/diagnostics/README.md", "| code | about |\n|---|---|\n");
    holds(path, from, &row(last), &others.iter().map(row).collect::<String>());
    assert!(read(&root().join(path)).ends_with(&row(last)), "{path} goes on behind {}", last.0);
}

#[test]
fn each_row_names_its_own_slots_and_ends_with_what_may_be_left_out() {
    for code in Code::all() {
        let row = code.row();
        let slots: Vec<&str> = row.slots.iter().map(|slot| slot.name).collect();
        filled(row.phrase, |name| {
            assert!(slots.contains(&name), "{}: no slot {name}", row.text);
            Some(String::new())
        });
        for (at, slot) in row.slots.iter().enumerate() {
            let may_be_left_out = slot.takes.may_be_nothing();
            assert!(
                !may_be_left_out || (at + 1 == row.slots.len() && slot.lead == Lead::Comma),
                "{}",
                row.text
            );
            assert!(
                row.phrase.contains(&format!("{{{}}}", slot.name)),
                "{}: {} in no phrase",
                row.text,
                slot.name
            );
        }
        for slot in row.fits.iter().flat_map(|fit| fit.slots()) {
            assert!(slots.contains(&slot), "{}: what fits names no slot {slot}", row.text);
        }
        let are_renamed = ["from", "to"].iter().all(|slot| slots.contains(slot));
        assert!(!row.is(Flag::View) || are_renamed, "{}: a view of what", row.text);
        assert!(row.source.is_none() || row.sign.is_none(), "{}: a word and a sign", row.text);
        assert_eq!(Code::of_text(row.text), Some(code), "{}: two rows of one word", row.text);
    }
}

/// The places that `CONTRIBUTING.md` lists: ``1. `path`: `text that the file has` ...``.
#[test]
fn the_places_that_contributing_names_exist() {
    let mut places = 0;
    for line in read(&root().join("CONTRIBUTING.md")).lines() {
        // A list in order: `3. `path`: `text` ...`.
        let number = line.trim_start_matches(|c: char| c.is_ascii_digit());
        let Some(place) = number.strip_prefix(". `").filter(|_| number.len() < line.len()) else {
            continue;
        };
        let Some((path, rest)) = place.split_once('`') else { panic!("no end: {line}") };
        assert!(root().join(path).exists(), "there is no {path}");
        if let Some(named) = rest.strip_prefix(": `") {
            let named = named.split('`').next().unwrap_or_default();
            assert!(read(&root().join(path)).contains(named), "{path} has no {named}");
            places += 1;
        }
    }
    assert!(places > 35, "{places}");
}

/// The section of `CONTRIBUTING.md` with this title.
fn contributing(title: &str) -> String {
    let text = read(&root().join("CONTRIBUTING.md"));
    let section = text.split("\n## ").find(|section| section.lines().next() == Some(title));
    section.unwrap_or_else(|| panic!("no section {title}")).to_string()
}

/// The Rust files that contain a name, without tests and benches.
fn files_with(name: &str) -> BTreeSet<String> {
    let is_a_test = |path: &str| {
        path.contains("/tests/") || path.contains("/benches/") || path.ends_with("tests.rs")
    };
    let folders = ["grammar/src", "compiler", "runtime/src"];
    let files = folders.iter().flat_map(|folder| rust_files(&root().join(folder)));
    let has_it = files.filter(|file| read(file).contains(name));
    let path = |file: PathBuf| file.strip_prefix(root()).expect("in it").display().to_string();
    has_it.map(path).filter(|path| !is_a_test(path)).collect()
}

/// An op and a move without a law of their own are named in the files that `CONTRIBUTING.md` lists,
/// and in no others.
#[test]
fn a_new_op_and_a_new_move_are_written_in_the_files_that_contributing_lists() {
    for (title, name) in [("Add an op", "Op::Iota"), ("Add a collective", "Collective::ToPartial")]
    {
        let section = contributing(title);
        let found = files_with(name);
        let unlisted: Vec<&String> =
            found.iter().filter(|path| !section.contains(&format!("`{path}`"))).collect();
        assert!(unlisted.is_empty(), "{title}: {name} stands in {unlisted:?} as well");
        assert!(found.len() >= 8, "{name} stands in {found:?} alone");
    }
}
