//! The bound that prices give: the least of every factor, summed. No choice of one factor depends on that of another, so
//! nothing is searched.

use shard_ir::Layout;

use super::choices::Choices;
use crate::relax::factors::Use;
use crate::relax::graph::{FAR, Queue};
use crate::relax::prices::use_index;
use crate::relax::tree::{MAX_READERS, Tree, add, at};

/// The absolute values of all prices, the largest of each use, sum to at most this: then no sum of the bound overflows,
/// and what reaches [`FAR`] has real costs above [`MAX_COST`].
pub(super) const MAX_PRICES: u64 = 1 << 55;

/// The largest cost of a plan that is bounded, in picoseconds: 40 hours.
pub(super) const MAX_COST: u64 = 1 << 57;

/// What the readers of each value pay, as a certificate says.
pub(super) struct Given {
    /// For each value and use the price at each node, `-FAR` where the reader has none; `None` where it follows from the
    /// other prices.
    pub(super) paid: Vec<Vec<Option<Vec<i64>>>>,
}

/// What follows from some prices, whatever the layouts of the labels.
pub(super) struct Evaluation {
    /// For each value whose only reader's price is not given, what it costs at least to have it at each node.
    derived: Vec<Vec<i64>>,
    /// For each other value, what it costs at least to serve its readers from each node, less what they pay.
    served: Vec<Vec<i64>>,
    /// The terms of the bound, by value and by result.
    least: Vec<i64>,
    outputs: Vec<i64>,
    /// Alternatives that were held against the least of their factor.
    pub(super) alternatives: u64,
}

/// The sum of the terms; `None` where one has no alternative.
fn total<'a>(terms: impl Iterator<Item = &'a i64>) -> Option<i128> {
    let mut sum = 0;
    for term in terms {
        sum += if *term >= FAR { return None } else { i128::from(*term) };
    }
    Some(sum)
}

/// The derived prices at hand: of this pass, else of the one that it amends.
struct View<'v> {
    given: &'v Given,
    own: &'v [Vec<i64>],
    base: Option<&'v Evaluation>,
}

impl View<'_> {
    fn paid(&self, value: usize, reader: usize) -> &[i64] {
        match &self.given.paid[value][reader] {
            Some(paid) => paid,
            None if self.own[value].is_empty() => self.base.map_or(&[], |b| &b.derived[value]),
            None => &self.own[value],
        }
    }
}

