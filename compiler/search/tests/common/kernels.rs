//! A chip that has attention as one kernel, on a flat network, and programs for it.

use shard_check::{CheckOptions, check_source};
use shard_cost::Hardware;
use shard_grammar::SourceFile;
use shard_ir::Program;

/// The chip with so many FLOP/s and bytes of memory traffic a second.
pub(crate) fn chip(flops: &str, bandwidth: &str) -> Hardware {
    let text = format!(
        "name = \"kernels\"\n[chip]\nflops = {{ f32 = {flops}, bf16 = {flops} }}\n\
         hbm_bytes = 1e9\nhbm_bandwidth = {bandwidth}\n\
         [network]\nkind = \"flat\"\nbandwidth = 3e8\nlatency = 1e-9\n\
         [kernels]\nattention = 1.0\n"
    );
    Hardware::parse(&text).expect("a chip")
}

/// The first layer of a text without errors.
pub(crate) fn program(text: &str) -> Program {
    let checked = check_source(&SourceFile::new("attention", text), &CheckOptions::default());
    let errors: Vec<_> =
        checked.diagnostics.iter().filter(|d| d.is_error()).map(|d| &d.message).collect();
    assert!(errors.is_empty(), "{errors:?}\n{text}");
    checked.programs.into_iter().next().expect("a layer")
}
