//! A plan read off the states that led to it.

use super::states::{Decision, State, WayToSettle};
use super::trees::ListedTree;
use super::{Search, SettledValue, Solution};
use crate::LowerError;
use crate::table::{LayoutId, Source};

impl Search<'_> {
    /// Reads a plan off the decisions that led to a state.
    pub(super) fn solution(&self, states: &[State], goal: usize) -> Result<Solution, LowerError> {
        let mut values: Vec<Option<SettledValue>> = vec![None; self.program.values.len()];
        let mut outputs = Vec::new();
        let mut at = goal;
        loop {
            let state = &states[at];
            match state.decision {
                Decision::Root => break,
                Decision::Label => {}
                Decision::Output(layout) => outputs.push(layout),
                Decision::Value(value, pick) => {
                    let before = &states[state.parent];
                    let WayToSettle { made_in, producer, .. } = before.ways.all[pick.way as usize];
                    let Some(ListedTree::Exact(tree)) = self.moved(before, pick) else {
                        return Err(LowerError::Internal(
                            "a plan whose moves are not known".into(),
                        ));
                    };
                    let moves = tree.moves.to_vec();
                    values[value.index()] = Some(SettledValue { made_in, producer, moves });
                }
            }
            at = state.parent;
        }
        outputs.reverse();
        let (labels, cost) = (states[goal].labels.to_vec(), states[goal].cost);
        let mut solution = Solution { values, outputs, labels, cost };
        self.store_unused_parameters(&mut solution)?;
        Ok(solution)
    }

    /// Adds the parameters that nothing reads, each stored as small as its type allows.
    fn store_unused_parameters(&self, solution: &mut Solution) -> Result<(), LowerError> {
        for id in self.program.parameters() {
            if solution.values[id.index()].is_some() {
                continue;
            }
            let table = self.tables.of(id);
            let stored = (0..table.layouts.len())
                .filter_map(|layout| {
                    let given = table.producers[layout].iter().position(|p| {
                        p.source == Source::Given
                            && p.labels
                                .iter()
                                .all(|(l, want)| solution.labels.get(l.0 as usize) == Some(want))
                    })?;
                    Some((table.producers[layout][given].cost, layout, given))
                })
                .min();
            let Some((_, layout, producer)) = stored else {
                return Err(LowerError::Unreachable { value: Some(id), output: None });
            };
            let made_in = layout as LayoutId;
            solution.values[id.index()] =
                Some(SettledValue { made_in, producer, moves: Vec::new() });
        }
        Ok(())
    }
}
