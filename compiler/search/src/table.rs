//! The e-graph as the search reads it: for each value its layouts, the moves between them, and the
//! ways of making the value in each. The tables are read off e-classes and e-nodes and nothing
//! else, so that the rules alone define the plan space.

use rustc_hash::FxHashMap;
use shard_cost::{Hardware, RegroupTimes};
use shard_ir::{Collective, Def, Fused, LabelId, Layout, Program, ValueId};

use crate::LowerError;
use crate::cost::Cost;
use crate::labels::label_layout;
use crate::space::{At, ENode, Space};
use crate::times::{MoveKey, kernel_cost, move_cost, parameter_cost};

/// A layout of a value, as an index into [`ValueTable::layouts`].
pub(crate) type LayoutId = u32;

/// A move between two layouts of one value.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MoveArc {
    pub(crate) from: LayoutId,
    pub(crate) to: LayoutId,
    pub(crate) collective: Collective,
    pub(crate) cost: Cost,
}

/// A way of making a value in a layout.
#[derive(Clone, Debug)]
pub(crate) struct Producer {
    /// What makes the value.
    pub(crate) source: Source,
    /// The values that are read, each with its layout.
    pub(crate) reads: Vec<(ValueId, LayoutId)>,
    /// The cost without what is read.
    pub(crate) cost: Cost,
    /// The labels that must have a layout, with the layout.
    pub(crate) labels: Vec<(LabelId, Layout)>,
}

/// What makes a value.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Source {
    /// Nothing: the value is a parameter or a constant.
    Given,
    /// The value is a pin, and its operand is passed on.
    Pin,
    /// A kernel of the value, by number, with the collective in the loop of the einsum that leads
    /// it.
    Kernel(usize, Option<Fused>),
}

/// All that the search knows of one value.
#[derive(Debug, Default)]
pub(crate) struct ValueTable {
    /// Its layouts, sorted.
    pub(crate) layouts: Vec<Layout>,
    /// The moves into each layout.
    pub(crate) arcs_into: Vec<Vec<MoveArc>>,
    /// The moves out of each layout: where to, and the cost.
    pub(crate) arcs_from: Vec<Vec<(LayoutId, Cost)>>,
    /// The ways of making the value in each layout.
    pub(crate) producers: Vec<Vec<Producer>>,
}

impl ValueTable {
    /// Sorts moves and ways of making by what they are.
    fn sort(&mut self) {
        for arcs in &mut self.arcs_into {
            arcs.sort_unstable_by_key(|arc| (arc.from, arc.collective));
        }
        self.arcs_from.iter_mut().for_each(|arcs| arcs.sort_unstable());
        for producers in &mut self.producers {
            producers.sort_unstable_by(|a, b| (a.source, &a.reads).cmp(&(b.source, &b.reads)));
        }
    }

    pub(crate) fn id_of(&self, layout: Layout) -> Option<LayoutId> {
        self.layouts.binary_search(&layout).ok().map(|i| i as LayoutId)
    }

    pub(crate) fn arc(&self, from: LayoutId, to: LayoutId) -> Option<&MoveArc> {
        self.arcs_into[to as usize]
            .iter()
            .filter(|a| a.from == from)
            .min_by_key(|a| (a.cost, a.collective))
    }
}

/// The tables of a program.
#[derive(Debug)]
pub(crate) struct Tables {
    pub(crate) values: Vec<ValueTable>,
}

impl Tables {
    pub(crate) fn new(space: &Space, hardware: &Hardware) -> Result<Tables, LowerError> {
        Tables::read(space, hardware, false)
    }

