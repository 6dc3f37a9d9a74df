//! The ways of settling what is wanted next.

use std::cell::RefCell;
use std::rc::Rc;

use rustc_hash::FxHashMap;

use super::states::Choice;
use crate::steiner::Steiner;
use crate::table::LayoutId;

/// Moves `(from, to)`, each behind those that it starts from.
pub(super) type Moves = Rc<[(LayoutId, LayoutId)]>;

/// Every way of settling what is wanted next, best bound first. States that want the same next have
/// it in common.
#[derive(Default)]
pub(super) struct Ways {
    pub(super) choices: Vec<Choice>,
    /// Of a value, the trees of moves to all that is wanted of it.
    trees: Vec<Rc<Steiner>>,
    /// Those moves from each layout in which it was looked at.
    moves: RefCell<FxHashMap<LayoutId, Moves>>,
}

impl Ways {
    /// Those of a slot.
    pub(super) fn of_slot(choices: Vec<Choice>) -> Ways {
        Ways { choices, ..Ways::default() }
    }

    /// Those of a value, which is brought along these trees to all layouts in which it is wanted.
    pub(super) fn of_value(choices: Vec<Choice>, trees: Vec<Rc<Steiner>>) -> Ways {
        Ways { choices, trees, moves: RefCell::default() }
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
}
