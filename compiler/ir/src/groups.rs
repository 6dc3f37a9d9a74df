//! Union-find: groups of things that belong together.

use std::collections::{BTreeMap, BTreeSet};

/// Groups of things, each known by its least member. A thing that was never joined to another is a
/// group of its own.
///
/// ```
/// let mut groups = shard_ir::Groups::default();
/// groups.join(7, 3);
/// groups.join(7, 5);
/// assert_eq!(groups.first_of(5), 3);
/// assert_eq!(groups.first_of(4), 4);
/// ```
#[derive(Clone, Debug)]
pub struct Groups<T> {
    /// For each thing that is not the first of its group, a lesser thing of the group. The first
    /// may map to itself, or be absent.
    before: BTreeMap<T, T>,
}

impl<T> Default for Groups<T> {
    fn default() -> Groups<T> {
        Groups { before: BTreeMap::new() }
    }
}

impl<T: Copy + Ord> Groups<T> {
    /// The least thing in the group of a thing.
    pub fn first_of(&self, thing: T) -> T {
        let mut at = thing;
        while let Some(before) = self.before.get(&at).filter(|before| **before != at) {
            at = *before;
        }
        at
    }

    /// Joins the groups of two things.
    pub fn join(&mut self, one: T, other: T) {
        let (one, other) = (self.first_of(one), self.first_of(other));
        self.before.insert(one.min(other), one.min(other));
        self.before.insert(one.max(other), one.min(other));
    }

    /// Adds a thing, so that [`Groups::all`] lists it even if it is joined to no other.
    pub fn name(&mut self, thing: T) {
        self.before.entry(thing).or_insert(thing);
    }

    /// Whether a thing was named or joined.
    pub fn has(&self, thing: T) -> bool {
        self.before.contains_key(&thing)
    }

    /// What was named or joined, in order.
    pub fn things(&self) -> impl Iterator<Item = T> + '_ {
        self.before.keys().copied()
    }

    /// All groups of what was named or joined, in order.
    pub fn all(&self) -> Vec<BTreeSet<T>> {
        let mut groups: BTreeMap<T, BTreeSet<T>> = BTreeMap::new();
        for thing in self.things() {
            groups.entry(self.first_of(thing)).or_default().insert(thing);
        }
        groups.into_values().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::Groups;

    #[test]
    fn what_is_joined_is_one_group_however_it_was_joined() {
        let mut groups = Groups::default();
        for (one, other) in [(9, 8), (8, 2), (5, 4), (9, 5), (6, 6)] {
            groups.join(one, other);
        }
        groups.name(1);
        groups.name(9);
        let all: Vec<Vec<i32>> =
            groups.all().into_iter().map(|group| group.into_iter().collect()).collect();
        assert_eq!(all, [vec![1], vec![2, 4, 5, 8, 9], vec![6]]);
        assert!([4, 5, 8, 9].iter().all(|thing| groups.first_of(*thing) == 2));
    }
}
