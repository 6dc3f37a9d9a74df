//! When each layout of a settled value is held, as [`emit`](crate::emit::emit) orders the steps.

use shard_ir::catalogue::Move;
use shard_ir::{ValueId, never};

use super::{Holding, Holdings, LayoutUse};
use crate::table::{LayoutId, MoveArc};

/// A moment of a step, three to a step: [`before`], [`op_at`] and [`behind`].
pub(super) type Moment = u32;

/// What the op of a step reads is moved to it.
pub(super) fn before(step: u32) -> Moment {
    3 * step
}

/// The op of a step runs.
pub(super) fn op_at(step: u32) -> Moment {
    before(step) + 1
}

/// What the op of a step has made is completed or cut.
pub(super) fn behind(step: u32) -> Moment {
    before(step) + 2
}

/// The step of a moment.
pub(super) fn step_of(at: Moment) -> u32 {
    at / 3
}

/// Whether a moment is one [`before`] an op.
fn is_before(at: Moment) -> bool {
    at.is_multiple_of(3)
}

/// Whether a moment is one [`behind`] an op.
pub(super) fn is_behind(at: Moment) -> bool {
    at % 3 == 2
}

/// A layout of a settled value, and the moments from and to which it is held throughout. Where
/// `from` is behind `to` there are no such moments.
pub(super) struct Live {
    pub(super) layout: LayoutId,
    /// The index in [`Lives`] of the layout that it is moved from; 0 for the layout in which the
    /// value is made.
    source: usize,
    /// It is there as soon as the value is made.
    early: bool,
    /// The moment of the first op that reads it, if one does.
    read: Option<Moment>,
    pub(super) from: Moment,
    pub(super) to: Moment,
    pub(super) bytes: u64,
}

impl Live {
    fn is_there(&self, at: Moment) -> bool {
        self.from <= at && at <= self.to
    }

    /// Whether a move makes it at a moment, right before it is read.
    fn comes_at(&self, at: Moment) -> bool {
        !self.early && self.from == at + 1
    }

    /// Whether it is there during all moves of a moment, and stays.
    fn stays(&self, at: Moment) -> bool {
        self.from <= at && self.to > at
    }
}

/// The layouts of a settled value: first the one in which it is made, then the others, each behind
/// the one that it is moved from.
pub(super) struct Lives(Vec<Live>);

impl Lives {
    /// The layout in which the value is made.
    pub(super) fn made(&self) -> &Live {
        &self.0[0]
    }

    fn sum(&self, which: impl Fn(&Live) -> bool) -> u64 {
        let those = self.0.iter().filter(|live| which(live));
        those.map(|live| live.bytes).fold(0, u64::saturating_add)
    }

    /// The bytes of the layouts that are there at a moment.
    pub(super) fn at(&self, at: Moment) -> u64 {
        self.sum(|live| live.is_there(at))
    }

    /// What is held at any time of a moment that belongs to another value's step; at least `known`,
    /// which was counted before the value was settled.
    pub(super) fn throughout(&self, at: Moment, known: u64) -> u64 {
        let coming = self.0.iter().filter(|live| live.comes_at(at));
        let held = match coming.clone().filter(|live| live.read == Some(at + 1)).count() {
            _ if !is_before(at) => return self.at(at),
            0 => self.sum(|live| live.stays(at)),
            // The move of this value runs before or behind those of other values.
            1 => {
                let (entering, leaving) = (
                    self.sum(|live| live.from <= at && live.to + 1 >= at),
                    self.sum(|live| live.from <= at + 1 && live.to > at),
                );
                entering.min(leaving)
            }
            // Moves of other values may run between those of this one.
            _ => self.sum(|live| live.stays(at)),
        };
        held.max(known)
    }

    /// The most that is held while one of the moves of the value runs at a moment right before it
    /// is read; `None` where none runs then.
    pub(super) fn while_moved(&self, at: Moment) -> Option<u64> {
        if !is_before(at) {
            return None;
        }
        let coming = self.0.iter().filter(|live| live.comes_at(at));
        coming.map(|to| self.beside(to, self.sum(|live| live.stays(at)), at)).max()
    }

    /// The same for a view whose memory is gone behind the move, without that memory.
    pub(super) fn while_view_moved(&self, at: Moment) -> Option<u64> {
        let coming = self.0.iter().filter(|live| is_before(at) && live.comes_at(at));
        let of_made = coming.filter(|to| to.source == 0 && !self.made().stays(at));
        of_made.map(|to| self.beside(to, self.sum(|live| live.stays(at)), at)).max()
    }

    /// What is held at least at a moment while a view shows the value in a layout and is moved;
    /// `None` where that layout is not there any more.
    pub(super) fn while_shown(&self, layout: LayoutId, at: Moment) -> Option<u64> {
        let read = self.0.iter().find(|live| live.layout == layout)?;
        let stays = self.sum(|live| live.stays(at));
        let there = read.from <= at && read.to + 1 >= at;
        let own = if read.stays(at) { 0 } else { read.bytes };
        there.then_some(stays.saturating_add(own))
    }

