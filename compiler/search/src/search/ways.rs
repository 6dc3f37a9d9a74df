//! The ways of settling what is wanted next.

use std::cell::RefCell;
use std::rc::Rc;

use rustc_hash::FxHashMap;

use super::states::WayToSettle;
use super::trees::Trees;
use crate::cost::Cost;
use crate::steiner::Steiner;
use crate::table::LayoutId;

/// Moves `(from, to)`, each behind those that it starts from.
pub(super) type Moves = Rc<[(LayoutId, LayoutId)]>;

/// Every way of settling what is wanted next, best bound first. States that want the same next have
/// it in common.
#[derive(Default)]
pub(super) struct WaysToSettle {
    pub(super) all: Vec<WayToSettle>,
    /// Of a value, the trees of moves to all that is wanted of it.
    trees: Vec<Rc<Steiner>>,
    /// Those moves from each layout in which it was looked at.
    moves: RefCell<FxHashMap<LayoutId, Moves>>,
    /// Where memory is a constraint, the lists of trees from each of these layouts. The search
    /// knows each list by all its ends; here no such key is made.
    others: RefCell<FxHashMap<LayoutId, Rc<Trees>>>,
}

impl WaysToSettle {
    /// Those of a slot.
    pub(super) fn of_slot(all: Vec<WayToSettle>) -> WaysToSettle {
        WaysToSettle { all, ..WaysToSettle::default() }
    }

    /// Those of a value, which is brought along these trees to all layouts in which it is wanted.
    pub(super) fn of_value(all: Vec<WayToSettle>, trees: Vec<Rc<Steiner>>) -> WaysToSettle {
        WaysToSettle { all, trees, ..WaysToSettle::default() }
    }

    /// The moves that bring a value from where it is made to all layouts in which it is wanted.
    pub(super) fn moves(&self, made_in: LayoutId) -> Moves {
        let find = || {
            let mut moves = Vec::new();
            for step in self.trees.iter().flat_map(|tree| tree.moves_from(made_in)) {
                if !moves.contains(&step) {
                    moves.push(step);
                }
            }
            moves.into()
        };
        Rc::clone(self.moves.borrow_mut().entry(made_in).or_insert_with(find))
    }

    /// The trees from a layout, made once.
    pub(super) fn listed(&self, made_in: LayoutId, make: impl FnOnce() -> Rc<Trees>) -> Rc<Trees> {
        let known = self.others.borrow().get(&made_in).map(Rc::clone);
        known.unwrap_or_else(|| {
            let made = make();
            self.others.borrow_mut().insert(made_in, Rc::clone(&made));
            made
        })
    }

    /// What any tree costs from a layout.
    pub(super) fn least_moves(&self, made_in: LayoutId) -> Cost {
        self.trees.iter().filter_map(|tree| tree.cost_from(made_in)).max().unwrap_or(Cost::ZERO)
    }

    /// What it costs at least to move to some layouts that are wanted from others, where one tree
    /// says it of all that are.
    pub(super) fn steiner(&self) -> Option<&Steiner> {
        match self.trees.as_slice() {
            [only] => Some(only),
            _ => None,
        }
    }
}
