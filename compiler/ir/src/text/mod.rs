//! `.shir`: plans as text, for snapshots, for people, and to be read back.
//!
//! ```text
//! shir 1
//!
//! layer mlp repeat 118
//! hardware tpu-v4-flat
//! mesh x=4, y=4, z=4
//! dims B=512, L=1, E=18432, F=73728, H=64 useful 48
//!
//! %0 = parameter x : bf16 BLE_xyz
//! %1 = parameter w_in : weight bf16 E_xF_yz
//! %2 = all-gather %0 over yz along E : bf16 BLE_x @x ; gather_before_einsum
//! %3 = einsum BLE,EF->BLF %2, %1 : bf16 BLF_yz(partialsum-x) @h in block ; einsum_of_split_dim
//! return y = %3 : BLF_yz(partialsum-x)
//! ```
//!
//! A line is an instruction: what it does, what it reads, behind `:` its type, behind `@` the
//! value's name in the source, behind `in` the inlined layers that it belongs to, and behind `;`
//! the rule that made it. Spans and reasons are left out, since they would change with every edit
//! of the source. A line that starts with `//` is a comment. Several layers may follow one another.
//! Names that are not plain words stand in quotes.
//!
//! On verified plans [`print()`] and [`parse`] are inverse to each other, spans and reasons aside.

mod instruction;
mod line;
mod moves;
mod parse;
mod print;

pub use parse::{MAX_INSTRUCTIONS, MAX_LAYERS, MAX_TEXT_BYTES, ParseError, parse};
pub use print::{print, print_all};
