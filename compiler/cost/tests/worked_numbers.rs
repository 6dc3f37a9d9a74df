//! The worked numbers of `spec/cost.md`, computed.

use shard_cost::{Hardware, collective_cost};
use shard_ir::{AxisList, AxisSet, Collective, Dtype, Layout, Mesh, MeshShape, Reduction};

/// The cells of the rows of a table.
fn rows() -> Vec<Vec<String>> {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../spec/cost.md");
    let text = std::fs::read_to_string(path).expect("the page of the cost model");
    let section = text
        .split("### Worked numbers")
        .nth(1)
        .expect("the section")
        .split("\n## ")
        .next()
        .expect("its text");
    let lines =
        section.lines().filter(|line| line.starts_with("| ") && !line.starts_with("| chip"));
    lines
        .map(|line| {
            line.split('|').map(|cell| cell.trim().to_string()).filter(|c| !c.is_empty()).collect()
        })
        .collect()
}

/// `tpu-v4-face`, or `tpu-v4-face, x = { torus = [4, 4] }`.
fn chip(cell: &str) -> Hardware {
    let (name, fold) = cell.split_once(", ").unwrap_or((cell, ""));
    let file =
        shard_cost::hardware::BUILT_IN.iter().find(|chip| chip.name == name).expect("a chip");
    Hardware::parse(&file.text.replace("[network.axes]", &format!("[network.axes]\n{fold}")))
        .expect("well formed")
}

/// `xy`, or `dcn x`.
fn axes(mesh: &Mesh, text: &str) -> AxisList {
    let single = || {
        text.chars()
            .filter(|c| *c != ' ')
            .map(|c| mesh.axis(&c.to_string()))
            .collect::<Option<AxisList>>()
    };
    let named = || text.split(' ').map(|name| mesh.axis(name)).collect::<Option<AxisList>>();
    named().or_else(single).expect("axes of the mesh")
}

/// The time in microseconds of a move over some axes, with `bytes` bytes in the larger buffer.
fn time_us(hw: &Hardware, mesh: &Mesh, text: &str, bytes: u64) -> f64 {
    let (kind, rest) = text.split_once(' ').expect("a move and its axes");
    if rest.starts_with('B') {
        return time_of_layouts_us(hw, mesh, kind, rest, bytes);
    }
    let (over, to) =
        rest.split_once(" -> ").map_or((rest, None), |(from, to)| (from, Some(axes(mesh, to))));
    let over = axes(mesh, over);
    let group = mesh.group_size(over.iter());
    let reduction = Reduction::Sum;
    let (collective, sizes) = match kind {
        "all-gather" => (Collective::AllGather { dim: 0, axes: over }, [bytes, 1]),
        "reduce-scatter" => {
            (Collective::ReduceScatter { kind: reduction, dim: 0, axes: over }, [bytes, 1])
        }
        "all-reduce" => (Collective::AllReduce { kind: reduction, axes: over.set() }, [bytes, 1]),
        "all-to-all" => {
            (Collective::AllToAll { from_dim: 0, to_dim: 1, axes: over }, [group, bytes])
        }
        "permute" => (Collective::Permute { to: Layout::REPLICATED }, [group, bytes]),
        other => panic!("{other} is no move"),
    };
    let shape = MeshShape { mesh, sizes: &sizes };
    let split = |axes| {
        Layout::new(shape, &[axes, AxisList::EMPTY], AxisSet::EMPTY, AxisSet::EMPTY).expect("legal")
    };
    let partial =
        Layout::new(shape, &[AxisList::EMPTY; 2], over.set(), AxisSet::EMPTY).expect("legal");
    let (collective, from) = match collective {
        Collective::ReduceScatter { .. } | Collective::AllReduce { .. } => (collective, partial),
        Collective::Permute { .. } => {
            (Collective::Permute { to: split(to.expect("where to")) }, split(over))
        }
        other => (other, split(over)),
    };
    assert!(collective.apply(shape, from).is_ok(), "{text} applies");
    let cost = collective_cost(hw, mesh, &collective, from, &sizes, Dtype::Int8);
    assert_eq!(cost.bytes.0, bytes, "D of {text}");
    cost.time.seconds() * 1e6
}

/// `B_xyE_z`: the axes of two dims.
fn two_dims(mesh: &Mesh, text: &str) -> [AxisList; 2] {
    let (b, e) = text.split_once('E').expect("two dims");
    [b, e].map(|dim| dim.split_once('_').map_or(AxisList::EMPTY, |(_, named)| axes(mesh, named)))
}

/// The time in microseconds of a move from one layout of a tensor of two dims to another, with
/// `bytes` bytes in the larger buffer.
fn time_of_layouts_us(hw: &Hardware, mesh: &Mesh, kind: &str, text: &str, bytes: u64) -> f64 {
    let (from, to) = text.split_once(" -> ").unwrap_or((text, "BE"));
    let devices = mesh.devices();
    let sizes = [devices, if kind == "exchange" { bytes } else { bytes / devices }];
    let shape = MeshShape { mesh, sizes: &sizes };
    let layout = |text| {
        Layout::new(shape, &two_dims(mesh, text), AxisSet::EMPTY, AxisSet::EMPTY).expect("legal")
    };
    let to = layout(to);
    let collective = match kind {
        "exchange" => Collective::Exchange { to },
        "all-gather" => Collective::AllGatherDims { to },
        other => panic!("{other} is no move of several dims"),
    };
    assert!(collective.apply(shape, layout(from)).is_ok(), "{text} applies");
    let cost = collective_cost(hw, mesh, &collective, layout(from), &sizes, Dtype::Int8);
    assert_eq!(cost.bytes.0, bytes, "D of {text}");
    cost.time.seconds() * 1e6
}

/// The queries are the last positions. Each sees the positions up to its own, of these the last
/// ones that its window shows.
#[test]
fn pairs_in_sight_are_those_that_a_mask_leaves_when_they_are_counted_one_by_one() {
    for keys in 1..9u64 {
        for queries in 1..=keys {
            for window in (1..=keys + 2).map(Some).chain([None]) {
                let sees = |query: u64, key: u64| {
                    let own = keys - queries + query;
                    key <= own && window.is_none_or(|window| own < key + window)
                };
                let pairs = (0..queries).flat_map(|query| (0..keys).map(move |key| (query, key)));
                let counted = pairs.filter(|(query, key)| sees(*query, *key)).count() as u128;
                let found = shard_cost::sight::pairs_in_sight(queries, keys, window);
                assert_eq!(found, counted, "{queries} of {keys} in {window:?}");
            }
        }
    }
}

#[test]
fn every_worked_number_of_the_page_is_what_the_model_gives() {
    let rows = rows();
    assert!(rows.len() > 20, "the table is there");
    for row in rows {
        let [hardware, mesh, text, bytes, stated, _] = row.as_slice() else {
            panic!("a row of six cells: {row:?}")
        };
        let sizes = mesh.split(',').map(|axis| axis.split_once('=').expect("an axis"));
        let mesh = Mesh::new(sizes.map(|(name, size)| (name, size.parse().expect("a size"))))
            .expect("a mesh");
        let found = time_us(&chip(hardware), &mesh, text, bytes.parse().expect("bytes"));
        let stated: f64 = stated.parse().expect("microseconds");
        assert!((found - stated).abs() < 2e-6, "{row:?}: {found}");
    }
}