    /// The same, with the e-graph read forwards or backwards, so that a test can show that its
    /// order does not matter.
    fn read(space: &Space, hardware: &Hardware, backwards: bool) -> Result<Tables, LowerError> {
        let program = space.kernels.program.as_ref();
        let mut values: Vec<ValueTable> =
            (0..program.values.len()).map(|_| ValueTable::default()).collect();
        for (at, _) in &space.graph.analysis.goals {
            values[at.value.index()].layouts.push(at.layout);
        }
        let mut order: Vec<Vec<u64>> = Vec::with_capacity(values.len());
        for (id, table) in program.value_ids().zip(&mut values) {
            table.layouts.sort_unstable();
            table.layouts.dedup();
            table.arcs_into = vec![Vec::new(); table.layouts.len()];
            table.arcs_from = vec![Vec::new(); table.layouts.len()];
            table.producers = vec![Vec::new(); table.layouts.len()];
            order.push(text_order(program, id, &table.layouts));
        }
        let moves = MoveCosts {
            known: FxHashMap::default(),
            times: RegroupTimes::new(hardware, &program.mesh),
        };
        let mut reading = Reading { space, hardware, values, moves };
        let place = |of: usize, count: usize| if backwards { count - 1 - of } else { of };
        let goals = &space.graph.analysis.goals;
        for of in 0..goals.len() {
            let (at, class) = goals[place(of, goals.len())];
            let to = reading.locate(at)?;
            let rank = order[at.value.index()][to as usize];
            let nodes = &space.graph[class].nodes;
            for of in 0..nodes.len() {
                reading.add(at, to, &nodes[place(of, nodes.len())], rank)?;
            }
        }
        let mut values = reading.values;
        values.iter_mut().for_each(ValueTable::sort);
        Ok(Tables { values })
    }

    pub(crate) fn of(&self, value: ValueId) -> &ValueTable {
        &self.values[value.index()]
    }
}

/// The costs of moves, each time that one is done. Values that share dims and dtype share them.
struct MoveCosts<'s> {
    known: FxHashMap<MoveKey<'s>, Cost>,
    times: RegroupTimes<'s>,
}

/// Tables that are being read off an e-graph.
struct Reading<'s> {
    space: &'s Space,
    hardware: &'s Hardware,
    values: Vec<ValueTable>,
    moves: MoveCosts<'s>,
}

impl<'s> Reading<'s> {
    /// The number of a layout of a value.
    fn locate(&self, at: At) -> Result<LayoutId, LowerError> {
        self.values[at.value.index()]
            .id_of(at.layout)
            .ok_or_else(|| LowerError::Internal(format!("{at:?} has no e-class")))
    }

    /// What an e-node reads.
    fn read(&self, node: &ENode) -> Vec<At> {
        egg::Language::children(node).iter().map(|child| self.space.graph[*child].data).collect()
    }

    /// Enters an e-node of the class `at`, whose layout has the number `to` and, sorted as text,
    /// the place `rank`.
    fn add(&mut self, at: At, to: LayoutId, node: &ENode, rank: u64) -> Result<(), LowerError> {
        let program: &'s Program = self.space.kernels.program.as_ref();
        let read = self.read(node);
        let made = match node {
            ENode::Goal(_) => return Ok(()),
            ENode::Move(_, collective, _) => {
                return self.add_move(at, to, *collective, read[0], rank);
            }
            ENode::Source(_) => {
                let (cost, labels) = match &program.value(at.value).def {
                    Def::Parameter { .. } => {
                        (parameter_cost(program, at.value, at.layout), label_demand(program, at))
                    }
                    Def::Constant(_) | Def::Op { .. } | Def::Pin { .. } => (Cost::ZERO, Vec::new()),
                };
                Producer {
                    source: Source::Given,
                    reads: Vec::new(),
                    cost: Cost { order: rank, ..cost },
                    labels,
                }
            }
            ENode::Pin(..) => {
                let reads = vec![(read[0].value, self.locate(read[0])?)];
                Producer {
                    source: Source::Pin,
                    reads,
                    cost: Cost::ZERO,
                    labels: label_demand(program, at),
                }
            }
            ENode::Kernel(_, number, _) => self.kernel(at, *number, None, &read, rank)?,
            ENode::Loop(_, of, _) => self.kernel(at, of.0, Some(of.1), &read, rank)?,
        };
        self.values[at.value.index()].producers[to as usize].push(made);
        Ok(())
    }

    fn add_move(
        &mut self,
        at: At,
        to: LayoutId,
        collective: Collective,
        source: At,
        rank: u64,
    ) -> Result<(), LowerError> {
        let program: &'s Program = self.space.kernels.program.as_ref();
        let from = self.locate(source)?;
        let value = program.value(at.value);
        let (from_layout, to_layout) = (source.layout, at.layout);
        let moved =
            MoveKey { dims: &value.dims, dtype: value.dtype, collective, from_layout, to_layout };
        let MoveCosts { known, times } = &mut self.moves;
        let cost = *known.entry(moved).or_insert_with_key(|moved| move_cost(program, times, moved));
        let cost = Cost { order: rank, ..cost.times(value.times) };
        let table = &mut self.values[at.value.index()];
        table.arcs_into[to as usize].push(MoveArc { from, to, collective, cost });
        table.arcs_from[from as usize].push((to, cost));
        Ok(())
    }

