//! Rewrites with their steps: each becomes a strict layer whose collectives are the fact's, so that
//! a missing or superfluous collective is an error; and a layer with only the first and last
//! layouts, for which the compiler's plan may not take longer.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;
use shard_cost::InstrPrice;
use shard_ir::Plan;
use shard_search::{LowerOptions, lower};
use shard_snapshots::judge::{
    Moved, check as check_source, compile, hardware, judge, lower_all, moves,
};

use crate::facts::program::{dim_lines, mesh_line, same};

/// A name of a fact as the name of a value.
fn value(name: &Value) -> String {
    format!("v_{}", name.as_str().unwrap_or_default())
}

fn text<'a>(step: &'a Value, key: &str) -> &'a str {
    step[key].as_str().unwrap_or_default()
}

fn operands(step: &Value) -> Vec<String> {
    match &step["of"] {
        Value::Array(names) => names.iter().map(value).collect(),
        name => vec![value(name)],
    }
}

/// The right side of a step, and whether the step is a move.
fn expression(step: &Value) -> Result<(String, bool), String> {
    let of = operands(step);
    let joined = |key: &str| -> String {
        step[key].as_array().into_iter().flatten().filter_map(Value::as_str).collect()
    };
    Ok(match text(step, "op") {
        "einsum" => {
            let result = text(step, "spec").split("->").nth(1).unwrap_or_default();
            (format!("einsum({} -> {result})", of.join(", ")), false)
        }
        "all-gather" | "reduce-scatter" | "all-reduce" | "all-to-all" | "slice" => {
            (format!("reshard({}, {})", of[0], text(step, "layout")), true)
        }
        "softmax" => (format!("softmax({} over {})", of[0], text(step, "dim")), false),
        "gelu" => (format!("gelu({})", of[0]), false),
        "split" => (format!("split({}, {} -> {})", of[0], text(step, "dim"), joined("new")), false),
        "merge" => (format!("merge({}, {} -> {})", of[0], joined("old"), text(step, "dim")), false),
        other => return Err(format!("no such step: {other}")),
    })
}

/// The fact with only the steps of one of its results: some facts state two ways to the same value.
fn for_result(fact: &Value, result: &str) -> Value {
    let mut fact = fact.clone();
    let mut wanted: BTreeSet<String> = [result.to_string()].into();
    let mut steps = Vec::new();
    for step in fact["program"].as_array().into_iter().flatten().rev() {
        if wanted.contains(text(step, "result")) {
            match &step["of"] {
                Value::Array(names) => {
                    wanted.extend(names.iter().filter_map(Value::as_str).map(str::to_string))
                }
                name => wanted.extend(name.as_str().map(str::to_string)),
            }
            steps.insert(0, step.clone());
        }
    }
    fact["program"] = Value::Array(steps);
    let keep = |map: &mut Value, names: &BTreeSet<String>| {
        if let Some(map) = map.as_object_mut() {
            map.retain(|name, _| names.contains(name));
        }
    };
    keep(&mut fact["inputs"]["tensors"], &wanted);
    keep(&mut fact["expected"]["result_layouts"], &[result.to_string()].into());
    fact
}

/// The axes that a fact's layouts name. On an axis that is not named the compiler would split
/// values that the fact leaves replicated, to move less than the fact says.
fn without_idle_axes(mesh: &Value, layouts: &[&str]) -> Value {
    let mut mesh = mesh.clone();
    if let Some(axes) = mesh.as_object_mut() {
        let named: String = layouts
            .iter()
            .flat_map(|l| l.replace("partialsum", "").chars().collect::<Vec<_>>())
            .collect();
        axes.retain(|name, _| named.contains(name.as_str()));
    }
    mesh
}