    /// What is held while the value is moved to a layout, given the bytes that stay.
    fn beside(&self, to: &Live, stays: u64, at: Moment) -> u64 {
        let from = &self.0[to.source];
        let goes = if from.stays(at) { 0 } else { from.bytes };
        stays.saturating_add(goes).saturating_add(to.bytes)
    }

    /// The most that is held while the value is completed or cut right behind the op that makes it,
    /// by moves whose source index satisfies `from`; `None` where there are no such moves.
    pub(super) fn while_completed(&self, step: u32, from: impl Fn(usize) -> bool) -> Option<u64> {
        let early: Vec<usize> = (1..self.0.len()).filter(|at| self.0[*at].early).collect();
        let held_at = |(n, to): (usize, &usize)| {
            let there = |at: usize| {
                let is_moved_on = early[n..].iter().any(|next| self.0[*next].source == at);
                at == *to || is_moved_on || self.0[at].to > behind(step)
            };
            let so_far = std::iter::once(0).chain(early[..=n].iter().copied());
            so_far.filter(|at| there(*at)).map(|at| self.0[at].bytes).fold(0, u64::saturating_add)
        };
        let those = early.iter().enumerate().filter(|(_, to)| from(self.0[**to].source));
        those.map(held_at).max()
    }

    /// The most that any one of its moves holds.
    pub(super) fn most_of_a_move(&self) -> u64 {
        let moves = self.0[1..].iter().map(|to| self.0[to.source].bytes.saturating_add(to.bytes));
        moves.max().unwrap_or(0)
    }
}

impl Holdings<'_> {
    /// Whether a value is in the memory of a device at all.
    pub(crate) fn takes_memory(&self, value: ValueId) -> bool {
        self.kinds[value.index()] != Holding::Nowhere
    }

    /// The bytes of a value in a layout.
    pub(crate) fn bytes(&self, value: ValueId, layout: LayoutId) -> u64 {
        self.bytes[value.index()][layout as usize]
    }

    /// Whether some moves of a value may be done as soon as it is made. A parameter is moved where
    /// it is read.
    pub(crate) fn may_move_early(&self, value: ValueId) -> bool {
        !matches!(self.kinds[value.index()], Holding::Given | Holding::Kept)
    }

    /// Whether a move from a layout that is there then is done as soon as the value is made: moves
    /// that combine terms and slices are.
    pub(crate) fn is_early(&self, value: ValueId, from: LayoutId, to: LayoutId) -> bool {
        let cuts =
            |arc: &MoveArc| arc.collective.row().combines || arc.collective.code() == Move::Slice;
        self.may_move_early(value) && self.tables.of(value).arc(from, to).is_some_and(cuts)
    }

    /// The moments at which each layout of a settled value is held.
    pub(super) fn lives(
        &self,
        value: ValueId,
        made_in: LayoutId,
        moves: &[(LayoutId, LayoutId)],
        twice: bool,
        uses: &[LayoutUse],
    ) -> Lives {
        let (kind, now) = (self.kinds[value.index()], op_at(value.0));
        let bytes = |layout| self.bytes(value, layout);
        let of_made = match kind {
            Holding::Made | Holding::Given => bytes(made_in),
            Holding::Kept | Holding::View | Holding::Nowhere => 0,
        };
        let mut lives = vec![Live {
            layout: made_in,
            source: 0,
            early: kind != Holding::Kept,
            read: None,
            from: if kind == Holding::Given { 0 } else { now },
            to: now,
            bytes: of_made,
        }];
        for (from, to) in moves {
            // Where several have this layout, the last one is meant: the moves of a path stand
            // together.
            let Some(source) = lives.iter().rposition(|live| live.layout == *from) else {
                never!("a move from a layout that is not there", continue)
            };
            let early = lives[source].early && self.is_early(value, *from, *to);
            let first = if early { behind(value.0) + 1 } else { Moment::MAX };
            let bytes = if kind == Holding::Nowhere { 0 } else { bytes(*to) };
            if twice || lives.iter().all(|live| live.layout != *to) {
                let (from, to, layout) = (first, now, *to);
                lives.push(Live { layout, source, early, read: None, from, to, bytes });
            }
        }
        let end = op_at(self.end());
        for at in (0..lives.len()).rev() {
            let Live { layout, early, from, .. } = lives[at];
            let read = uses.iter().find(|u| u.layout == layout);
            let (mut first, mut last) =
                (read.map_or(Moment::MAX, |u| u.first), read.map_or(now, |u| u.last));
            for next in lives[at + 1..].iter().filter(|next| next.source == at) {
                first = first.min(next.from);
                // It is there while the move runs, and may be gone behind the move.
                last = last.max(next.from.saturating_sub(2).min(end));
            }
            lives[at].read = read.map(|u| u.first);
            lives[at].from = if at == 0 || early { from } else { first };
            lives[at].to = last;
        }
        Lives(lives)
    }
}
