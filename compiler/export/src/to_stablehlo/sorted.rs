//! The largest values along a dim.

use super::builder::{Builder, Value, tensor};
use super::element::Element;
use super::positions::places;

/// The `each` largest values of each of `parts` parts of a dim, and their positions in the whole
/// dim. `begins` is the first position of the block.
pub(crate) fn largest(
    b: &mut Builder,
    a: &Value,
    dim: usize,
    [each, parts]: [u64; 2],
    begins: Option<&Value>,
) -> [Value; 2] {
    let at = places(b, &a.shape, dim, begins, 0);
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

/// Values in falling order along a dim, NaN first, and the elements of `beside` in the same order.
/// Equal values keep their order.
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
    let [one, other, at_a, at_b, larger] =
        ["a", "b", "at_a", "at_b", "larger"].map(|name| b.fresh(name));
    let mut body = compare(&larger, "GT", &one, &other);
    let mut first = larger.clone();
    if values.element.is_float() {
        let [is_none, is_some, before, or_before] =
            ["is_none", "is_some", "before", "first"].map(|name| b.fresh(name));
        body += &compare(&is_none, "NE", &one, &one);
        body += &compare(&is_some, "EQ", &other, &other);
        body += &format!("  {before} = stablehlo.and {is_none}, {is_some} : {truth}\n");
        body += &format!("  {or_before} = stablehlo.or {larger}, {before} : {truth}\n");
        first = or_before;
    }
    let types = format!("({}, {})", values.ty(), beside.ty());
    b.line(&format!(
        "{name}:2 = \"stablehlo.sort\"({}, {}) <{{dimension = {dim} : i64, is_stable = true}}> ({{\n\
         ^bb0({one}: {of_value}, {other}: {of_value}, {at_a}: {of_place}, {at_b}: {of_place}):\n\
         {body}  stablehlo.return {first} : {truth}\n\
         }}) : {types} -> {types}",
        values.name, beside.name
    ));
    [(0, values), (1, beside)].map(|(at, of)| Value { name: format!("{name}#{at}"), ..of.clone() })
}
