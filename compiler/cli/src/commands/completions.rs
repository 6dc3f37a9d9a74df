//! `shardc completions SHELL`.

use clap::CommandFactory;

use crate::args::{Args, CompletionsArgs};
use crate::console::{Console, Outcome};

pub(crate) fn run(args: &CompletionsArgs, console: &mut Console) -> Outcome {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Args::command(), "shardc", &mut script);
    console.result(&String::from_utf8_lossy(&script))
}
