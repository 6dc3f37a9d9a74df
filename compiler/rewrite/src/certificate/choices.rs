//! What a plan of one program can choose from: the factors of the relaxation, less what no plan can use.
//!
//! A strategy stays if every layout that it reads can be had and every reader can be served from the layout that it makes.
//! (The states inside kernels are why some do not.) What is left decides at which layouts a reader has a price.

use shard_cost::Hardware;
use shard_ir::{Def, LabelId, Layout, LayoutPattern, Program, ValueId};

use crate::kernel::Kernels;
use crate::relax::factors::{Factors, Use};
use crate::relax::graph::Node;
use crate::relax::prices::uses_of;
use crate::space::maxima;
use crate::{Limits, LowerError};

/// The plan space of one program, as factors.
pub(super) struct Choices<'a> {
    pub(super) program: &'a Program,
    pub(super) factors: Factors,
    /// For each value, which of its strategies a plan can use.
    pub(super) usable: Vec<Vec<bool>>,
    /// For each value and use, the layouts that the reader can read it in, in the order of their numbers.
    pub(super) wanted: Vec<Vec<Vec<Node>>>,
    /// For each value, of each of its operands: which value it is, and which use of that value.
    pub(super) reads: Vec<Vec<(usize, usize)>>,
}

impl<'a> Choices<'a> {
    pub(super) fn new(kernels: &'a Kernels, hardware: &Hardware) -> Result<Choices<'a>, LowerError> {
        let program = kernels.program.as_ref();
        let factors = Factors::new(kernels, hardware, maxima(program), program.strict, &Limits::default())?;
        let mut reads = vec![Vec::new(); factors.factors.len()];
        for id in &factors.live {
            reads[id.index()] = uses_of(&factors, *id);
        }
        let usable = factors.factors.iter().map(|f| vec![true; f.out.len()]).collect();
        let mut choices = Choices { program, usable, wanted: vec![Vec::new(); reads.len()], reads, factors };
        while choices.remove_unusable() {}
        Ok(choices)
    }

    /// One pass from the parameters to the results and back. Returns whether anything was removed.
    fn remove_unusable(&mut self) -> bool {
        let Choices { factors, usable, wanted, reads, .. } = self;
        let mut removed = false;
        let mut had: Vec<Vec<bool>> = vec![Vec::new(); usable.len()];
        for id in &factors.live {
            let (v, factor) = (id.index(), &factors.factors[id.index()]);
            let mut have = vec![false; factors.nodes(*id)];
            for (s, usable) in usable[v].iter_mut().enumerate().filter(|(_, usable)| **usable) {
                *usable = reads[v].iter().zip(factor.reads_of(s)).all(|((operand, _), n)| had[*operand][*n as usize]);
                removed |= !*usable;
                have[factor.out[s] as usize] |= *usable;
            }
            factors.graphs[v].reach(&mut have, true);
            had[v] = have;
        }
        for id in factors.live.iter().rev() {
            let (v, factor) = (id.index(), &factors.factors[id.index()]);
            let mut useful = vec![true; factors.nodes(*id)];
            wanted[v].clear();
            for reader in &factors.uses[v] {
                let mut reached = vec![false; useful.len()];
                match reader {
                    Use::Output(i) => factors.outputs[*i].1.iter().for_each(|n| reached[*n as usize] = true),
                    Use::Operand(by, place) => {
                        let (by, factor) = (by.index(), &factors.factors[by.index()]);
                        for s in (0..factor.out.len()).filter(|s| usable[by][*s]) {
                            reached[factor.reads_of(s)[*place] as usize] = true;
                        }
                    }
                }
                reached.iter_mut().zip(&had[v]).for_each(|(r, h)| *r &= *h);
                wanted[v].push((0..reached.len()).filter(|n| reached[*n]).map(|n| n as Node).collect());
                factors.graphs[v].reach(&mut reached, false);
                useful.iter_mut().zip(&reached).for_each(|(u, r)| *u &= *r);
            }
            for (s, usable) in usable[v].iter_mut().enumerate().filter(|(_, usable)| **usable) {
                *usable = useful[factor.out[s] as usize];
                removed |= !*usable;
            }
        }
        removed
    }

    /// The label that a parameter or a pin bears.
    pub(super) fn label_of(&self, id: ValueId) -> Option<LabelId> {
        match &self.program.value(id).def {
            Def::Parameter { pattern, .. } | Def::Pin { pattern, .. } => pattern.label,
            Def::Constant(_) | Def::Op { .. } => None,
        }
    }

    /// Whether a layout of a value is one that an assignment of layouts to labels allows where this label stands.
    pub(super) fn allows(&self, labels: &[Layout], label: Option<LabelId>, value: ValueId, node: Node) -> bool {
        match label.and_then(|LabelId(l)| labels.get(l as usize)) {
            Some(wanted) => self.factors.has_label_layout(self.program, value, node, *wanted),
            None => true,
        }
    }

    /// The pattern of a result.
    pub(super) fn output_pattern(&self, output: usize) -> &LayoutPattern {
        &self.program.outputs[output].pattern
    }
}
