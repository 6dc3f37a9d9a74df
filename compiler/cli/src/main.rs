//! The `shardc` binary.

use std::process::ExitCode;

fn main() -> ExitCode {
    shardc::main(std::env::args_os())
}