/// The fact as a file of one layer, for these sizes. `written`: every step with its layout, each
/// move a `reshard`; otherwise only the layouts of parameters and results.
fn source(
    fact: &Value,
    sizes: &Value,
    mesh: &Value,
    dtype: &str,
    written: bool,
) -> Result<String, String> {
    let tensors = fact["inputs"]["tensors"].as_object().ok_or("no tensors")?;
    let steps = fact["program"].as_array().ok_or("no program")?;
    let results = fact["expected"]["result_layouts"].as_object().ok_or("no results")?;
    let layouts =
        tensors.values().filter_map(Value::as_str).chain(steps.iter().map(|s| text(s, "layout")));
    let layouts: Vec<&str> = layouts.collect();
    let mesh = &without_idle_axes(mesh, &layouts);
    let mut out = format!("{}{}", mesh_line(mesh), dim_lines(layouts, sizes, mesh));
    let params: Vec<String> = tensors
        .iter()
        .map(|(name, layout)| {
            format!(
                "{}: {dtype} {}",
                value(&Value::from(name.as_str())),
                layout.as_str().unwrap_or("")
            )
        })
        .collect();
    let name_of = |result: &str| value(&Value::from(result));
    let types: Vec<String> = results
        .iter()
        .map(|(n, l)| format!("{}_out: {dtype} {}", name_of(n), l.as_str().unwrap_or("")))
        .collect();
    let strict = if written { "strict " } else { "" };
    out.push_str(&format!("{strict}layer f({}) -> ({}) {{\n", params.join(", "), types.join(", ")));
    for step in steps {
        let (expr, is_move) = expression(step)?;
        let name = value(&step["result"]);
        match (written, is_move) {
            (true, true) => out.push_str(&format!("  let {name} = {expr}\n")),
            (true, false) => {
                out.push_str(&format!("  let {name}: {} = {expr}\n", text(step, "layout")))
            }
            // The same value: a move is not a step of the program.
            (false, true) => out.push_str(&format!("  let {name} = {}\n", operands(step)[0])),
            (false, false) => out.push_str(&format!("  let {name} = {expr}\n")),
        }
    }
    let returned: Vec<String> = results.keys().map(|n| name_of(n)).collect();
    match returned.as_slice() {
        [one] => out.push_str(&format!("  return {one}\n}}\n")),
        several => out.push_str(&format!("  return ({})\n}}\n", several.join(", "))),
    }
    Ok(out.replace(
        &format!("-> ({}) {{", types.join(", ")),
        &match types.as_slice() {
            [one] => format!("-> {} {{", one.split_once(": ").map_or("", |(_, t)| t)),
            several => format!("-> ({}) {{", several.join(", ")),
        },
    ))
}

/// The moves that the fact inserts. A value that is gathered twice is gathered once here: it is one
/// value in the e-graph.
fn expected_moves(fact: &Value) -> BTreeMap<(String, Moved), u64> {
    let mut found = BTreeMap::new();
    for c in fact["expected"]["collectives"].as_array().into_iter().flatten() {
        let dim = match (c["dim"].as_str(), c["src"].as_str(), c["dst"].as_str()) {
            (Some(dim), ..) => Some(dim.to_string()),
            (None, Some(src), Some(dst)) => Some(format!("{src} to {dst}")),
            _ => None,
        };
        let moved = Moved {
            op: text(c, "op").into(),
            axes: text(c, "axes").into(),
            dim,
            to: text(c, "to").into(),
        };
        *found.entry((value(&c["of"]), moved)).or_insert(0) += 1;
    }
    found
}

/// The moves of a plan with the name of what each moves.
fn found_moves(plan: &Plan) -> Vec<(String, Moved)> {
    let name = |id: shard_ir::InstrId| {
        let operand = plan.instruction(id).operands[0];
        plan.instruction(operand).name.clone().unwrap_or_default()
    };
    moves(plan).into_iter().map(|(id, moved)| (name(id), moved)).collect()
}

pub(crate) fn check(fact: &Value) -> Result<(), String> {
    let results: Vec<String> = fact["expected"]["result_layouts"]
        .as_object()
        .into_iter()
        .flatten()
        .map(|(n, _)| n.clone())
        .collect();
    let expected = expected_moves(fact);
    let mut wanted: Vec<(String, Moved)> =
        expected.keys().map(|(of, m)| (root(&aliases(fact), of), m.clone())).collect();
    let mut found = Vec::new();
    let mut written = String::new();
    for result in &results {
        found.extend(one_result(&for_result(fact, result), &mut written)?);
    }
    wanted.sort();
    wanted.dedup();
    found.sort();
    found.dedup();
    same(&format!("collectives of\n{written}"), &found, &wanted)?;
    volumes(fact, &expected)
}

