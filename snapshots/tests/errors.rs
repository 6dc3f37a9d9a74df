//! Every file of `examples/errors`, with its diagnostics beside it.

use std::path::{Path, PathBuf};
use std::process::Command;

use shard_check::diagnostics::{ALL, Source};
use shard_check::{CheckOptions, check_source};
use shard_grammar::SourceFile;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// The cases that checking alone refuses.
fn cases() -> Vec<(String, String, String)> {
    all_cases().into_iter().filter(|(code, ..)| !is_of_a_later_pass(code)).collect()
}

fn is_of_a_later_pass(code: &str) -> bool {
    ALL.iter().any(|(known, _, source)| *known == code && *source == Source::LaterPass)
}

/// All cases, as code, name and text, in the order of their names.
fn all_cases() -> Vec<(String, String, String)> {
    let mut cases = Vec::new();
    for code in
        std::fs::read_dir(root().join("examples/errors")).expect("examples/errors").flatten()
    {
        for case in std::fs::read_dir(code.path()).expect("a folder of cases").flatten() {
            let name = case.file_name().to_string_lossy().into_owned();
            let text = std::fs::read_to_string(case.path()).expect("a case is text");
            cases.push((code.file_name().to_string_lossy().into_owned(), name, text));
        }
    }
    cases.sort();
    cases
}

#[test]
fn every_case_is_drawn_as_its_snapshot_has_it() {
    let mut settings = insta::Settings::clone_current();
    settings.set_snapshot_path(root().join("snapshots/errors"));
    settings.set_prepend_module_to_snapshot(false);
    settings.set_omit_expression(true);
    settings.bind(|| {
        for (code, name, text) in cases() {
            let file = SourceFile::new(name.clone(), text);
            let checked = check_source(&file, &CheckOptions::default());
            let drawn = shard_report::draw::diagnostics(&checked.diagnostics, &file, false);
            let stem = name.trim_end_matches(".shard");
            // A case at a limit is too long to be shown beside its message.
            let source = if file.text.len() > 2000 { "(long)\n" } else { &file.text };
            insta::assert_snapshot!(format!("{code}-{stem}"), format!("{source}\n-----\n{drawn}"));
        }
    });
}

#[test]
fn what_only_a_later_pass_refuses_is_drawn_as_its_snapshot_has_it() {
    let mut settings = insta::Settings::clone_current();
    settings.set_snapshot_path(root().join("snapshots/errors"));
    settings.set_prepend_module_to_snapshot(false);
    settings.set_omit_expression(true);
    settings.bind(|| {
        for (code, name, text) in
            all_cases().into_iter().filter(|(code, ..)| is_of_a_later_pass(code))
        {
            let checked = Command::new(env!("CARGO_BIN_EXE_shardc-under-test"))
                .args(["check", &name])
                .current_dir(root().join("examples/errors").join(&code))
                .output()
                .expect("the compiler starts");
            let drawn = String::from_utf8_lossy(&checked.stderr);
            let (status, kind) = if code.starts_with('E') { (1, "error") } else { (0, "warning") };
            assert_eq!(checked.status.code(), Some(status), "{code}/{name}: {drawn}");
            assert!(
                drawn.contains(&format!("{kind}[{code}]")) && drawn.contains("help: "),
                "{code}/{name}: {drawn}"
            );
            let stem = name.trim_end_matches(".shard");
            insta::assert_snapshot!(format!("{code}-{stem}"), format!("{text}\n-----\n{drawn}"));
        }
    });
}

#[test]
fn every_case_gives_the_code_of_its_folder() {
    for (code, name, text) in cases() {
        let file = SourceFile::new(name.clone(), text);
        let checked = check_source(&file, &CheckOptions::default());
        let codes: Vec<&str> = checked.diagnostics.iter().map(|d| d.code).collect();
        assert!(codes.contains(&code.as_str()), "{code}/{name} gives {codes:?}");
        let errors = checked.diagnostics.iter().filter(|d| d.is_error() && d.code != code).count();
        assert_eq!(errors, 0, "{code}/{name} gives other errors too: {codes:?}");
    }
}

#[test]
fn every_diagnostic_of_a_case_says_what_to_do() {
    for (code, name, text) in cases() {
        let file = SourceFile::new(name.clone(), text);
        for d in check_source(&file, &CheckOptions::default()).diagnostics {
            assert!(
                d.primary_span().is_some() || d.code == "W0804",
                "{code}/{name}: {} has no place",
                d.code
            );
            assert!(!d.helps.is_empty(), "{code}/{name}: {} has no help: {}", d.code, d.message);
            assert!(!d.message.ends_with('.'), "{code}/{name}: {}", d.message);
        }
    }
}

#[test]
fn every_code_has_a_page_and_every_code_of_a_file_a_case() {
    let cases = cases();
    for (code, title, source) in ALL {
        let page = root().join(format!("spec/diagnostics/{code}.md"));
        let text = std::fs::read_to_string(&page).unwrap_or_default();
        assert!(
            text.starts_with(&format!("# {code}: {title}\n")),
            "{} is missing or has another title",
            page.display()
        );
        let has_case = cases.iter().any(|(c, ..)| c == code);
        assert_eq!(has_case, *source == Source::File, "cases of {code}");
    }
    for (code, ..) in &all_cases() {
        assert!(
            ALL.iter().any(|(known, ..)| known == code),
            "examples/errors/{code} is of no code"
        );
    }
    for page in
        std::fs::read_dir(root().join("spec/diagnostics")).expect("spec/diagnostics").flatten()
    {
        let name = page.file_name().to_string_lossy().into_owned();
        let code = name.trim_end_matches(".md");
        assert!(
            code == "README" || ALL.iter().any(|(known, ..)| *known == code),
            "{name} is of no code"
        );
    }
}

#[test]
fn every_code_is_listed_once_and_is_a_letter_and_four_digits() {
    let mut seen = std::collections::BTreeSet::new();
    for (code, ..) in ALL {
        assert!(seen.insert(code), "{code} is listed twice");
        let digits = code.strip_prefix(['E', 'W']).unwrap_or_default();
        assert!(digits.len() == 4 && digits.bytes().all(|b| b.is_ascii_digit()), "{code}");
    }
}

#[test]
fn a_file_cut_off_anywhere_is_drawn_without_panic() {
    for (code, name, text) in cases().into_iter().filter(|(.., text)| text.len() < 2000) {
        for at in (0..text.len()).filter(|at| text.is_char_boundary(*at)) {
            let file = SourceFile::new(name.clone(), format!("// αβγ\n{}", &text[..at]));
            let checked = check_source(&file, &CheckOptions::default());
            let drawn = shard_report::draw::diagnostics(&checked.diagnostics, &file, at % 2 == 0);
            assert_eq!(drawn.is_empty(), checked.diagnostics.is_empty(), "{code}/{name} at {at}");
        }
    }
}
