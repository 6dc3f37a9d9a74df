//! The code blocks of `spec/` and of the README are run; `spec/rules.md` is the compiler's own list
//! of rules. The kinds of blocks are described in `spec/README.md`.

use std::path::{Path, PathBuf};
use std::process::Command;

use shard_grammar::SourceFile;
use shard_ir::{text, verify};
use shard_search::rules::{Family, RULES};
use shard_snapshots::files::{read, root};
use shard_snapshots::judge::{check, judge, lower_all};

/// A fenced code block.
struct Block {
    /// Where it starts, for messages.
    place: String,
    /// What stands behind the fence.
    info: String,
    text: String,
}

/// The pages of the specification (those of diagnostics are tested beside their cases) and the
/// README.
fn pages() -> Vec<PathBuf> {
    let mut pages: Vec<PathBuf> = std::fs::read_dir(root().join("spec"))
        .expect("spec")
        .flatten()
        .map(|entry| entry.path())
        .filter(|path| path.extension().is_some_and(|e| e == "md"))
        .collect();
    pages.sort();
    pages.push(root().join("README.md"));
    pages
}

fn blocks(page: &Path) -> Vec<Block> {
    let mut blocks: Vec<Block> = Vec::new();
    let mut open = false;
    for (number, line) in read(page).lines().enumerate() {
        match (line.strip_prefix("```"), open) {
            (Some(info), false) => {
                let place = format!(
                    "{}:{}",
                    page.file_name().unwrap_or_default().to_string_lossy(),
                    number + 1
                );
                blocks.push(Block { place, info: info.trim().to_string(), text: String::new() });
                open = true;
            }
            (Some(_), true) => open = false,
            (None, true) => {
                if let Some(block) = blocks.last_mut() {
                    block.text.push_str(line);
                    block.text.push('\n');
                }
            }
            (None, false) => {}
        }
    }
    assert!(!open, "{}: a block without its end", page.display());
    blocks
}

fn all_blocks() -> Vec<Block> {
    pages().iter().flat_map(|page| blocks(page)).collect()
}

/// The frame of a `shard body` block.
fn framed(body: &str) -> String {
    format!(
        "mesh x=2, y=2, z=2\n\
         dim B = 8\ndim L = 8\ndim S = 8\ndim E = 16\ndim F = 32\ndim H = 8\ndim Q = 4\ndim K = \
         4\ndim G = 2\ndim V = 64\ndim T = 2\n\
         layer frame(\n  a: f32 BE_x, b: f32 BE, w: weight f32 E_xF_y, q: f32 BLHQ, k: f32 BSHQ, \
         s: f32 BHLS,\n  \
         cache: cache f32 BSQ, new: f32 BLQ, table: weight f32 VE, ids: int32 BL, taps: f32 HK, most: f32 HL,\n) -> f32 BE_x \
         {{\n{body}  return a\n}}\n"
    )
}

/// Whether the sizes of a plan are small enough to execute as they are.
fn is_small(plan: &shard_ir::Plan) -> bool {
    shard_runtime::work_needed(plan) < 1 << 22 && shard_runtime::bytes_needed(plan) < 1 << 28
}

fn holds(source: &str, place: &str) {
    for plan in lower_all(source) {
        let plan = if is_small(&plan) { plan } else { shard_runtime::shrink(&plan) };
        if let Err(problem) = judge(&plan, 0) {
            panic!("{place}: {problem}");
        }
    }
}

#[test]
fn every_program_of_the_specification_is_what_it_is_said_to_be() {
    let mut whole = 0;
    for block in all_blocks() {
        let words: Vec<&str> = block.info.split(' ').collect();
        match words.as_slice() {
            ["shard"] => {
                holds(&block.text, &block.place);
                let file = SourceFile::new(block.place.clone(), block.text.clone());
                assert!(shard_grammar::format(&file).is_ok(), "{}", block.place);
                whole += 1;
            }
            ["shard", "body"] => holds(&framed(&block.text), &block.place),
            ["shard", fails] => {
                let code = fails
                    .strip_prefix("fails=")
                    .unwrap_or_else(|| panic!("{}: {fails}", block.place));
                let found: Vec<_> = check(&block.text).diagnostics.iter().map(|d| d.code).collect();
                assert!(found.contains(&code), "{}: gives {found:?}", block.place);
            }
            ["shir"] => {
                let plans = text::parse(&block.text)
                    .unwrap_or_else(|error| panic!("{}: {error}", block.place));
                for plan in &plans {
                    verify::verify(plan)
                        .unwrap_or_else(|errors| panic!("{}: {errors:?}", block.place));
                }
                assert_eq!(text::print_all(&plans), block.text, "{}", block.place);
            }
            ["console"] | ["text"] | ["sh"] | ["toml"] => {}
            // Run by `compiler/python/run` and `.ci/repository`.
            ["python"] | ["yaml"] => {}
            other => panic!("{}: a block of no known kind: {other:?}", block.place),
        }
    }
    assert!(whole > 5, "the specification has too few programs: {whole}");
}

