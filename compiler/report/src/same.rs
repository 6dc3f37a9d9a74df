//! Which steps of two plans are the same step.
//!
//! Values that both sources name are paired by their names. Most values have no name, or one in one
//! of the sources alone (`fmt --explicit` names them): these are paired by the op that makes them
//! and by what it reads. What is left, where the plans compute otherwise, is paired by the op
//! alone.

use std::collections::{BTreeMap, VecDeque};

/// What a step is recognised by.
pub(crate) struct Known {
    pub(crate) kind: Kind,
    /// Its name in the source, or nothing.
    pub(crate) name: String,
    /// The layers that it was inlined from.
    pub(crate) within: String,
    /// What it does, with its dims and axes.
    pub(crate) what: String,
    /// The composite that it is a piece of, or nothing.
    pub(crate) piece_of: String,
    pub(crate) layout: String,
    /// The steps that it reads, by their places.
    pub(crate) operands: Vec<usize>,
}

/// What kind of step it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    Parameter,
    Constant,
    Op,
    /// A move with traffic.
    Move,
    /// A move without traffic.
    LocalMove,
}

/// The steps that are the same in both plans, by their places, in the order of the first.
#[derive(Default)]
pub(crate) struct Same {
    /// Parameters and ops.
    pub(crate) values: Vec<(usize, usize)>,
    /// Moves with traffic.
    pub(crate) moves: Vec<(usize, usize)>,
}

/// Finds the steps that are the same in two plans.
pub(crate) fn same(a: &[Known], b: &[Known]) -> Same {
    let mut values = Pairs::new(a.len(), b.len());
    let is_value = |step: &Known| matches!(step.kind, Kind::Parameter | Kind::Op);
    let named = |step: &Known| {
        (is_value(step) && !step.name.is_empty()).then(|| (step.name.clone(), step.by_text()))
    };
    values.pair(a, b, named);
    pair_by_operands(a, b, &mut values);
    values.pair(a, b, |step| (is_value(step) && step.name.is_empty()).then(|| step.by_text()));

    let mut moves = Pairs::new(a.len(), b.len());
    let is_move = |step: &Known| step.kind == Kind::Move;
    let from = |all: &[Known], step: &Known| {
        step.operands.first().map_or_else(String::new, |at| all[*at].layout.clone())
    };
    let way =
        |all: &[Known], step: &Known| (step.what.clone(), from(all, step), step.layout.clone());
    let known_by =
        |all: &[Known], step: &Known| (step.name.clone(), step.within.clone(), way(all, step));
    let named = |all: &[Known], step: &Known| {
        (is_move(step) && !step.name.is_empty()).then(|| known_by(all, step))
    };
    moves.pair_of(a, b, &|at| named(a, &a[at]), &|at| named(b, &b[at]));
    let of_value = |all: &[Known], at: usize, of_first: &dyn Fn(usize) -> Option<usize>| {
        let value = of_first(origin(all, at)).filter(|_| is_move(&all[at]))?;
        Some((value, way(all, &all[at])))
    };
    let in_first = |at: usize| values.second[at];
    moves.pair_of(a, b, &|at| of_value(a, at, &Some), &|at| of_value(b, at, &in_first));
    let unnamed = |all: &[Known], step: &Known| {
        (is_move(step) && step.name.is_empty()).then(|| known_by(all, step))
    };
    moves.pair_of(a, b, &|at| unnamed(a, &a[at]), &|at| unnamed(b, &b[at]));
    Same { values: values.sorted(), moves: moves.sorted() }
}

impl Known {
    /// What an op is recognised by, apart from its name and its operands.
    fn by_text(&self) -> (String, String, String) {
        (self.within.clone(), self.what.clone(), self.piece_of.clone())
    }
}

/// An operand in a key: a step of the first plan, or a constant.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
enum Read {
    Step(usize),
    Constant(String),
}

/// Pairs ops that do the same with the same values, in the order of the second plan.
fn pair_by_operands(a: &[Known], b: &[Known], values: &mut Pairs) {
    let key = |all: &[Known], at: usize, of_first: &dyn Fn(usize) -> Option<usize>| {
        let step = &all[at];
        let read = |operand: &usize| {
            let from = origin(all, *operand);
            match all[from].kind {
                Kind::Constant => Some(Read::Constant(all[from].what.clone())),
                Kind::Parameter | Kind::Op | Kind::Move | Kind::LocalMove => {
                    of_first(from).map(Read::Step)
                }
            }
        };
        let operands: Option<Vec<Read>> = step.operands.iter().map(read).collect();
        Some((step.what.clone(), operands?))
    };
    let is_op = |step: &Known| step.kind == Kind::Op && !step.operands.is_empty();
    let mut open: BTreeMap<_, VecDeque<usize>> = BTreeMap::new();
    for at in (0..a.len()).filter(|at| is_op(&a[*at]) && values.first[*at].is_none()) {
        if let Some(key) = key(a, at, &Some) {
            open.entry(key).or_default().push_back(at);
        }
    }
    for at in (0..b.len()).filter(|at| is_op(&b[*at])) {
        if values.second[at].is_some() {
            continue;
        }
        let found = key(b, at, &|at| values.second[at]).and_then(|key| open.get_mut(&key));
        if let Some(first) = found.and_then(VecDeque::pop_front) {
            values.join(first, at);
        }
    }
}

/// What a chain of moves starts from.
fn origin(all: &[Known], mut at: usize) -> usize {
    while let (Kind::Move | Kind::LocalMove, Some(operand)) =
        (all[at].kind, all[at].operands.first())
    {
        at = *operand;
    }
    at
}

/// The pairs so far: for each step its fellow in the other plan.
struct Pairs {
    first: Vec<Option<usize>>,
    second: Vec<Option<usize>>,
}

impl Pairs {
    fn new(first: usize, second: usize) -> Pairs {
        Pairs { first: vec![None; first], second: vec![None; second] }
    }

    fn join(&mut self, first: usize, second: usize) {
        self.first[first] = Some(second);
        self.second[second] = Some(first);
    }

    /// Pairs steps that are still alone and have the same key, the n-th with the n-th.
    fn pair<K: Ord>(&mut self, a: &[Known], b: &[Known], key: impl Fn(&Known) -> Option<K>) {
        self.pair_of(a, b, &|at| key(&a[at]), &|at| key(&b[at]));
    }

    fn pair_of<K: Ord>(
        &mut self,
        a: &[Known],
        b: &[Known],
        of_first: &dyn Fn(usize) -> Option<K>,
        of_second: &dyn Fn(usize) -> Option<K>,
    ) {
        let mut open: BTreeMap<K, VecDeque<usize>> = BTreeMap::new();
        for at in (0..b.len()).filter(|at| self.second[*at].is_none()) {
            if let Some(key) = of_second(at) {
                open.entry(key).or_default().push_back(at);
            }
        }
        for at in 0..a.len() {
            let alone = self.first[at].is_none();
            let found = of_first(at).filter(|_| alone).and_then(|key| open.get_mut(&key));
            if let Some(second) = found.and_then(VecDeque::pop_front) {
                self.join(at, second);
            }
        }
    }

    fn sorted(self) -> Vec<(usize, usize)> {
        let first = self.first.into_iter().enumerate();
        first.filter_map(|(at, other)| Some((at, other?))).collect()
    }
}
