//! Text to plans: moves.

use super::instruction::Scope;
use super::line::{Cursor, Parsed};
use crate::collective::{Collective, Move};
use crate::layout::{DimSet, Layout, Reduction};
use crate::mesh::AxisList;
use crate::plan::InstrId;
use crate::tensor::DimId;

fn reduction(cursor: &mut Cursor<'_>) -> Parsed<Reduction> {
    if cursor.take_word("sum") {
        Ok(Reduction::Sum)
    } else if cursor.take_word("max") {
        Ok(Reduction::Max)
    } else {
        cursor.unexpected("`sum` or `max`")
    }
}

/// The dims of an all-gather or a reduce-scatter: the first with its axes, and the layout after the
/// move where there are several.
struct Parts {
    dim: usize,
    axes: AxisList,
    several: Option<Layout>,
}

/// Reads a move and its operand behind the word of the move; `None` where the word is not that of a
/// move. For a permute and an exchange the layout after the move is read later, with the type.
pub(super) fn collective(
    scope: Scope<'_>,
    word: &str,
    cursor: &mut Cursor<'_>,
) -> Parsed<Option<(InstrId, Collective)>> {
    let Some(code) = Move::of_name(word) else { return Ok(None) };
    let operand = scope.operand(cursor)?;
    let moved = Moved { scope, operand };
    let collective = match code {
        Move::AllGather | Move::AllGatherDims => {
            let stripped = |layout: Layout, dim: usize, axes: AxisList| {
                let on_dim = layout.axes_of(dim);
                on_dim
                    .ends_with(&axes)
                    .then(|| layout.with_dim(dim, on_dim.prefix(on_dim.len() - axes.len())))
            };
            match moved.parts(cursor, &stripped)? {
                Parts { dim, axes, several: None } => Collective::AllGather { dim, axes },
                Parts { several: Some(to), .. } => Collective::AllGatherDims { to },
            }
        }
        Move::Slice => {
            let axes = moved.over(cursor)?;
            Collective::Slice { dim: moved.along(cursor)?, axes }
        }
        Move::ReduceScatter | Move::ReduceScatterDims => {
            let kind = reduction(cursor)?;
            let split = |layout: Layout, dim: usize, axes: AxisList| {
                let are_partial = axes.set().is_subset(layout.partial(kind));
                are_partial.then(|| layout.with_dim(dim, layout.axes_of(dim).concat(axes)))
            };
            match moved.parts(cursor, &split)? {
                Parts { dim, axes, several: None } => Collective::ReduceScatter { kind, dim, axes },
                Parts { several: Some(to), .. } => Collective::ReduceScatterDims { kind, to },
            }
        }
        Move::AllReduce => {
            Collective::AllReduce { kind: reduction(cursor)?, axes: moved.over(cursor)?.set() }
        }
        Move::AllToAll => {
            let axes = moved.over(cursor)?;
            cursor.expect_word("from")?;
            let from_dim = moved.place(cursor)?;
            cursor.expect_word("to")?;
            Collective::AllToAll { from_dim, to_dim: moved.place(cursor)?, axes }
        }
        Move::Permute => Collective::Permute { to: Layout::REPLICATED },
        Move::Exchange => Collective::Exchange { to: Layout::REPLICATED },
        Move::ToPartial => {
            let kind = reduction(cursor)?;
            let axes = moved.over(cursor)?;
            let dim = if cursor.take_word("along") { Some(moved.place(cursor)?) } else { None };
            Collective::ToPartial { kind, dim, axes }
        }
        Move::SoftmaxMerge => {
            let axes = moved.over(cursor)?;
            let dim = if cursor.take_word("along") { Some(moved.place(cursor)?) } else { None };
            cursor.expect_word("by")?;
            let before = *cursor;
            let dims = &scope.plan.instruction(operand).dims;
            let place = |dim: DimId| dims.iter().position(|d| *d == dim);
            match scope.dim_list(cursor)?.into_iter().map(place).collect::<Option<DimSet>>() {
                Some(statistics) => Collective::SoftmaxMerge { dim, axes, statistics },
                None => return before.unexpected("dims of the operand"),
            }
        }
    };
    Ok(Some((operand, collective)))
}

/// The operand of a move, to whose dims and axes the move refers.
#[derive(Clone, Copy)]
struct Moved<'p> {
    scope: Scope<'p>,
    operand: InstrId,
}

impl Moved<'_> {
    /// Reads a dim of the operand; gives its place.
    fn place(self, cursor: &mut Cursor<'_>) -> Parsed<usize> {
        let before = *cursor;
        let dim = self.scope.dim(cursor)?;
        match self.scope.plan.instruction(self.operand).dims.iter().position(|d| *d == dim) {
            Some(place) => Ok(place),
            None => before.unexpected("a dim of the operand"),
        }
    }

    /// `over x`
    fn over(self, cursor: &mut Cursor<'_>) -> Parsed<AxisList> {
        cursor.expect_word("over")?;
        self.scope.axes(cursor)
    }

    /// `along B`
    fn along(self, cursor: &mut Cursor<'_>) -> Parsed<usize> {
        cursor.expect_word("along")?;
        self.place(cursor)
    }

    /// Reads `over x along B`, and for a move along several dims also `, y along D`. `done` gives
    /// the layout after the move along one dim.
    fn parts(
        self,
        cursor: &mut Cursor<'_>,
        done: &dyn Fn(Layout, usize, AxisList) -> Option<Layout>,
    ) -> Parsed<Parts> {
        let mut to = self.scope.plan.instruction(self.operand).layout;
        cursor.expect_word("over")?;
        let before = *cursor;
        let axes = self.scope.axes(cursor)?;
        let dim = self.along(cursor)?;
        let mut part = Some((before, dim, axes));
        let mut several = None;
        while cursor.take(",") {
            let before = *cursor;
            let axes = self.scope.axes(cursor)?;
            let dim = self.along(cursor)?;
            for (at, dim, axes) in part.take().into_iter().chain([(before, dim, axes)]) {
                match done(to, dim, axes) {
                    Some(next) => to = next,
                    None => {
                        return at.unexpected(
                            "axes that the move takes from, or gives to, this dim of the operand",
                        );
                    }
                }
            }
            several = Some(to);
        }
        Ok(Parts { dim, axes, several })
    }
}