/// Whether some output matches a block; `...` stands for any number of lines.
fn matches(shown: &[&str], printed: &[&str]) -> bool {
    match shown.split_first() {
        None => printed.is_empty(),
        Some((&"...", rest)) => (0..=printed.len()).any(|skip| matches(rest, &printed[skip..])),
        Some((line, rest)) => {
            printed.split_first().is_some_and(|(p, others)| p == line && matches(rest, others))
        }
    }
}

#[test]
fn every_console_block_shows_what_its_commands_print() {
    let mut run = 0;
    for block in all_blocks().into_iter().filter(|b| b.info == "console") {
        for session in format!("\n{}", block.text).split("\n$ ").skip(1) {
            let (command, shown) = session.split_once('\n').unwrap_or((session, ""));
            let words: Vec<&str> = command.split(' ').collect();
            let arguments = match words.as_slice() {
                ["shardc", arguments @ ..]
                | ["cargo", "run", "--release", "--", arguments @ ..] => arguments,
                other => panic!("{}: no command of ours: {other:?}", block.place),
            };
            let output = Command::new(env!("CARGO_BIN_EXE_shardc-under-test"))
                .args(arguments)
                .current_dir(root())
                .output()
                .expect("the compiler starts");
            let printed = format!(
                "{}{}",
                String::from_utf8_lossy(&output.stdout),
                String::from_utf8_lossy(&output.stderr)
            );
            let shown: Vec<&str> = shown.trim_end().lines().collect();
            let printed: Vec<&str> = printed.trim_end().lines().collect();
            assert!(
                matches(&shown, &printed),
                "{}: {command} prints\n{}",
                block.place,
                printed.join("\n")
            );
            run += 1;
        }
    }
    assert!(run > 0, "no console block was run");
}

/// `spec/rules.md` from the compiler's list.
fn rules_page() -> String {
    let mut page = String::from(
        "# The rewrite rules\n\n\
         The logical rules say which programs compute the same. Each other rule is one way of \
         having a value in a layout.\nA plan names the rule of each of its instructions, behind \
         `;` in `.shir` and as `rule` in JSON. Where the axes of an\nop follow several rules, \
         it names them all, joined by `+`. The rules are defined in \
         `compiler/search/src/rules`; a test\ncompares this page with them.\n",
    );
    let families = [
        (
            Family::Logical,
            "Logical rules",
            "Two programs that compute the same; see [search.md](search.md#the-forms-of-a-program).",
        ),
        (Family::Source, "Sources", "Values that are given and not computed."),
        (
            Family::Strategy,
            "Strategies",
            "What one mesh axis does in an op. Each axis may follow another rule.",
        ),
        (Family::Fusion, "Fusion", "Which ops are one kernel; see [cost.md](cost.md)."),
        (
            Family::Loop,
            "Loops",
            "An einsum and a collective that run at the same time, with `--fuse`; see \
                [cost.md](cost.md#collective-einsums). In\na ring, one loop runs all einsums of an \
                attention and passes its keys and values round; see \
                [cost.md](cost.md#rings).",
        ),
        (
            Family::Move,
            "Moves",
            "A move takes one value from one layout to another; see [layouts.md](layouts.md).",
        ),
    ];
    for (family, title, about) in families {
        page.push_str(&format!("\n## {title}\n\n{about}\n\n| rule | law |\n|---|---|\n"));
        for rule in RULES.iter().filter(|rule| rule.family == family) {
            page.push_str(&format!("| `{}` | {} |\n", rule.name, rule.law));
        }
    }
    page
}