    /// A kernel of a value by number, with the collective in its loop.
    fn kernel(
        &self,
        at: At,
        number: usize,
        fused: Option<Fused>,
        read: &[At],
        rank: u64,
    ) -> Result<Producer, LowerError> {
        let kernels = &self.space.kernels;
        let program = kernels.program.as_ref();
        let kernel = &kernels.of[at.value.index()][number];
        let layouts: Vec<Layout> = read.iter().map(|operand| operand.layout).collect();
        let locate = |operand: &At| Ok((operand.value, self.locate(*operand)?));
        let reads = read.iter().map(locate).collect::<Result<Vec<_>, LowerError>>()?;
        let cost = kernel_cost(kernels, self.hardware, kernel, fused.as_ref(), &layouts, at.layout)
            .ok_or_else(|| {
                LowerError::Internal(format!("{at:?} has a kernel that does not type"))
            })?;
        let cost = Cost { order: rank, ..cost.times(program.value(at.value).times) };
        let mut labels = Vec::new();
        if kernel.pins.iter().any(|p| !p.is_empty()) {
            let links =
                kernels.links(kernel, fused.as_ref(), &layouts, at.layout).ok_or_else(|| {
                    LowerError::Internal(format!("{at:?} has a kernel without layouts"))
                })?;
            for (link, pins) in links.iter().zip(&kernel.pins) {
                for pin in pins {
                    let at = At { value: *pin, layout: link.made };
                    labels.extend(label_demand(program, at));
                }
            }
        }
        Ok(Producer { source: Source::Kernel(number, fused), reads, cost, labels })
    }
}

/// For each layout of a value its place when all of them are sorted as text.
fn text_order(program: &Program, value: ValueId, layouts: &[Layout]) -> Vec<u64> {
    let names = program.dim_names(&program.value(value).dims);
    let mut sorted: Vec<(String, usize)> =
        layouts.iter().enumerate().map(|(i, l)| (l.text(&program.mesh, &names), i)).collect();
    sorted.sort_unstable();
    let mut order = vec![0; layouts.len()];
    for (place, (_, i)) in sorted.into_iter().enumerate() {
        order[i] = place as u64;
    }
    order
}

/// The label of a parameter or a pin, with the layout that it must have where the value has this
/// one.
fn label_demand(program: &Program, at: At) -> Vec<(LabelId, Layout)> {
    let value = program.value(at.value);
    let label = value.def.pattern().and_then(|pattern| pattern.label);
    label.map(|label| (label, label_layout(&value.dims, at.layout))).into_iter().collect()
}

#[cfg(test)]
mod tests {
    use shard_check::{CheckOptions, check_source};
    use shard_grammar::SourceFile;

    use super::*;
    use crate::Limits;
    use crate::kernel::Kernels;
    use crate::logical::Saturated;

    #[test]
    fn tables_do_not_hang_on_the_order_in_which_the_library_keeps_classes_and_e_nodes() {
        let hardware = Hardware::built_in("tpu-v4-flat").expect("a built-in chip");
        let limits = Limits::default();
        for name in ["feed_forward", "palm", "llama"] {
            let path = format!("{}/benches/programs/{name}.shard", env!("CARGO_MANIFEST_DIR"));
            let text = std::fs::read_to_string(path).expect("the program");
            let checked = check_source(&SourceFile::new(name, &text), &CheckOptions::default());
            let program = checked.programs.into_iter().next().expect("a layer without an error");
            let form = Saturated::new(&program, false, &limits).written();
            let kernels = Kernels::of_form(form, false, false, &hardware);
            let space = Space::saturate(kernels.into(), &hardware, None, &limits).expect("a space");
            let [one, other] = [false, true]
                .map(|backwards| Tables::read(&space, &hardware, backwards).expect("tables"));
            let moves: usize = one.values.iter().flat_map(|v| &v.arcs_into).map(Vec::len).sum();
            assert!(moves > 1000, "{name}: {moves} moves");
            for (value, (one, other)) in one.values.iter().zip(&other.values).enumerate() {
                assert_eq!(format!("{one:?}"), format!("{other:?}"), "{name}: value {value}");
            }
        }
    }
}