impl Choices<'_> {
    /// Works out all terms with the labels free.
    pub(super) fn evaluate(&self, given: &Given) -> Evaluation {
        let count = self.reads.len();
        let (mut tree, mut queue) = (Tree::default(), Queue::default());
        let mut done = Evaluation {
            derived: vec![Vec::new(); count],
            served: vec![Vec::new(); count],
            least: vec![0; count],
            outputs: Vec::new(),
            alternatives: 0,
        };
        for id in &self.factors.live {
            let v = id.index();
            let view = View { given, own: &done.derived, base: None };
            let (mut made, alternatives) = self.made(v, &view, &[]);
            done.alternatives += alternatives;
            if let [None] = given.paid[v][..] {
                self.factors.graphs[v].spread_forward(&mut made[..self.factors.graphs[v].nodes()], &mut queue);
                done.derived[v] = made;
            } else {
                done.served[v] = self.served(v, given, &mut tree);
                done.least[v] = least(&made, &done.served[v]);
            }
        }
        let view = View { given, own: &done.derived, base: None };
        let outputs: Vec<(i64, u64)> = (0..self.factors.outputs.len()).map(|i| self.output(i, &view, &[])).collect();
        for (least, alternatives) in outputs {
            done.outputs.push(least);
            done.alternatives += alternatives;
        }
        done
    }

    /// The bound under one assignment of layouts to labels, and how many alternatives were looked at; `None` where the
    /// assignment has no plan.
    pub(super) fn bound_under(&self, given: &Given, base: &Evaluation, labels: &[Layout]) -> (Option<i128>, u64) {
        let mut queue = Queue::default();
        let mut own: Vec<Vec<i64>> = vec![Vec::new(); self.reads.len()];
        let mut terms = base.least.clone();
        let mut looked_at = 0;
        for id in &self.factors.live {
            let v = id.index();
            let amended = self.reads[v].iter().any(|(operand, _)| !own[*operand].is_empty());
            if !amended && self.label_of(*id).is_none() {
                continue;
            }
            let view = View { given, own: &own, base: Some(base) };
            let (mut made, alternatives) = self.made(v, &view, labels);
            looked_at += alternatives;
            if let [None] = given.paid[v][..] {
                self.factors.graphs[v].spread_forward(&mut made[..self.factors.graphs[v].nodes()], &mut queue);
                own[v] = made;
            } else {
                terms[v] = least(&made, &base.served[v]);
            }
        }
        let view = View { given, own: &own, base: Some(base) };
        for i in 0..self.factors.outputs.len() {
            let (least, alternatives) = self.output(i, &view, labels);
            looked_at += alternatives;
            terms.push(least);
        }
        (total(terms.iter()), looked_at)
    }

    /// What it costs at least to make a value at each node: the time of a strategy and the prices of what it reads.
    fn made(&self, v: usize, view: &View<'_>, labels: &[Layout]) -> (Vec<i64>, u64) {
        let id = shard_ir::ValueId(v as u32);
        let (factor, label) = (&self.factors.factors[v], self.label_of(id).filter(|_| !labels.is_empty()));
        let mut made = vec![FAR; self.factors.nodes(id)];
        let mut alternatives = 0;
        let paid: Vec<&[i64]> = self.reads[v].iter().map(|(operand, reader)| view.paid(*operand, *reader)).collect();
        for s in (0..factor.out.len()).filter(|s| self.usable[v][*s]) {
            if !self.allows(labels, label, id, factor.out[s]) {
                continue;
            }
            let reads = paid.iter().zip(factor.reads_of(s));
            let cost = reads.fold(factor.cost[s], |sum, (paid, node)| add(sum, paid[at(*node)]));
            let least = &mut made[at(factor.out[s])];
            *least = (*least).min(cost);
            alternatives += 1;
        }
        (made, alternatives)
    }

    /// What it costs at least to bring a value from each node to all its readers, less what they pay.
    fn served(&self, v: usize, given: &Given, tree: &mut Tree) -> Vec<i64> {
        let nodes = self.factors.nodes(shard_ir::ValueId(v as u32));
        let graph = &self.factors.graphs[v];
        let paid: Vec<&[i64]> = given.paid[v].iter().flatten().map(|p| p.as_slice()).collect();
        match paid.len() {
            0 => vec![0; nodes],
            1..=MAX_READERS => {
                tree.insides(graph, nodes, &paid);
                tree.inside[(1 << paid.len()) - 1].clone()
            }
            _ => tree.shares(graph, nodes, &paid),
        }
    }

    /// The least price of a result.
    fn output(&self, i: usize, view: &View<'_>, labels: &[Layout]) -> (i64, u64) {
        let value = self.factors.outputs[i].0;
        let reader = use_index(&self.factors, value, Use::Output(i));
        let paid = view.paid(value.index(), reader);
        let wanted = &self.wanted[value.index()][reader];
        let label = self.output_pattern(i).label.filter(|_| !labels.is_empty());
        let allowed = wanted.iter().filter(|n| self.allows(labels, label, value, **n));
        (allowed.map(|n| paid[at(*n)]).min().unwrap_or(FAR), wanted.len() as u64)
    }
}

fn least(made: &[i64], served: &[i64]) -> i64 {
    made.iter().zip(served).map(|(m, s)| add(*m, *s)).min().unwrap_or(FAR)
}
