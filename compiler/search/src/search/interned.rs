//! Lists that are kept once each, under a number.

use std::hash::Hash;
use std::rc::Rc;

use rustc_hash::FxHashMap;

/// Lists by number, in the order in which they were first met.
pub(super) struct Interned<T> {
    all: Vec<Rc<[T]>>,
    numbers: FxHashMap<Rc<[T]>, u32>,
}

impl<T> Default for Interned<T> {
    fn default() -> Interned<T> {
        Interned { all: Vec::new(), numbers: FxHashMap::default() }
    }
}

impl<T: Clone + Eq + Hash> Interned<T> {
    /// The number of a list.
    pub(super) fn number(&mut self, list: &[T]) -> u32 {
        if let Some(known) = self.numbers.get(list) {
            return *known;
        }
        let (number, list) = (self.all.len() as u32, Rc::<[T]>::from(list));
        self.all.push(Rc::clone(&list));
        self.numbers.insert(list, number);
        number
    }

    /// The list of a number.
    pub(super) fn of(&self, number: u32) -> &Rc<[T]> {
        &self.all[number as usize]
    }
}
