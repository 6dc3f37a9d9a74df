//! The intermediate representation of `shardc`: the data that the passes exchange.
//!
//! * [`Mesh`], [`Dim`], [`TensorType`]: what a program is about.
//! * [`Layout`] and its algebra; [`Collective`], the moves between layouts, and
//!   [`Collective::apply`], their one definition; [`layout_rule`], what each op does to layouts.
//! * [`Program`] (checked, unsharded), [`Plan`] (lowered), [`Schedule`] (in time),
//!   [`Execution`] (as streams execute it): what one pass hands to the next.
//! * [`text`]: `.shir`, a plan as text; [`verify`]: the verifier of plans.

pub mod attention;
pub mod collective;
pub mod collective_einsum;
pub mod composite;
pub mod cuts;
pub mod execution;
pub mod fold;
mod groups;
mod happens_before;
mod index_ranges;
pub mod layout;
pub mod layout_rule;
pub mod liveness;
pub mod mesh;
mod mesh_shape;
mod numbers;
pub mod op;
pub mod pattern;
pub mod plan;
pub mod program;
pub mod reason;
mod regroup;
pub mod rules;
pub mod scaled;
pub mod schedule;
pub mod tensor;
pub mod text;
pub mod told;
pub mod typing;
mod unsharded;
pub mod verify;

pub use collective::{Collective, CollectiveError};
pub use collective_einsum::{Fused, LoopError, LoopLayouts};
pub use cuts::Cuts;
pub use execution::{Allocation, Execution, Task, Work};
pub use fold::{FoldError, Unrolled};
pub use groups::Groups;
pub use happens_before::HappensBefore;
pub use index_ranges::index_ranges;
pub use layout::{DimSet, Layout, LayoutError, MeshShape, PARTIAL_SOFTMAX_WORD, Place, Reduction};
pub use layout_rule::{Operand, RuleError, result_layout, result_layout_as};
pub use liveness::{Liveness, state_homes};
pub use mesh::{AxisId, AxisList, AxisSet, Mesh, MeshAxis, MeshError};
pub use numbers::gcd;
pub use op::{Binary, Map, Norm, Op, Reduce};
pub use pattern::{DimPattern, LabelId, LayoutPattern};
pub use plan::{
    InstrId, InstrKind, Instruction, LoopHeld, Number, Origin, Plan, PlanFold, PlanOutput,
};
pub use program::{Def, Fold, FoldId, Output, ParameterKind, Phase, Program, Value, ValueId};
pub use reason::Reason;
pub use regroup::kept_by_each;
pub use rules::Rules;
pub use scaled::{Factor, is_scaled_product};
pub use schedule::{Picoseconds, Schedule, Step, Stream};
pub use shard_ops as catalogue;
pub use shard_ops::{Random, never, worded};
pub use tensor::{Dim, DimId, Dtype, TensorType};
pub use told::{Made, Told};
pub use typing::{TypeError, Wanted, accumulates_in, einsum_type, result_type};
