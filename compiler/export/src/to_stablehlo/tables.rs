//! Look-ups in tables by ids, sums of rows by ids, and the routing of tokens to experts.

use shard_ir::Reduction;

use super::builder::{Builder, Value, list, tensor};
use super::element::Element;

/// Rows of a table by ids: a table of `[shared.., rows, kept..]` and ids of `[shared.., asked..]`
/// give `[shared.., asked.., kept..]`. The first `shared` dims are those that both have. The block
/// of the table begins at row `begins`; an id of a row outside the block gives zeros.
pub(crate) fn take(
    b: &mut Builder,
    table: &Value,
    ids: &Value,
    shared: usize,
    begins: Option<Value>,
) -> Value {
    let count = table.shape[shared];
    let at = within(b, ids, begins);
    let from = b.compare_number("GE", &at, 0.0);
    let until = b.compare_number("LT", &at, count as f64);
    let held = b.binary("and", &from, &until);
    let first = b.splat(0.0, &at.shape, at.element);
    let at = b.select(&held, &at, &first);

    let kept = table.shape.len() - shared - 1;
    let asked = at.shape.len();
    let shape: Vec<u64> = at.shape.iter().chain(&table.shape[shared + 1..]).copied().collect();
    let batching = if shared == 0 {
        String::new()
    } else {
        let dims = list(0..shared);
        format!("operand_batching_dims = [{dims}], start_indices_batching_dims = [{dims}], ")
    };
    let sizes = list((0..table.shape.len()).map(|d| if d <= shared { 1 } else { table.shape[d] }));
    let text = format!(
        "\"stablehlo.gather\"({}, {}) <{{dimension_numbers = #stablehlo.gather<offset_dims = [{}], \
         collapsed_slice_dims = [{shared}], {batching}start_index_map = [{shared}], \
         index_vector_dim = {asked}>, indices_are_sorted = false, \
         slice_sizes = array<i64: {sizes}>}}> \
         : ({}, {}) -> {}",
        table.name,
        at.name,
        list(asked..asked + kept),
        table.ty(),
        at.ty(),
        tensor(&shape, table.element)
    );
    let rows = b.op(shape.clone(), table.element, &text);
    let held = b.broadcast(&held, &shape, &(0..asked).collect::<Vec<_>>());
    let nothing = b.splat(0.0, &shape, table.element);
    b.select(&held, &rows, &nothing)
}

/// Ids relative to the first row of a block.
fn within(b: &mut Builder, ids: &Value, begins: Option<Value>) -> Value {
    let Some(begins) = begins else { return ids.clone() };
    let begins = b.broadcast(&begins, &ids.shape, &[]);
    b.binary("subtract", ids, &begins)
}

/// Sums of rows by ids: rows of `[shared.., positions.., rest..]` and ids of `[shared..,
/// positions..]` give `[shared.., places, rest..]`. The block has the `places` places from `begins`
/// on; a row whose id names another place is left out. Floats are added in at least 32 bits.
pub(crate) fn scatter_add(
    b: &mut Builder,
    rows: &Value,
    ids: &Value,
    shared: usize,
    places: u64,
    begins: Option<Value>,
) -> Value {
    let (front, rest) = (&rows.shape[..shared], &rows.shape[ids.shape.len()..]);
    let (batches, count) = (front.iter().product::<u64>(), ids.shape.iter().product::<u64>());
    let element = if rows.element.is_float() { rows.element.wide() } else { rows.element };
    // All shared dims become one dim of batches, whose places stand one behind another.
    let at = within(b, ids, begins);
    let at = b.reshape(&at, &[batches, count / batches.max(1)]);
    let from = b.compare_number("GE", &at, 0.0);
    let until = b.compare_number("LT", &at, places as f64);
    let held = b.binary("and", &from, &until);
    let batch = b.iota(&at.shape, 0, at.element);
    let front_of = b.with_number("multiply", &batch, places as f64);
    let in_order = b.binary("add", &at, &front_of);
    let nowhere = b.splat((batches * places) as f64, &at.shape, at.element);
    let at = b.select(&held, &in_order, &nowhere);
    let at = b.reshape(&at, &[count, 1]);
    let wide = b.convert(rows, element);
    let own = b.reshape(&wide, &[&[count], rest].concat());
    let shape = [&[batches * places], rest].concat();
    let zeros = b.splat(0.0, &shape, element);
    let added = b.combiner(Reduction::Sum, element);
    let text = format!(
        "\"stablehlo.scatter\"({}, {}, {}) <{{indices_are_sorted = false, \
         scatter_dimension_numbers = #stablehlo.scatter<update_window_dims = [{}], \
         inserted_window_dims = [0], scatter_dims_to_operand_dims = [0], index_vector_dim = 1>, \
         unique_indices = false}}> {added} : ({}, {}, {}) -> {}",
        zeros.name,
        at.name,
        own.name,
        list(1..own.shape.len()),
        zeros.ty(),
        at.ty(),
        own.ty(),
        zeros.ty()
    );
    let sums = b.op(shape, element, &text);
    let sums = b.convert(&sums, rows.element);
    b.reshape(&sums, &[front, &[places], rest].concat())
}

