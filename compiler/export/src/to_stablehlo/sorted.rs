//! Choices of the largest, padding, and recurrences.

use super::builder::{Builder, Value, tensor};
use super::element::Element;
use super::positions::{places, shift};

/// Of so many parts of a dim the `each` largest, and their positions in the block, part by part.
pub(crate) fn largest(
    b: &mut Builder,
    a: &Value,
    dim: usize,
    [each, parts]: [u64; 2],
) -> [Value; 2] {
    let at = places(b, &a.shape, dim, None, 0);
    let mut cut = a.shape.clone();
    cut.splice(dim..=dim, [parts, a.shape[dim] / parts.max(1)]);
    let [values, at] = [a, &at].map(|side| b.reshape(side, &cut));
    let mut kept = a.shape.clone();
    kept[dim] = parts * each;
    sorted(b, &values, &at, dim + 1).map(|side| {
        let first = b.slice(&side, dim + 1, 0, each);
        b.reshape(&first, &kept)
    })
}

/// Values in falling order along a dim, what is no number first, and what stood beside them; equal
/// values keep their order.
fn sorted(b: &mut Builder, values: &Value, beside: &Value, dim: usize) -> [Value; 2] {
    let name = b.fresh("sorted");
    let (of_value, of_place) = (tensor(&[], values.element), tensor(&[], beside.element));
    let truth = tensor(&[], Element::Bool);
    let kind = values.element.comparison();
    let compare = |into: &str, direction: &str, left: &str, right: &str| {
        format!(
            "  {into} = stablehlo.compare {direction}, {left}, {right}, {kind} : ({of_value}, \
             {of_value}) -> {truth}\n"
        )
    };
    let mut body = compare("%larger", "GT", "%a", "%b");
    let mut first = "%larger";
    if values.element.is_float() {
        body += &compare("%is_none", "NE", "%a", "%a");
        body += &compare("%is_some", "EQ", "%b", "%b");
        body += &format!("  %before = stablehlo.and %is_none, %is_some : {truth}\n");
        body += &format!("  %first = stablehlo.or %larger, %before : {truth}\n");
        first = "%first";
    }
    let types = format!("({}, {})", values.ty(), beside.ty());
    b.line(&format!(
        "{name}:2 = \"stablehlo.sort\"({}, {}) <{{dimension = {dim} : i64, is_stable = true}}> ({{\n\
         ^bb0(%a: {of_value}, %b: {of_value}, %at_a: {of_place}, %at_b: {of_place}):\n\
         {body}  stablehlo.return {first} : {truth}\n\
         }}) : {types} -> {types}",
        values.name, beside.name
    ));
    [(0, values), (1, beside)].map(|(at, of)| Value { name: format!("{name}#{at}"), ..of.clone() })
}

/// Positions in a block as those in the whole dim.
pub(crate) fn in_the_whole(b: &mut Builder, at: &Value, begins: Option<Value>) -> Value {
    match begins {
        None => at.clone(),
        Some(begins) => {
            let begins = b.broadcast(&begins, &at.shape, &[]);
            b.binary("add", at, &begins)
        }
    }
}

/// The value at its place along a dim of a larger size, and zeros around it.
pub(crate) fn pad(b: &mut Builder, a: &Value, dim: usize, [offset, size]: [u64; 2]) -> Value {
    let mut shape = a.shape.clone();
    shape[dim] = size;
    let zeros = b.splat(0.0, &shape, a.element);
    let start = b.count(offset);
    b.update(&zeros, a, dim, &start)
}

/// At each position its own value and the result before it, times the factor: of 1, 2, 4, ..
/// positions, each from two of the step before.
pub(crate) fn scan(b: &mut Builder, a: &Value, factor: &Value, dim: usize) -> Value {
    let (mut sums, mut factor) = (a.clone(), factor.clone());
    let mut reach = 1;
    while reach < a.shape[dim] {
        let before = shift(b, &sums, dim, reach);
        let carried = b.binary("multiply", &factor, &before);
        sums = b.binary("add", &sums, &carried);
        let before = shift(b, &factor, dim, reach);
        factor = b.binary("multiply", &factor, &before);
        reach *= 2;
    }
    sums
}
