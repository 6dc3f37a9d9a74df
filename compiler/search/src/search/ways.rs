//! The ways of settling what a state wants next.

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

/// Every way of settling what a state wants next, best bound first. States that want the same next
/// share one of these.
#[derive(Default)]
pub(super) struct WaysToSettle {
    pub(super) all: Vec<WayToSettle>,
    /// For a value, the cheapest moves to all layouts in which it is wanted; several trees where
    /// these layouts are too many for one.
    trees: Vec<Rc<Steiner>>,
    /// The moves of `trees` from each layout that was asked about.
    moves: RefCell<FxHashMap<LayoutId, Moves>>,
    /// The lists of trees from each layout that was asked about, where memory is a constraint. The
    /// search finds a list by all its ends; here the layout alone is the key.
    others: RefCell<FxHashMap<LayoutId, Rc<Trees>>>,
}

impl WaysToSettle {
    /// The ways of deciding a slot.
    pub(super) fn of_slot(all: Vec<WayToSettle>) -> WaysToSettle {
        WaysToSettle { all, ..WaysToSettle::default() }
    }

    /// The ways of settling a value, which `trees` bring to all layouts in which it is wanted.
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

    /// The list of trees from a layout, made when it is first asked for.
    pub(super) fn listed(&self, made_in: LayoutId, make: impl FnOnce() -> Rc<Trees>) -> Rc<Trees> {
        let known = self.others.borrow().get(&made_in).map(Rc::clone);
        known.unwrap_or_else(|| {
            let made = make();
            self.others.borrow_mut().insert(made_in, Rc::clone(&made));
            made
        })
    }

    /// What any tree from a layout costs at least.
    pub(super) fn least_moves(&self, made_in: LayoutId) -> Cost {
        self.trees.iter().filter_map(|tree| tree.cost_from(made_in)).max().unwrap_or(Cost::ZERO)
    }

    /// The least costs of moving to any of the wanted layouts; `None` where these are too many for
    /// one tree.
    pub(super) fn steiner(&self) -> Option<&Steiner> {
        match self.trees.as_slice() {
            [only] => Some(only),
            _ => None,
        }
    }
}
