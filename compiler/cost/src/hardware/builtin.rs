//! The chips that come with the compiler: hardware files, embedded.

/// A built-in chip.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BuiltIn {
    /// Its name.
    pub name: &'static str,
    /// Its hardware file.
    pub text: &'static str,
}

/// Every built-in chip, in the order in which `shardc hardware` lists them.
pub const BUILT_IN: &[BuiltIn] =
    &[BuiltIn { name: "tpu-v4-flat", text: include_str!("../../hardware/tpu-v4-flat.toml") }];
