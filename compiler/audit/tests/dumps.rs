//! Every dump is counted to the byte: by kind, by axes, by source line, and collective by
//! collective. The dumps in `tests/dumps` are in this repository; those of `../shared/hlo`, where
//! it is there, are all that we have.

use std::collections::BTreeMap;

use crate::common::{Build, builds, shared};
use serde_json::Value;
use shard_audit::collectives::{Collective, collectives};
use shard_audit::hlo::Module;

/// Sums of bytes by something.
type Sums = BTreeMap<String, f64>;

fn sums(all: &[Collective], by: impl Fn(&Collective) -> String) -> Sums {
    let mut sums = Sums::new();
    for one in all {
        *sums.entry(by(one)).or_default() += one.wire_bytes() as f64;
    }
    sums
}

fn counted(value: &Value) -> Sums {
    let object = value.as_object().expect("sums");
    object.iter().map(|(key, sum)| (key.clone(), sum.as_f64().expect("a number"))).collect()
}

/// What one collective is, in one line.
fn line(mesh: &[(String, u64)], one: &Collective) -> String {
    let axes = one
        .axes
        .as_ref()
        .map(|axes| axes.iter().map(|axis| mesh[*axis].0.as_str()).collect::<Vec<_>>().join("+"));
    let operands: Vec<String> = one.operands.iter().map(ToString::to_string).collect();
    let stack: Vec<String> =
        one.stack.iter().filter(|place| place.file != "gen.py").map(ToString::to_string).collect();
    format!(
        "{} {} {:?} x{} {} of {} by {} at {:?} ({:?}) also {:?} scatter {}",
        one.name,
        one.kind.name(),
        operands,
        one.executions,
        one.wire_bytes(),
        one.buffer_bytes,
        axes.unwrap_or_default(),
        stack,
        one.op_name,
        one.also_spelled_as,
        one.flow.is_only_sliced && one.kind.name() == "all-reduce",
    )
}

/// The same from the list of what was counted.
fn counted_line(one: &Value) -> String {
    let list = |key: &str| -> Vec<String> {
        let all = one[key].as_array().into_iter().flatten();
        all.map(|text| text.as_str().expect("text").to_string()).collect()
    };
    format!(
        "{} {} {:?} x{} {} of {} by {} at {:?} ({:?}) also {:?} scatter {}",
        one["name"].as_str().expect("a name"),
        one["kind"].as_str().expect("a kind"),
        list("operands"),
        one["executions"],
        one["wire_bytes"].as_f64().expect("bytes"),
        one["buffer_bytes"],
        list("axes").join("+"),
        // Under a gradient a chain of frames is repeated.
        list("stack").into_iter().fold(Vec::new(), |mut stack, place| {
            if !stack.contains(&place) {
                stack.push(place);
            }
            stack
        }),
        one["op_name"].as_str(),
        list("also_spelled_as"),
        one["wire_bytes_as_reduce_scatter"].is_number(),
    )
}

fn holds(build: &Build) {
    let Build { name, text, counts, mesh } = build;
    let module = Module::read(text).unwrap_or_else(|e| panic!("{name}: {e:?}"));
    let found = collectives(&module, Some(mesh)).unwrap_or_else(|e| panic!("{name}: {e:?}"));
    let all = &found.collectives;
    let axes = |one: &Collective| match &one.axes {
        Some(axes) => axes.iter().map(|a| mesh[*a].0.as_str()).collect::<Vec<_>>().join("+"),
        None => "none".to_string(),
    };
    let source = |one: &Collective| one.source().map_or("none".to_string(), ToString::to_string);
    assert_eq!(sums(all, axes), counted(&counts["by_axes"]), "{name}, by axes");
    assert_eq!(sums(all, source), counted(&counts["by_source"]), "{name}, by source line");
    let by_kind: Sums = counts["totals"]
        .as_object()
        .expect("totals")
        .iter()
        .map(|(kind, of)| (kind.clone(), of["wire_bytes"].as_f64().expect("bytes")))
        .collect();
    assert_eq!(sums(all, |one| one.kind.name().to_string()), by_kind, "{name}, by kind");
    assert_eq!(found.devices, counts["devices"].as_u64().expect("devices"), "{name}");
    let sorted = |mut lines: Vec<String>| {
        lines.sort();
        lines
    };
    let theirs = counts["collectives"].as_array().expect("a list").iter().map(counted_line);
    assert_eq!(
        sorted(all.iter().map(|one| line(mesh, one)).collect()),
        sorted(theirs.collect()),
        "{name}"
    );
    let loops: Vec<String> = found
        .loops
        .iter()
        .map(|l| format!("{} {} {} {}", l.body, l.trips, l.known.word(), l.executions))
        .collect();
    let theirs = counts["loops"].as_array().expect("a list").iter().map(|l| {
        let text = |key: &str| l[key].as_str().expect("text").to_string();
        format!("{} {} {} {}", text("body"), l["trips"], text("how"), l["executions"])
    });
    assert_eq!(sorted(loops), sorted(theirs.collect()), "{name}, loops");
}

#[test]
fn every_dump_of_ours_is_counted_to_the_byte() {
    let builds = builds(&crate::common::own());
    assert!(builds.len() > 20, "{}", builds.len());
    builds.iter().for_each(holds);
}

#[test]
fn every_dump_that_is_shared_is_counted_to_the_byte() {
    let Some(shared) = shared() else { return };
    let builds = builds(&shared);
    assert!(builds.len() > 40, "{}", builds.len());
    builds.iter().for_each(holds);
}
