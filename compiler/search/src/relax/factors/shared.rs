//! Graphs and factors that programs of the same dims, mesh and chip share.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use rustc_hash::FxHashMap;
use shard_cost::{Hardware, RegroupTimes};
use shard_ir::{AxisSet, Dim, Mesh, ValueId};

use super::super::Setting;
use super::super::graph::{Graph, GraphKey};
use super::Factor;
use super::builder::FactorKey;
use crate::kernel::Kernels;
use crate::rules::inside::KnownMoves;
use crate::rules::moves::{Freedom, Movable};
use crate::strict::may_move_to;

/// Graphs and factors kept for later searches: of other forms of the program, of its phases, with
/// and without memory. The cache saves time and changes no result.
///
/// Clones share one store. It is small and keeps nothing of a very large program, for which each
/// search makes its own graphs and factors.
#[derive(Clone, Default)]
pub struct SearchCache(Arc<Mutex<Vec<(CacheKey, SharedFactors)>>>);

/// The number of keys that the cache holds: one for each phase of a program, and one for all phases
/// together.
const BASES: usize = 6;

/// The arcs, and the layouts of strategies, that the cache holds under all keys, at some 16 bytes
/// each. A model on four axes has a million in each of its phases.
const MOST_KEPT: usize = 1 << 22;

/// The moves with their times that the cache holds under one key, at some 50 bytes each.
const MOST_MOVES: usize = 1 << 16;

impl fmt::Debug for SearchCache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SearchCache")
    }
}

impl SearchCache {
    /// Calls `act` with the graphs and factors kept under a key, and keeps what `act` adds. A
    /// search that runs at the same time finds none under that key, and makes its own.
    pub(crate) fn with<T>(&self, base: CacheKey, act: impl FnOnce(&mut SharedFactors) -> T) -> T {
        let mut shared = self.take(&base).unwrap_or_else(|| SharedFactors::new(1));
        let came_of_it = act(&mut shared);
        let size = shared.size();
        if size <= MOST_KEPT {
            let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            all.retain(|(of, _)| *of != base);
            // The least recently used entries are dropped first.
            let kept = |all: &[(CacheKey, SharedFactors)]| {
                all.iter().map(|(_, s)| s.size()).sum::<usize>()
            };
            while all.len() == BASES || size + kept(&all) > MOST_KEPT {
                all.remove(0);
            }
            all.push((base, shared));
        }
        came_of_it
    }

    /// Calls `act` with the moves kept under a key, and keeps what `act` adds.
    pub(crate) fn with_moves<T>(
        &self,
        base: CacheKey,
        act: impl FnOnce(&mut KnownMoves) -> T,
    ) -> T {
        self.with(base, |shared| {
            let came_of_it = act(&mut shared.moves);
            if shared.moves.len() > MOST_MOVES {
                shared.moves = KnownMoves::default();
            }
            came_of_it
        })
    }

    fn take(&self, base: &CacheKey) -> Option<SharedFactors> {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let at = all.iter().position(|(of, _)| of == base)?;
        Some(all.remove(at).1)
    }
}

/// All that graphs and factors depend on, beside what [`GraphKey`] and [`FactorKey`] hold; these
/// name dims and axes by number.
#[derive(PartialEq)]
pub(crate) struct CacheKey {
    hardware: Hardware,
    mesh: Mesh,
    dims: Vec<Dim>,
    maxima: AxisSet,
    strict: bool,
    loops: bool,
    in_pieces: bool,
}

impl CacheKey {
    pub(crate) fn of(kernels: &Kernels, setting: Setting<'_>) -> CacheKey {
        let program = kernels.program.as_ref();
        CacheKey {
            hardware: setting.hardware.clone(),
            mesh: program.mesh.clone(),
            dims: program.dims.clone(),
            maxima: setting.maxima,
            strict: setting.strict,
            loops: kernels.loops,
            in_pieces: kernels.in_pieces,
        }
    }
}

/// Graphs and factors that programs of one [`CacheKey`] share.
pub(crate) struct SharedFactors {
    /// The number of ticks in a picosecond in the times of graphs. The times of factors are in
    /// picoseconds.
    pub(super) ticks: i64,
    graphs: FxHashMap<GraphKey, Arc<Graph>>,
    pub(super) factors: FxHashMap<FactorKey, Arc<Factor>>,
    moves: KnownMoves,
}

impl SharedFactors {
    /// An empty store.
    pub(crate) fn new(ticks: i64) -> SharedFactors {
        SharedFactors {
            ticks,
            graphs: FxHashMap::default(),
            factors: FxHashMap::default(),
            moves: KnownMoves::default(),
        }
    }

    /// The graph of each value that needs one; the graph of a scalar without moves for the others.
    pub(super) fn graphs_of(
        &mut self,
        kernels: &Kernels,
        setting: Setting<'_>,
        has_graph: &[bool],
    ) -> Vec<Arc<Graph>> {
        let program = kernels.program.as_ref();
        let mut times = RegroupTimes::new(setting.hardware, &program.mesh);
        let ticks = self.ticks;
        let mut make = |of: &GraphKey| {
            let graph = Graph::new(&mut times, of, setting.maxima);
            Arc::new(if ticks == 1 { graph } else { graph.longer(ticks) })
        };
        let mut shared =
            |of: GraphKey| Arc::clone(self.graphs.entry(of).or_insert_with_key(&mut make));
        let empty = shared(GraphKey::nothing());
        // In a strict layer only a value that a `reshard` names may move.
        let may_move = |id: ValueId| {
            let asks = |by: ValueId| {
                program.value(by).def.operands().contains(&id) && may_move_to(program, by)
            };
            !setting.strict || program.value_ids().any(asks)
        };
        let graph = |id: ValueId| {
            if !has_graph[id.index()] {
                return Arc::clone(&empty);
            }
            let value = program.value(id);
            let mut movable =
                Movable { statistics: kernels.statistics(id), ..Movable::of(program, id) };
            if !may_move(id) {
                movable.freedom = Freedom::Fixed;
            }
            shared(GraphKey { movable, dtype: value.dtype, times: value.times })
        };
        program.value_ids().map(graph).collect()
    }

    /// The number of arcs, layouts of strategies, and moves.
    fn size(&self) -> usize {
        let arcs = self.graphs.values().map(|graph| graph.arcs());
        let layouts = self.factors.values().map(|f| f.out.len() + f.reads.len());
        arcs.chain(layouts).sum::<usize>() + self.moves.len()
    }

    /// The graphs alone, for the times of ops on another chip.
    pub(crate) fn graphs_alone(&self) -> SharedFactors {
        let graphs = self.graphs.clone();
        SharedFactors { graphs, ..SharedFactors::new(self.ticks) }
    }
}
