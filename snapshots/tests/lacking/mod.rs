//! The bytes that plans send, compared with the bytes that devices lack.
//!
//! A device *lacks* the elements of its new block that are not in its old block. Blocks are counted
//! here as sets of indices, device by device, from the places of axes alone: the compiler's own
//! arithmetic of moves is not used. No plan can send less to the device that lacks most. Where a
//! plan sends more the table says why, and each reason is tested with the least that any chain of
//! moves sends.
//!
//! * `reshards`: one value, pinned from one layout to another, on a flat network whose time is its
//!   bytes.
//! * `programs`: for each value of a plan that is moved, and each layout that it is read in, the
//!   same.

mod blocks;
mod cases;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

use shard_cost::{Hardware, collective_cost};
use shard_ir::{AxisSet, Collective, DimId, Dtype, InstrId, InstrKind, Layout, MeshShape, Plan};
use shard_search::{LowerOptions, Status, lower};
use shard_snapshots::root;

use blocks::least_sent;

fn lowered(source: &str) -> (Plan, Hardware) {
    let program = shard_snapshots::compile(source).swap_remove(0);
    let chip = program.hardware.as_ref().expect("a chip");
    let chip = Hardware::built_in(chip).expect("a built-in chip");
    let found = lower(&program, &chip, &LowerOptions::default())
        .unwrap_or_else(|error| panic!("{error}\n{source}"));
    assert_eq!(found.optimality.status, Status::Proven, "{source}");
    (found.plan, chip)
}

