//! Facts as `.shard` text.

use serde_json::Value;
use shard_ir::{InstrId, Plan};
use shard_snapshots::judge::check;

/// The mesh line of `{"x": 4, "y": 2}`.
pub(crate) fn mesh_line(mesh: &Value) -> String {
    let axes: Vec<String> =
        entries(mesh).iter().map(|(name, size)| format!("{name}={size}")).collect();
    if axes.is_empty() { String::new() } else { format!("mesh {}\n", axes.join(", ")) }
}

/// Name and number of each entry of an object, in its order.
pub(crate) fn entries(object: &Value) -> Vec<(String, u64)> {
    let map = object.as_object().into_iter().flatten();
    map.filter_map(|(name, n)| Some((name.clone(), n.as_u64()?))).collect()
}

/// The dims of a layout in the notation of facts, which is the compact one.
pub(crate) fn dims_of(layout: &str) -> Vec<char> {
    layout.split('(').next().unwrap_or_default().chars().filter(char::is_ascii_uppercase).collect()
}

/// The dim lines of the dims in these layouts, each once. A dim without a given size gets a size
/// that divides over every mesh.
pub(crate) fn dim_lines<'a>(
    layouts: impl IntoIterator<Item = &'a str>,
    sizes: &Value,
    mesh: &Value,
) -> String {
    let any: u64 = entries(mesh).iter().map(|(_, size)| size).product::<u64>() * 2;
    let mut dims: Vec<char> = Vec::new();
    for dim in layouts.into_iter().flat_map(dims_of) {
        if !dims.contains(&dim) {
            dims.push(dim);
        }
    }
    dims.iter()
        .map(|d| format!("dim {d} = {}\n", sizes[d.to_string()].as_u64().unwrap_or(any)))
        .collect()
}

/// A layer that takes one tensor and returns it unchanged.
pub(crate) fn one_parameter(layout: &str, sizes: &Value, mesh: &Value, dtype: &str) -> String {
    let header = format!("{}{}", mesh_line(mesh), dim_lines([layout], sizes, mesh));
    format!("{header}layer f(t: {dtype} {layout}) -> {dtype} {layout} {{ return t }}\n")
}

/// The codes of the errors of a text.
pub(crate) fn error_codes(source: &str) -> Vec<&'static str> {
    check(source).diagnostics.iter().filter(|d| d.is_error()).map(|d| d.code).collect()
}

/// The instruction of a parameter, or of the last step with a name.
pub(crate) fn named(plan: &Plan, name: &str) -> Option<InstrId> {
    plan.ids().rev().find(|id| plan.instruction(*id).name.as_deref() == Some(name))
}

/// The number of a `{"value": n}`, or of a plain number.
pub(crate) fn number(value: &Value) -> Option<u64> {
    value.as_u64().or_else(|| value["value"].as_u64())
}

/// An error unless both are equal.
pub(crate) fn same<T: PartialEq + std::fmt::Debug>(
    what: &str,
    found: T,
    expected: T,
) -> Result<(), String> {
    if found == expected {
        Ok(())
    } else {
        Err(format!("{what}: found {found:?}, expected {expected:?}"))
    }
}
