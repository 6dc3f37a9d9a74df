//! Certificates: proofs that no plan of the plan space takes less time than a given plan, in a form
//! that anybody can check.
//!
//! The checker shares no code with the search. It uses only what a certificate is *about*: the
//! language (`shard-check`, from source to [`Program`](shard_ir::Program)), plans as data with
//! their verifier (`shard-ir`) and the cost model (`shard-cost`). It enumerates the choices of the
//! plan space itself, as the pages of `spec/` define them:
//!
//! | module | what | page |
//! |---|---|---|
//! | `forms` | the programs that the logical rules make of one | rules.md, search.md |
//! | `actions`, `strategies` | what each mesh axis may do in an op, and so all strategies of the op | types.md |
//! | `pieces` | composites over a split dim | types.md |
//! | `attention` | attention as one kernel | cost.md |
//! | `kernel` | which ops run as one, and what they take | cost.md |
//! | `loops` | an einsum with a collective inside | search.md |
//! | `moves` | the layouts of a value and the moves between them | layouts.md |
//! | `space`, `ways`, `maxima`, `usable` | all of that, for one program | search.md |
//! | `phases` | the phases of a layer as one program | certificate.md |
//!
//! `together` bounds many forms at once, and `branches` bounds parts of the plans of one form.
//! `bound` sums the least of every part at given prices (`prices`); `steiner` finds the moves that
//! serve several readers. `computes` checks that a plan computes the program, and
//! [`check`](verify_certificate) combines all of these.

mod actions;
mod attention;
mod bound;
mod branches;
mod carried;
mod check;
mod computes;
mod derive;
mod format;
mod forms;
mod kernel;
mod labels;
mod loops;
mod maxima;
mod moves;
mod phases;
mod pieces;
mod prices;
mod sides;
mod space;
mod steiner;
mod strategies;
mod sums;
mod together;
mod usable;
mod ways;

pub use actions::Site;
pub use bound::Bound;
pub use branches::Within;
pub use check::{MOST_COST, MOST_LABEL_LAYOUTS, verify_certificate};
pub use computes::computes;
pub use derive::{derive, phases_of};
pub use format::{
    AlternativePrices, Branch, Branches, Certificate, CertificateError, Claim, Inputs,
    LayerCertificate, Part, Place, PriceSet, Proof, ReaderPrices, Run, SCHEMA, SidePrices,
    Together, Unshown, Verified,
};
pub use forms::{Choices, Form, Forms, Region, TooMany, forms, least_time};
pub use labels::assignments;
pub use phases::{Joint, side_by_side};
pub use space::{Common, Extent, Reader, Space};
pub use together::{Ground, Solved};
