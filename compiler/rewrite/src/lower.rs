//! Program in, plan out: every order of multiplication searched, the best kept.

use std::sync::Arc;

use shard_cost::{Hardware, collective_cost};
use shard_ir::{InstrId, InstrKind, Liveness, Picoseconds, Plan, Program};

use crate::emit::emit;
use crate::kernel::Kernels;
use crate::logical::orders;
use crate::search::{Found, Search, Solution};
use crate::space::Space;
use crate::table::Tables;
use crate::{LowerError, LowerOptions, Lowered, Optimality, Proof, Stats, Status};

pub(crate) fn lower(program: &Program, hardware: &Hardware, options: &LowerOptions) -> Result<Lowered, LowerError> {
    let strict = options.strict || program.strict;
    match search(program, hardware, options, strict) {
        Err(LowerError::Unreachable { .. }) if strict => {
            let free = search(program, hardware, options, false)?;
            Err(LowerError::Strict { inserted: inserted_moves(program, &free.plan), plan: Box::new(free.plan) })
        }
        other => other,
    }
}

/// The moves of a plan; all of them, since what a `reshard` asks for is told apart by the caller from their spans.
fn inserted_moves(program: &Program, plan: &Plan) -> Vec<InstrId> {
    let written: Vec<shard_grammar::Span> = program
        .values
        .iter()
        .filter(|v| matches!(v.def, shard_ir::Def::Pin { written: true, .. }))
        .map(|v| v.span)
        .collect();
    plan.ids()
        .filter(|id| {
            let instr = plan.instruction(*id);
            matches!(instr.kind, InstrKind::Move(_)) && !instr.origin.span.is_some_and(|s| written.contains(&s))
        })
        .collect()
}

/// What plans are compared by: time, elements touched, bytes live at the peak, steps, the bytes of each move from the
/// largest down, and the order in the text.
type Rank = (u64, u64, u64, u64, Vec<u64>, u64);

fn search(program: &Program, hardware: &Hardware, options: &LowerOptions, strict: bool) -> Result<Lowered, LowerError> {
    let orders = orders(program, &options.limits);
    let mut best: Option<(Rank, Plan)> = None;
    let mut failure = None;
    let mut lower_bound = Picoseconds(u64::MAX);
    let mut root_bound = Picoseconds(u64::MAX);
    let mut stopped_by = orders.cut.then_some("orders of multiplication");
    let mut ties_cut = false;
    let mut stats = Stats::default();
    for variant in orders.programs {
        let kernels = Arc::new(Kernels::new(Arc::new(variant)));
        let space = Space::saturate(Arc::clone(&kernels), &options.limits)?;
        let tables = Tables::new(&space, hardware)?;
        let found = match Search::new(&space, &tables, &kernels.program, strict).run(&options.limits) {
            Ok(found) => found,
            Err(unreachable @ LowerError::Unreachable { .. }) => {
                failure = Some(unreachable);
                continue;
            }
            Err(other) => return Err(other),
        };
        stats.classes += space.graph.number_of_classes();
        stats.nodes += space.graph.total_number_of_nodes();
        stats.expansions += found.stats.expansions;
        lower_bound = lower_bound.min(found.lower_bound);
        root_bound = root_bound.min(found.root_bound);
        stopped_by = stopped_by.or(found.stopped_by);
        ties_cut |= found.ties_cut;
        let (rank, plan) = best_tie(&kernels, &tables, &found, hardware)?;
        if best.as_ref().is_none_or(|(known, _)| rank < *known) {
            best = Some((rank, plan));
        }
    }
    let Some((rank, plan)) = best else {
        return Err(failure.unwrap_or_else(|| LowerError::Internal("no order of multiplication was tried".into())));
    };
    let cost = Picoseconds(rank.0);
    let proof = match stopped_by {
        Some(_) => None,
        None if root_bound == cost => Some(Proof::Certificate),
        None => Some(Proof::Search),
    };
    let optimality = Optimality {
        status: if proof.is_some() { Status::Proven } else { Status::Bounded },
        proof,
        cost,
        lower_bound: if proof == Some(Proof::Search) { root_bound } else { lower_bound.min(cost) },
        stopped_by: stopped_by.map(str::to_owned),
        ties_cut,
    };
    Ok(Lowered { plan, optimality, stats })
}

/// Of the plans that tie in time and elements touched, the one that the tie rule prefers.
fn best_tie(
    kernels: &Kernels,
    tables: &Tables,
    found: &Found,
    hardware: &Hardware,
) -> Result<(Rank, Plan), LowerError> {
    let mut best: Option<(Rank, Plan)> = None;
    for solution in &found.solutions {
        let plan = emit(kernels, tables, solution)?;
        let rank = rank(solution, &plan, hardware);
        if best.as_ref().is_none_or(|(known, _)| rank < *known) {
            best = Some((rank, plan));
        }
    }
    best.ok_or_else(|| LowerError::Internal("the search found nothing and said nothing".into()))
}

fn rank(solution: &Solution, plan: &Plan, hardware: &Hardware) -> Rank {
    let cost = solution.cost;
    let mut moves: Vec<u64> = plan
        .instructions
        .iter()
        .filter_map(|instr| {
            let InstrKind::Move(collective) = &instr.kind else { return None };
            let from = plan.instruction(*instr.operands.first()?).layout;
            let sizes = plan.sizes(&instr.dims);
            Some(collective_cost(hardware, &plan.mesh, collective, from, &sizes, instr.dtype).wire_bytes.0)
        })
        .collect();
    moves.sort_unstable_by(|a, b| b.cmp(a));
    (cost.time, cost.elements, Liveness::of(plan).peak_bytes(), cost.steps, moves, cost.order)
}
