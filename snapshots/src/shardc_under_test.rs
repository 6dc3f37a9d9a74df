//! `shardc` for the tests of this package: Cargo gives tests only the paths of their own package's
//! binaries.

use shard_ir::{catalogue::defects, never};

fn main() -> std::process::ExitCode {
    if std::env::var_os("SHARDC_PLANT_A_DEFECT").is_some() {
        defects::as_in_release();
        never!("a defect that a test has planted", ());
    }
    shardc::main(std::env::args_os())
}
