//! The chips that come with the compiler: hardware files, embedded.

/// A built-in chip.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BuiltIn {
    /// Its name.
    pub name: &'static str,
    /// Its hardware file.
    pub text: &'static str,
}

macro_rules! built_in {
    ($($name:literal)+) => {
        &[$(BuiltIn { name: $name, text: include_str!(concat!("../../hardware/", $name, ".toml")) }),+]
    };
}

/// Every built-in chip, in the order in which `shardc hardware` lists them.
pub const BUILT_IN: &[BuiltIn] = built_in!(
    "tpu-v4-flat" "tpu-v3" "tpu-v4" "tpu-v4-face" "tpu-v5p" "tpu-v5p-face" "tpu-v5e" "tpu-v6e"
    "a100-80g" "h100" "h200" "b200"
);
