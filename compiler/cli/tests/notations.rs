//! `--notation`, and what `explain --emit` prints.

use crate::common::{fed, shardc};

#[test]
fn explain_writes_its_layouts_in_the_notation_asked_for() {
    for (notation, from, to) in [
        ("esti", "BLE_xyz", "BLE_x"),
        ("book", "[B,L,E_XYZ]", "[B,L,E_X]"),
        ("jax", "P(None, None, ('x','y','z'))", "P(None, None, 'x')"),
        ("dtensor", "[Shard(2), Shard(2), Shard(2)]", "[Shard(2), Replicate(), Replicate()]"),
        ("shardy", "[{}, {}, {\"x\",\"y\",\"z\"}]", "[{}, {}, {\"x\"}]"),
    ] {
        let ran = shardc(&["explain", "--no-alternatives", "--notation", notation, "mlp.shard"]);
        assert!(ran.out.contains(&format!("         {from} -> {to}\n")), "{notation}: {}", ran.out);
    }
    let ran = shardc(&["explain", "--notation", "latex", "mlp.shard"]);
    assert!(ran.status == 2 && ran.err.contains("esti, book, jax, dtensor, shardy"), "{ran:?}");
}

#[test]
fn ir_text_is_the_same_in_every_notation_but_for_comments_behind_it() {
    let plain = shardc(&["lower", "mlp.shard"]).out;
    let noted = shardc(&["lower", "--notation", "jax", "mlp.shard"]).out;
    assert!(noted.starts_with(&plain));
    assert!(noted.contains(
        "\n// layouts of mlp as jax writes them\n// %0 x      P(None, None, ('x','y','z'))\n"
    ));
    assert_eq!(fed(&["lower", "-"], &noted).out, plain, "it reads back");
}

#[test]
fn a_graph_comes_of_explain_as_of_lower() {
    let graph = shardc(&["explain", "--emit", "dot", "mlp.shard"]).out;
    assert_eq!(graph, shardc(&["lower", "--emit", "dot", "mlp.shard"]).out);
    let noted = shardc(&["explain", "--emit", "dot", "--notation", "book", "mlp.shard"]).out;
    assert!(noted.contains("\\n[B,L,E_X]\""), "{noted}");
    let json = shardc(&["explain", "--emit", "json", "mlp.shard"]).out;
    assert_eq!(json, shardc(&["explain", "--format", "json", "mlp.shard"]).out);
}