/// A value in a layout, moved from the layout in which it was made.
struct Brought {
    name: String,
    /// The value that is moved, in the layout in which it is made.
    made: InstrId,
    dims: Vec<DimId>,
    dtype: Dtype,
    from: Layout,
    to: Layout,
    /// The bytes that each move on the way sends, by its name.
    moves: Vec<(&'static str, u64)>,
    /// The bytes that the device lacks which lacks most.
    lacks: u64,
}

impl Brought {
    fn sent(&self) -> u64 {
        self.moves.iter().map(|(_, bytes)| bytes).sum()
    }
}

/// The moves of a plan, joined to ways of one value: from the layout in which it is made to the
/// layout in which an op or a result reads it.
fn ways(plan: &Plan, chip: &Hardware) -> Vec<Brought> {
    let is_move = |id: InstrId| matches!(plan.instruction(id).kind, InstrKind::Move(_));
    let readers =
        plan.ids().filter(|id| !is_move(*id)).flat_map(|id| plan.instruction(id).operands.clone());
    let mut ends: Vec<InstrId> =
        readers.chain(plan.outputs.iter().map(|o| o.id)).filter(|id| is_move(*id)).collect();
    ends.sort_unstable();
    ends.dedup();
    let way = |end: InstrId| {
        let of = plan.instruction(end);
        let (sizes, mut at, mut moves) = (plan.sizes(&of.dims), end, Vec::new());
        while let InstrKind::Move(collective) = &plan.instruction(at).kind {
            let before = plan.instruction(at).operands[0];
            let layout = plan.instruction(before).layout;
            let cost = collective_cost(chip, &plan.mesh, collective, layout, &sizes, of.dtype);
            moves.push((collective.name(), cost.wire_bytes.0));
            at = before;
        }
        moves.reverse();
        let from = plan.instruction(at).layout;
        let name = of.name.clone().unwrap_or_else(|| "-".into());
        let lacks = least_sent(&plan.mesh, &sizes, of.dtype.bits(), from, of.layout);
        Brought {
            name,
            made: at,
            dims: of.dims.clone(),
            dtype: of.dtype,
            from,
            to: of.layout,
            moves,
            lacks,
        }
    };
    ends.into_iter().map(way).collect()
}

/// Why a way sends more than devices lack; `None` if no known reason applies.
fn reason(plan: &Plan, chip: &Hardware, way: &Brought, others: &[Brought]) -> Option<String> {
    let sizes = plan.sizes(&way.dims);
    let shape = MeshShape { mesh: &plan.mesh, sizes: &sizes };
    let bytes = |collective: &Collective, from: Layout| {
        collective_cost(chip, &plan.mesh, collective, from, &sizes, way.dtype).wire_bytes.0
    };
    let any = least_by(shape, (way.from, way.to), way.sent(), &bytes);
    let mut why = Vec::new();
    if any < way.sent() {
        let shared = |other: &&Brought| other.to != way.to && other.made == way.made;
        let other = others.iter().find(shared)?;
        let names = plan.dim_names(&way.dims);
        why.push(format!("part of the way is that to {}", other.to.text(&plan.mesh, &names)));
    }
    if way.lacks < any {
        why.push(format!("no chain of moves sends less than {any}"));
    }
    Some(why.join("; "))
}

/// The least that some chain of moves sends, up to `most` (Dijkstra's algorithm).
fn least_by(
    shape: MeshShape<'_>,
    (from, to): (Layout, Layout),
    most: u64,
    bytes: &dyn Fn(&Collective, Layout) -> u64,
) -> u64 {
    let mut sent = BTreeMap::from([(from, 0)]);
    let mut open = BTreeSet::from([(0, from)]);
    while let Some((so_far, at)) = open.pop_first() {
        if at == to {
            return so_far;
        }
        for (collective, next) in Collective::all_from(shape, at, AxisSet::EMPTY, AxisSet::EMPTY) {
            let all = so_far + bytes(&collective, at);
            if all <= most && sent.get(&next).is_none_or(|known| all < *known) {
                open.extend([(all, next)]);
                sent.insert(next, all);
            }
        }
    }
    most
}

/// A table with a line for each value that a plan moves; and the lines that send more than devices
/// lack without a reason, or that send less.
fn table(cases: &[(String, String)], text: &mut String) -> Vec<String> {
    let mut wrong = Vec::new();
    for (name, source) in cases {
        let (plan, chip) = lowered(source);
        let ways = ways(&plan, &chip);
        let _ = writeln!(text, "{name}{}", if ways.is_empty() { ": nothing is moved" } else { "" });
        for way in &ways {
            let (sent, lacks) = (way.sent(), way.lacks);
            let why =
                if sent > lacks { reason(&plan, &chip, way, &ways) } else { Some(String::new()) };
            if sent < lacks || why.is_none() {
                wrong.push(format!("{name}, {}: lacks {lacks}, sends {sent}", way.name));
            }
            let names = plan.dim_names(&way.dims);
            let layout = |layout: Layout| layout.text(&plan.mesh, &names);
            let moves: Vec<&str> = way.moves.iter().map(|(name, _)| *name).collect();
            let _ = write!(
                text,
                "  {} {} -> {}: lacks {lacks}, ",
                way.name,
                layout(way.from),
                layout(way.to)
            );
            let _ = writeln!(text, "sends {sent} by {}", moves.join(", "));
            if let Some(why) = why.filter(|why| !why.is_empty()) {
                let _ = writeln!(text, "    {why}");
            }
        }
    }
    wrong
}

fn holds(name: &str, cases: Vec<(String, String)>, at_least: usize) {
    assert!(cases.len() >= at_least, "{}", cases.len());
    let mut text = String::new();
    let wrong = table(&cases, &mut text);
    insta::with_settings!({
        snapshot_path => root().join("snapshots").join("lacking"),
        prepend_module_to_snapshot => false,
        omit_expression => true,
    }, { insta::assert_snapshot!(name, text) });
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn a_reshard_sends_what_the_device_that_lacks_most_lacks() {
    holds("reshards", cases::reshards(), 60);
}

#[test]
fn a_program_sends_what_devices_lack_between_what_it_makes_and_what_it_reads() {
    holds("programs", cases::programs(), 40);
}
