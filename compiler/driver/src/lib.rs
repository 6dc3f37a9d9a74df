//! The driver: what the command line, the editor's server, tests and bindings call.
//!
//! [`pipeline`] is the whole compiler on one page, one call a pass. Around it stands what a caller
//! asks for:
//!
//! | module | from | to |
//! |---|---|---|
//! | [`input`] | a text | a source file, or verified plans |
//! | [`ir_text`] | verified plans | whether they are what is asked for; the same compiled |
//! | [`compile`] | a source file and [`CompileOptions`] | [`Compilation`]: every layer with its plan, price and schedule |
//! | `two_kinds` | a stack | the same of two kinds of layers, where that takes less |
//! | [`phases`] | the phases of a layer | the same with one layout for each weight that they share |
//! | [`objectives`] | a program, and what is to be least | the plan, by several searches where no single one finds it |
//! | [`bounds`] | a source file | what no plan falls below, without a search for one |
//! | [`questions`] | a plan and a question | the answer to *why* and *why not* |
//! | [`expected`], [`snapshot`] | a compilation | whether it is what was expected, or what it was before |
//! | [`explicit`] | a compilation | the plan as a strict source file |
//! | [`certificate`] | a compilation | why no plan is better, for a checker of its own |
//! | [`new_program`] | a template, or a model's `config.json` | a source file |
//! | [`lowering_diagnostics`], [`nothing_fits`] | what lowering found | diagnostics |
//!
//! A [`Host`] gets what is found, lends files and ends searches; [`Keeper`] is one for callers that
//! have no terminal:
//!
//! ```
//! use shard_driver::{CompileOptions, Keeper, Purpose, compile_source};
//! use shard_grammar::SourceFile;
//!
//! let source = SourceFile::new("mlp.shard", "
//! hardware tpu-v4-face
//! mesh x=4
//! dim E = 1024
//! dim F = 4096
//! dim B = 64
//! layer mlp(x: bf16 BE, w: weight bf16 EF_x) -> bf16 BF {
//!   return einsum(x, w -> BF)
//! }
//! ");
//! let mut host = Keeper::default();
//! let found = compile_source(&source, &CompileOptions::default(), Purpose::Report, &mut host).expect("it is right");
//! let layers = found.layers();
//! let mlp = &layers[0];
//! assert!(shard_ir::text::print(mlp.plan()).contains("all-gather"));
//! assert_eq!(mlp.price.totals.serial_time, mlp.optimality.expect("it was searched for").lower_bound);
//! assert!(host.of(&source).is_empty());
//! ```

pub mod bounds;
pub mod certificate;
pub mod compile;
pub mod expected;
pub mod explicit;
pub mod hardware_choice;
pub mod host;
pub mod input;
pub mod ir_text;
pub mod lowering_diagnostics;
pub mod new_program;
mod noted;
pub mod nothing_fits;
pub mod objectives;
pub mod on_streams;
mod padding;
pub mod phases;
pub mod pipeline;
pub mod questions;
mod search_limit;
pub mod snapshot;
mod sound;
mod two_kinds;

pub use compile::{Compilation, CompileOptions, Purpose, compile_input, compile_source};
pub use host::{Host, Keeper, Named, Outcome, Pass, Share, Status};
