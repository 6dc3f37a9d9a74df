//! The notations on all layouts of small rank, and the table of `spec/notations.md`.

use std::collections::BTreeMap;

use shard_grammar::ast::PartialOp;
use shard_grammar::{parse_layout_word, parse_partial};
use shard_ir::{AxisList, Layout, Mesh, MeshShape, Reduction};
use shard_report::layout_notation::Notation;

const DIMS: [&str; 3] = ["B", "L", "E"];

fn mesh() -> Mesh {
    Mesh::new([("x", 2), ("y", 2), ("z", 2)]).expect("a mesh")
}

/// Every layout of a tensor of this rank, partial layouts included.
fn layouts(mesh: &Mesh, rank: usize) -> Vec<Layout> {
    let sizes = vec![64; rank];
    MeshShape { mesh, sizes: &sizes }.layouts(mesh.all_axes(), mesh.all_axes())
}

#[test]
fn no_two_layouts_are_written_alike() {
    let mesh = mesh();
    for rank in 0..=3 {
        let all = layouts(&mesh, rank);
        assert!(all.len() > 20, "{} layouts of rank {rank}", all.len());
        for notation in Notation::ALL {
            let mut seen: BTreeMap<String, Layout> = BTreeMap::new();
            for layout in &all {
                let text = notation.layout(&mesh, *layout, &DIMS[..rank]);
                if let Some(other) = seen.insert(text.clone(), *layout) {
                    panic!("{}: {text} is {layout:?} and {other:?}", notation.name());
                }
            }
        }
    }
}

/// The block of a dim that a device holds, by the layout: axes major to minor.
fn block(mesh: &Mesh, layout: Layout, dim: usize, at: &[u64]) -> u64 {
    layout.axes_of(dim).iter().fold(0, |block, axis| block * mesh.size(axis) + at[axis.index()])
}

#[test]
fn placements_cut_a_tensor_as_the_layout_does() {
    let mesh = mesh();
    for layout in layouts(&mesh, 2) {
        let text = Notation::Dtensor.layout(&mesh, layout, &DIMS[..2]);
        let inside = text.trim_start_matches('[').trim_end_matches(']');
        // A placement may contain a comma, but only before `split_factor`.
        let placements: Vec<String> = inside
            .replace(", split_factor", " split_factor")
            .split(", ")
            .map(str::to_string)
            .collect();
        assert_eq!(placements.len(), 3, "{text}");
        for device in 0..mesh.devices() {
            let at = mesh.coordinates(device);
            for dim in 0..2 {
                let blocks = mesh.group_size(layout.axes_of(dim).iter());
                // The steps of PyTorch: each mesh axis in turn cuts what is left, and a strided
                // placement takes every n-th piece.
                let mut held: Vec<u64> = (0..blocks).collect();
                for (axis, placement) in placements.iter().enumerate() {
                    let (size, place) = (2, at[axis] as usize);
                    let words: Vec<&str> =
                        placement.split(['(', ')', ' ', '=']).filter(|w| !w.is_empty()).collect();
                    let factor = match words.as_slice() {
                        ["Shard", of] if *of == dim.to_string() => 1,
                        ["_StridedShard", of, "split_factor", factor] if *of == dim.to_string() => {
                            factor.parse().expect("a number")
                        }
                        _ => continue,
                    };
                    let pieces: Vec<&[u64]> = held.chunks(held.len() / (size * factor)).collect();
                    held = pieces
                        .iter()
                        .skip(place)
                        .step_by(size)
                        .flat_map(|piece| piece.iter().copied())
                        .collect();
                }
                assert_eq!(
                    held,
                    vec![block(&mesh, layout, dim, &at)],
                    "{text} of {layout:?} on {at:?}"
                );
            }
        }
    }
}

#[test]
fn axes_of_one_place_are_placements_and_nothing_else() {
    let mesh = Mesh::new([("data", 4), ("unit", 1), ("model", 2)]).expect("a mesh");
    let model: AxisList = mesh.axis("model").into_iter().collect();
    let layout = Layout::REPLICATED.with_dim(1, model);
    let written = Notation::ALL.map(|notation| notation.layout(&mesh, layout, &["Batch", "Embed"]));
    assert_eq!(
        written,
        [
            "[Batch, Embed_{model}]",
            "[Batch,Embed_{MODEL}]",
            "P(None, 'model')",
            "[Replicate(), Replicate(), Shard(1)]",
            "[{}, {\"model\"}]"
        ]
    );
}

/// Reads a layout as the language writes it; also returns the names of the dims.
fn layout(mesh: &Mesh, text: &str) -> (Layout, Vec<String>) {
    let (word, partial) =
        text.split_once('(').map_or((text, None), |(word, rest)| (word, Some(format!("({rest}"))));
    let word = parse_layout_word(word, 0).expect("a layout");
    let axis = |name: &str| mesh.axis(name).expect("an axis");
    let mut layout = Layout::REPLICATED;
    for (at, dim) in word.dims.iter().enumerate() {
        let axes =
            dim.axes.iter().flat_map(|axes| &axes.axes).map(|name| axis(&name.value)).collect();
        layout = layout.with_dim(at, axes);
    }
    for group in partial.map_or(Vec::new(), |text| parse_partial(&text, 0).expect("a partial")) {
        let kind = match group.op.value {
            PartialOp::Sum => Reduction::Sum,
            PartialOp::Max => Reduction::Max,
            PartialOp::Softmax => unreachable!("no layout here is partial by a softmax"),
        };
        for name in &group.axes.axes {
            layout = layout.with_partial(axis(&name.value), kind);
        }
    }
    (layout, word.dims.iter().map(|dim| dim.name.value.clone()).collect())
}

#[test]
fn the_table_of_the_specification_is_what_is_printed() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../spec/notations.md");
    let page = std::fs::read_to_string(path).expect("spec/notations.md");
    let mut rows = 0;
    for line in page.lines().filter(|line| line.starts_with("| `")) {
        let cells: Vec<&str> =
            line.trim_matches('|').split(" | ").map(|cell| cell.trim().trim_matches('`')).collect();
        let (layout, dims) = layout(&mesh(), cells[0]);
        let dims: Vec<&str> = dims.iter().map(String::as_str).collect();
        let printed = Notation::ALL.map(|notation| notation.layout(&mesh(), layout, &dims));
        assert_eq!(cells, printed, "{line}");
        rows += 1;
    }
    assert!(rows >= 6, "{rows} rows");
}