/// Lowers, judges and executes a fact of one result; gives its collectives, and adds its source to
/// `sources`.
fn one_result(fact: &Value, sources: &mut String) -> Result<Vec<(String, Moved)>, String> {
    let (sizes, mesh) = (&fact["inputs"]["test_sizes"], &fact["inputs"]["test_mesh"]);
    let written = source(fact, sizes, mesh, "f32", true)?;
    sources.push_str(&written);
    let errors: Vec<String> = check_source(&written)
        .diagnostics
        .iter()
        .filter(|d| d.is_error())
        .map(|d| d.message.clone())
        .collect();
    if !errors.is_empty() {
        return Err(format!("{errors:?}\n{written}"));
    }
    let [program] = &compile(&written)[..] else { return Err("not one layer".into()) };
    let plan = lower(program, &hardware(), &LowerOptions::default())
        .map_err(|e| format!("{e}\n{written}"))?
        .plan;
    let stated: Vec<&str> = fact["expected"]["result_layouts"]
        .as_object()
        .into_iter()
        .flatten()
        .filter_map(|(_, l)| l.as_str())
        .collect();
    let results: Vec<String> = plan.outputs.iter().map(|o| plan.output_layout_text(o)).collect();
    same("the layout of the result", results, stated.iter().map(|l| l.to_string()).collect())?;
    for (name, layout) in fact["inputs"]["tensors"].as_object().into_iter().flatten() {
        let id = plan
            .ids()
            .find(|id| plan.instruction(*id).name.as_deref() == Some(&format!("v_{name}")));
        same(
            "a parameter's layout",
            id.map(|id| plan.layout_text(id)).as_deref(),
            layout.as_str(),
        )?;
    }
    let report = judge(&plan, 1)?;
    let smooth = fact["program"]
        .as_array()
        .into_iter()
        .flatten()
        .any(|s| matches!(text(s, "op"), "softmax" | "gelu"));
    if !report.exact && !smooth {
        return Err("was not compared exactly".to_string());
    }
    no_worse_when_free(fact, &plan)?;
    let names = aliases(fact);
    Ok(found_moves(&plan).into_iter().map(|(of, m)| (root(&names, &of), m)).collect())
}

/// The value from which this one was made by moves only.
fn root(aliases: &BTreeMap<String, String>, name: &str) -> String {
    let mut name = name.to_string();
    while let Some(of) = aliases.get(&name) {
        name.clone_from(of);
    }
    name
}

/// For each step, the value that it equals: only moves are between the two.
fn aliases(fact: &Value) -> BTreeMap<String, String> {
    let steps = fact["program"].as_array().into_iter().flatten();
    steps
        .filter(|s| expression(s).is_ok_and(|(_, is_move)| is_move))
        .map(|s| (value(&s["result"]), operands(s)[0].clone()))
        .collect()
}

/// The bytes on the wire at the fact's real sizes, where it states them: each collective as often
/// as the fact has it.
fn volumes(fact: &Value, expected: &BTreeMap<(String, Moved), u64>) -> Result<(), String> {
    let big = &fact["inputs"]["big"];
    let Some(stated) = fact["expected"]["volume_elements_per_device_exact"]["value"].as_u64()
    else {
        return Ok(());
    };
    let names = aliases(fact);
    let mut bytes: BTreeMap<(String, Moved), u64> = BTreeMap::new();
    for (result, _) in fact["expected"]["result_layouts"].as_object().into_iter().flatten() {
        let plans = lower_all(&source(
            &for_result(fact, result),
            &big["sizes"],
            &big["mesh"],
            "bf16",
            true,
        )?);
        let price = shard_cost::price(&plans[0], &hardware());
        for ((id, moved), (of, _)) in moves(&plans[0]).into_iter().zip(found_moves(&plans[0])) {
            if let InstrPrice::Move(cost) = price.of(id) {
                bytes.insert((root(&names, &of), moved), cost.wire_bytes.0);
            }
        }
    }
    let total: u64 = expected
        .iter()
        .map(|((of, moved), times)| {
            bytes.get(&(root(&names, of), moved.clone())).copied().unwrap_or(0) * times
        })
        .sum();
    same("elements on the wire", total / big["bytes_per_element"].as_u64().unwrap_or(2), stated)
}

/// Without any move written, the plan computes the same, and takes no longer than the fact's plan.
fn no_worse_when_free(fact: &Value, written: &Plan) -> Result<(), String> {
    let (sizes, mesh) = (&fact["inputs"]["test_sizes"], &fact["inputs"]["test_mesh"]);
    let free = source(fact, sizes, mesh, "f32", false)?;
    let plans = lower_all(&free);
    judge(&plans[0], 2)?;
    let time = |plan: &Plan| shard_cost::price(plan, &hardware()).totals.serial_time;
    if time(&plans[0]) > time(written) {
        return Err(format!(
            "{:?} when free, {:?} when written\n{free}",
            time(&plans[0]),
            time(written)
        ));
    }
    Ok(())
}