/// The routing of tokens: gates of `[groups.., token, expert]` give `[groups.., token, expert,
/// place]`, with 1 where a token gets a place of an expert.
///
/// All first choices are served before second ones, and within a choice tokens in their order. Of
/// equal gates a token prefers the expert of the lower number; a gate that is NaN counts as the
/// least.
pub(crate) fn route(b: &mut Builder, gates: &Value, choices: u64, places: u64) -> Value {
    let rank = gates.shape.len();
    let (tokens, experts) = (gates.shape[rank - 2], gates.shape[rank - 1]);
    let groups = &gates.shape[..rank - 2];
    let chosen = best(b, gates, choices);

    // With the dim of choices before the dim of tokens, who is served first stands first.
    let mut order: Vec<usize> = (0..rank).collect();
    order.swap(rank - 2, rank - 1);
    let chosen = b.transpose(&chosen, &order);
    let queued: Vec<u64> = [groups, &[choices * tokens]].concat();
    let chosen = b.reshape(&chosen, &queued);
    let asks = one_hot(b, &chosen, experts);

    let before = running_sum(b, &asks, rank - 2);
    let place = b.binary("subtract", &before, &asks);
    let given = one_hot(b, &place, places);
    let asks = b.broadcast(&asks, &given.shape, &(0..rank).collect::<Vec<_>>());
    let given = b.binary("multiply", &given, &asks);

    let by_choice: Vec<u64> = [groups, &[choices, tokens, experts, places]].concat();
    let given = b.reshape(&given, &by_choice);
    let given = b.reduce(Reduction::Sum, &given, &[rank - 2]);
    b.convert(&given, gates.element)
}

/// The numbers of the experts with the largest gates along the last dim, the largest first.
fn best(b: &mut Builder, gates: &Value, choices: u64) -> Value {
    let dim = gates.shape.len() - 1;
    let no_number = b.compare("NE", gates, gates);
    let least = b.splat(gates.element.least(), &gates.shape, gates.element);
    let liking = b.select(&no_number, &least, gates);
    let number = b.iota(&gates.shape, dim, Element::I32);
    let (gate, expert) = (tensor(&[], gates.element), tensor(&[], Element::I32));
    let [a, c, a_number, c_number, better] =
        ["a", "b", "a_number", "b_number", "better"].map(|name| b.fresh(name));
    let sorted = b.fresh("sorted");
    b.line(&format!(
        "{sorted}:2 = \"stablehlo.sort\"({}, {}) \
         <{{dimension = {dim} : i64, is_stable = true}}> ({{\n  \
         ^bb0({a}: {gate}, {c}: {gate}, {a_number}: {expert}, {c_number}: {expert}):\n    \
         {better} = stablehlo.compare GT, {a}, {c}, {} : ({gate}, {gate}) -> tensor<i1>\n    \
         stablehlo.return {better} : tensor<i1>\n\
         }}) : ({}, {}) -> ({}, {})",
        liking.name,
        number.name,
        gates.element.comparison(),
        liking.ty(),
        number.ty(),
        liking.ty(),
        number.ty()
    ));
    let order = Value { name: format!("{sorted}#1"), ..number };
    b.slice(&order, dim, 0, choices)
}

/// Whole numbers as one-hot vectors along a new last dim of `count` positions.
fn one_hot(b: &mut Builder, numbers: &Value, count: u64) -> Value {
    let rank = numbers.shape.len();
    let shape: Vec<u64> = [&numbers.shape[..], &[count]].concat();
    let numbers = b.broadcast(numbers, &shape, &(0..rank).collect::<Vec<_>>());
    let place = b.iota(&shape, rank, Element::I32);
    let here = b.compare("EQ", &numbers, &place);
    b.convert(&here, Element::I32)
}

/// For each place of a dim the sum up to it.
fn running_sum(b: &mut Builder, a: &Value, dim: usize) -> Value {
    let start = b.splat(0.0, &[], a.element);
    let along = |of_dim: u64, other: u64| {
        (0..a.shape.len()).map(move |at| if at == dim { of_dim } else { other })
    };
    let combiner = b.combiner(Reduction::Sum, a.element);
    let padding = along(a.shape[dim] - 1, 0).map(|before| format!("[{before}, 0]"));
    let text = format!(
        "\"stablehlo.reduce_window\"({}, {}) <{{padding = dense<[{}]> : tensor<{}x2xi64>, \
         window_dimensions = array<i64: {}>}}> {combiner} : ({}, {}) -> {}",
        a.name,
        start.name,
        list(padding),
        a.shape.len(),
        list(along(a.shape[dim], 1)),
        a.ty(),
        start.ty(),
        a.ty()
    );
    b.op(a.shape.clone(), a.element, &text)
}
