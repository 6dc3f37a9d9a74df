//! `shardc completions SHELL`.

use clap::CommandFactory;

use crate::command_line::Args;
use crate::console::{Console, Outcome};

/// `completions`.
#[derive(Debug, clap::Args)]
pub(crate) struct CompletionsArgs {
    /// The shell
    #[arg(value_enum)]
    pub(crate) shell: clap_complete::Shell,
}

pub(crate) fn run(args: &CompletionsArgs, console: &mut Console) -> Outcome {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Args::command(), "shardc", &mut script);
    console.result(&String::from_utf8_lossy(&script))
}
