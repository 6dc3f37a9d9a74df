//! `shardc`, for the tests of this package: Cargo hands them the path of their own package's binaries.

fn main() -> std::process::ExitCode {
    shardc::main(std::env::args_os())
}
