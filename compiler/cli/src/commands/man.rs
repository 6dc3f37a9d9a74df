//! `shardc man [COMMAND]`.

use clap::CommandFactory;

use crate::command_line::Args;
use crate::console::{Console, Outcome};

/// `man`.
#[derive(Debug, clap::Args)]
pub(crate) struct ManArgs {
    /// A command, whose own page is printed
    #[arg(value_name = "COMMAND")]
    pub(crate) command: Option<String>,
}

pub(crate) fn run(args: &ManArgs, console: &mut Console) -> Outcome {
    let mut whole = Args::command();
    whole.build();
    let command = match &args.command {
        None => whole,
        Some(name) => match whole.find_subcommand(name) {
            Some(command) => command.clone(),
            None => {
                let known: Vec<&str> =
                    whole.get_subcommands().map(clap::Command::get_name).collect();
                let help = format!("the commands are {}", known.join(", "));
                return Err(console.usage(&format!("there is no command `{name}`"), Some(help)));
            }
        },
    };
    let mut page = Vec::new();
    let title = args.command.as_ref().map_or("shardc".to_string(), |name| format!("shardc-{name}"));
    match clap_mangen::Man::new(command).title(title).render(&mut page) {
        Ok(()) => console.result(&String::from_utf8_lossy(&page)),
        Err(error) => Err(console.usage(&format!("cannot render the manual page: {error}"), None)),
    }
}