/// `UPDATE_SPEC=1` writes the page.
#[test]
fn the_page_of_rules_lists_every_rule_of_the_compiler() {
    let path = root().join("spec/rules.md");
    if std::env::var_os("UPDATE_SPEC").is_some() {
        std::fs::write(&path, rules_page()).expect("spec/rules.md is written");
    }
    assert_eq!(
        read(&path),
        rules_page(),
        "UPDATE_SPEC=1 cargo test -p shard-snapshots spec:: writes the page"
    );
    for rule in RULES {
        assert!(rule.law.lines().count() == 1 && !rule.law.contains('|'), "{}", rule.name);
    }
}

#[test]
fn every_link_of_the_specification_leads_somewhere() {
    for page in pages() {
        let text = read(&page);
        for link in text.split("](").skip(1).filter_map(|rest| rest.split(')').next()) {
            let file = link.split('#').next().unwrap_or_default();
            if file.is_empty() || file.starts_with("http") {
                continue;
            }
            let target = page.parent().expect("a folder").join(file);
            assert!(target.exists(), "{}: {link}", page.display());
        }
    }
}

/// Tests the names of rules on pages and in comments of the source: `axis_on_a_dim_passes_through`.
#[test]
fn every_rule_that_a_page_or_a_comment_names_exists() {
    fn sources(folder: &Path, out: &mut Vec<PathBuf>) {
        for entry in std::fs::read_dir(folder).expect("a folder").flatten() {
            let path = entry.path();
            if path.is_dir() {
                sources(&path, out);
            } else if path.extension().is_some_and(|e| e == "rs") {
                out.push(path);
            }
        }
    }
    let mut files = Vec::new();
    ["compiler", "grammar", "runtime", "snapshots"]
        .iter()
        .for_each(|folder| sources(&root().join(folder), &mut files));
    let texts: Vec<(PathBuf, String)> =
        files.into_iter().map(|path| (path.clone(), read(&path))).collect();
    // Tests and functions also have long names, and so do the programs of the benches.
    let defined = |word: &str| texts.iter().any(|(_, text)| text.contains(&format!("fn {word}(")));
    let is_long_name = |word: &str| {
        word.matches('_').count() >= 3
            && word.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_')
    };
    let (mut named, mut unknown) = (0, Vec::new());
    let pages = pages()
        .into_iter()
        .filter(|page| !page.ends_with("performance.md"))
        .map(|page| (page.clone(), read(&page)));
    for (path, text) in pages.chain(texts.iter().cloned()) {
        let is_page = path.extension().is_some_and(|e| e == "md");
        for line in text.lines().filter(|line| is_page || line.trim_start().starts_with("//")) {
            // The texts in backticks, which are at odd places.
            for word in line
                .split('`')
                .skip(1)
                .step_by(2)
                .flat_map(|code| code.split('+'))
                .filter(|w| is_long_name(w))
            {
                let is_rule = RULES.iter().any(|rule| rule.name == word);
                named += usize::from(is_rule);
                if !is_rule && !defined(word) {
                    unknown.push(format!("{}: {word}", path.display()));
                }
            }
        }
    }
    assert!(unknown.is_empty(), "{unknown:#?}");
    assert!(named > 20, "{named}");
}

/// The first line of the page of measurements counts the marks of its rows.
#[test]
fn the_page_of_measurements_counts_its_own_marks() {
    let page = read(&root().join("spec/performance.md"));
    // Behind the first marker stand the tables of other benchmarks.
    let page = page.split("<!-- ").next().unwrap_or_default();
    let cells =
        |line: &str| line.split('|').map(|cell| cell.trim().to_string()).collect::<Vec<_>>();
    let rows: Vec<Vec<String>> =
        page.lines().filter(|line| line.starts_with("| `")).map(cells).collect();
    let (searches, processes): (Vec<_>, Vec<_>) = rows.iter().partition(|row| row.len() == 18);
    let met = |rows: &[&Vec<String>], at: usize, missed: &str, of: &str| {
        let met = rows.iter().filter(|row| !row[at].contains(missed)).count();
        format!("{met} of {} marks of {of}", rows.len())
    };
    let timed: Vec<&Vec<String>> = searches.iter().copied().filter(|row| row[12] != "-").collect();
    let small: Vec<&Vec<String>> = searches
        .iter()
        .copied()
        .filter(|row| row[3].parse::<u32>().is_ok_and(|axes| axes <= 4))
        .collect();
    let expected = format!(
        "Met are {}, {}, {}.",
        met(&timed, 13, "**missed**", "the time of a search"),
        met(&small, 16, "**over**", "its memory"),
        met(&processes, 4, "**missed**", "the time of a whole process")
    );
    assert!(page.contains(&expected), "{expected}");
}
