//! `shardc explain-code CODE`.

use shard_report::json::explain_code::codes;
use shard_report::pages::{DiagnosticPage, PAGES};

use crate::args::Format;
use crate::console::{Console, Outcome};

/// `explain-code`.
#[derive(Debug, clap::Args)]
pub(crate) struct ExplainCodeArgs {
    /// The code, as diagnostics bear it: E0806
    #[arg(value_name = "CODE", required_unless_present = "list")]
    pub(crate) code: Option<String>,
    /// List all codes
    #[arg(long, conflicts_with = "code")]
    pub(crate) list: bool,
}

pub(crate) fn run(args: &ExplainCodeArgs, console: &mut Console) -> Outcome {
    let Some(asked) = &args.code else {
        return match console.format {
            Format::Text => {
                let lines = PAGES.iter().map(|page| format!("{}  {}\n", page.code, page.title()));
                console.result(&lines.collect::<String>())
            }
            Format::Json => console.result(&codes(PAGES)),
        };
    };
    let code = asked.to_ascii_uppercase();
    match DiagnosticPage::of(&code) {
        Some(page) => match console.format {
            Format::Text => console.result(page.text),
            Format::Json => console.result(&codes(&[page])),
        },
        None => {
            let help = near(&code)
                .map_or("--list".to_string(), |near| format!("shardc explain-code {near}"));
            Err(console.usage(&format!("there is no diagnostic `{asked}`"), Some(help)))
        }
    }
}

/// The code that differs in one character. Of several the one that differs furthest to the right is
/// taken, since codes of one topic begin alike.
fn near(code: &str) -> Option<&'static str> {
    let alike = |known: &str| code.bytes().zip(known.bytes()).take_while(|(a, b)| a == b).count();
    let differ = |known: &str| code.bytes().zip(known.bytes()).filter(|(a, b)| a != b).count();
    let codes = PAGES
        .iter()
        .map(|page| page.code)
        .filter(|known| known.len() == code.len() && differ(known) == 1);
    codes.min_by_key(|known| std::cmp::Reverse(alike(known)))
}
