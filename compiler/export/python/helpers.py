"""What exported modules are made with: each takes over the functions that it calls.

`shardc export jax` copies a function of this file, and those that it calls, into the modules that
need it. `MESH` and `LAYERS` are the module's own.
"""

import argparse
import os
import sys

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import AxisType, NamedSharding
from jax.sharding import PartitionSpec as P

MESH = jax.make_mesh((1,), ("x",), axis_types=(AxisType.Auto,))
LAYERS = {}


def rmsnorm(a, axis):
    """Divided by the root of the mean square, in no less than 32 bits."""
    wide = a.astype(jnp.promote_types(a.dtype, jnp.float32))
    square = jnp.mean(jnp.square(wide), axis=axis, keepdims=True)
    return (wide * lax.rsqrt(square + 1e-6)).astype(a.dtype)


def layernorm(a, axis):
    """Less the mean, and divided by the root of the variance, in no less than 32 bits."""
    wide = a.astype(jnp.promote_types(a.dtype, jnp.float32))
    wide = wide - jnp.mean(wide, axis=axis, keepdims=True)
    square = jnp.mean(jnp.square(wide), axis=axis, keepdims=True)
    return (wide * lax.rsqrt(square + 1e-6)).astype(a.dtype)


def sink_softmax(a, sinks, axis):
    """A softmax whose sum has a term more, that of the sink."""
    wide = a.astype(jnp.promote_types(a.dtype, jnp.float32))
    largest = jnp.maximum(jnp.max(wide, axis=axis, keepdims=True), sinks)
    terms = jnp.exp(wide - largest)
    total = jnp.sum(terms, axis=axis, keepdims=True) + jnp.exp(sinks - largest)
    return (terms / total).astype(a.dtype)


def softmax_of_part(a, axis):
    """The softmax over the keys of a device, 0 where it sees none, and the statistics."""
    wide = a.astype(jnp.promote_types(a.dtype, jnp.float32))
    largest = jnp.max(wide, axis=axis, keepdims=True)
    seen = largest > -jnp.inf
    terms = jnp.exp(wide - jnp.where(seen, largest, 0))
    total = jnp.where(seen, jnp.sum(terms, axis=axis, keepdims=True), 1)
    statistics = jnp.where(seen, largest + jnp.log(total), -jnp.inf)
    return (terms / total).astype(a.dtype), jnp.squeeze(statistics, axis)


def softmax_merge(part, axes, by, axis=None, left=False):
    """The attention over all keys, or a block of it along `axis`, of parts of it.

    A part is a result and its statistics, which have the dims `by` of the result; with
    `left`, it still is one, of more keys.
    """
    result, statistics = part
    largest = lax.pmax(statistics, axes)
    seen = statistics > -jnp.inf
    weights = jnp.where(seen, jnp.exp(statistics - jnp.where(seen, largest, 0)), 0)
    others = [dim for dim in range(result.ndim) if dim not in by]
    total = (result * jnp.expand_dims(weights, others)).astype(result.dtype)
    if axis is None:
        total, weights = lax.psum(total, axes), lax.psum(weights, axes)
    else:
        total = lax.psum_scatter(total, axes, scatter_dimension=axis, tiled=True)
        if axis in by:
            at = by.index(axis)
            weights = lax.psum_scatter(weights, axes, scatter_dimension=at, tiled=True)
            size = weights.shape[at]
            largest = lax.dynamic_slice_in_dim(
                largest, lax.axis_index(axes) * size, size, axis=at
            )
        else:
            weights = lax.psum(weights, axes)
    weights, seen = jnp.where(weights > 0, weights, 1), weights > 0
    result = (total / jnp.expand_dims(weights, others)).astype(result.dtype)
    if not left:
        return result
    return result, jnp.where(seen, largest + jnp.log(weights), -jnp.inf)


def whole_division(a, b):
    """Whole numbers, truncated toward zero; 0 where the divisor is 0."""
    return jnp.where(b == 0, 0, lax.div(a, jnp.where(b == 0, 1, b)))


def to_whole(a, dtype):
    """Truncated toward zero, and no further than the dtype goes."""
    if dtype == jnp.bool_:
        return a != 0
    least, most = int(jnp.iinfo(dtype).min), int(jnp.iinfo(dtype).max)
    if jnp.issubdtype(a.dtype, jnp.floating):
        wide = jnp.trunc(a.astype(jnp.promote_types(a.dtype, jnp.float32)))
        a = jnp.nan_to_num(wide, nan=0, posinf=most, neginf=least)
        inside = jnp.clip(a, least, most).astype(dtype)
        return jnp.where(a >= most, most, inside).astype(dtype)
    if a.dtype == jnp.bool_:
        return a.astype(dtype)
    if jnp.iinfo(a.dtype).bits <= jnp.iinfo(dtype).bits:
        return a.astype(dtype)
    return jnp.clip(a, least, most).astype(dtype)


def append_block(cache, new, first, axis, origin):
    """The cache, of which a device has a block from `origin` on, with `new` from `first` on."""
    at = origin + jnp.arange(cache.shape[axis]) - first
    rows = jnp.take(new, jnp.clip(at, 0, new.shape[axis] - 1), axis=axis)
    shape = [1] * cache.ndim
    shape[axis] = cache.shape[axis]
    return jnp.where((at >= 0).reshape(shape), rows, cache)


def causal(a, queries, keys, later, window=None, query_origin=0, key_origin=0):
    """Minus infinity where the key is later than the query, or past its window of last positions."""
    at_query = lax.broadcasted_iota(jnp.int32, a.shape, queries) + query_origin + later
    at_key = lax.broadcasted_iota(jnp.int32, a.shape, keys) + key_origin
    hidden = at_key > at_query
    if window is not None:
        hidden |= at_key + window <= at_query
    return jnp.where(hidden, -jnp.inf, a).astype(a.dtype)


def iota(a, axis, origin=0):
    """The position along a dim, at every element."""
    return lax.broadcasted_iota(jnp.int32, a.shape, axis) + origin


def rope(a, axis, at, origin=0):
    """Pairs of the two halves of `axis`, turned by their position along `at`."""
    wide = jnp.promote_types(a.dtype, jnp.float32)
    n = a.shape[axis]
    shape = list(a.shape)
    shape[axis] = n // 2
    position = lax.broadcasted_iota(jnp.int32, shape, at) + origin
    pair = lax.broadcasted_iota(jnp.int32, shape, axis)
    angle = position.astype(wide) * 10000.0 ** (-2.0 * pair.astype(wide) / n)
    low, high = jnp.split(a.astype(wide), 2, axis=axis)
    cos, sin = jnp.cos(angle), jnp.sin(angle)
    both = (low * cos - high * sin, high * cos + low * sin)
    return jnp.concatenate(both, axis=axis).astype(a.dtype)


def cumsum(a, axis):
    """At each position the sum up to it; of floats in no less than 32 bits."""
    if not jnp.issubdtype(a.dtype, jnp.floating):
        return jnp.cumsum(a, axis=axis, dtype=a.dtype)
    wide = a.astype(jnp.promote_types(a.dtype, jnp.float32))
    return jnp.cumsum(wide, axis=axis).astype(a.dtype)


def shift(a, by, axis):
    """At each position what stands `by` before it, and zeros in front."""
    by = min(by, a.shape[axis])
    zeros = jnp.zeros_like(lax.slice_in_dim(a, 0, by, axis=axis))
    kept = lax.slice_in_dim(a, 0, a.shape[axis] - by, axis=axis)
    return jnp.concatenate((zeros, kept), axis=axis)


def conv(a, weights, axis):
    """At each position what stands there and before it, each times its tap: the last its own."""
    count, dtype = weights.shape[0], a.dtype
    if jnp.issubdtype(dtype, jnp.floating):
        wide = jnp.promote_types(dtype, jnp.float32)
        a, weights = a.astype(wide), weights.astype(wide)
    terms = (
        shift(a, back, axis) * weights[count - 1 - back] for back in range(1, count)
    )
    return sum(terms, a * weights[count - 1]).astype(dtype)


def argmax(a, axis):
    """The first position of the largest."""
    return jnp.argmax(a, axis=axis).astype(jnp.int32)


def locate(a, value, axis, origin=0):
    """Minus the first position of `value`; the least int32 where this block has it not."""
    value = jnp.broadcast_to(value, a.shape)
    is_there = (a == value) | (jnp.isnan(a) & jnp.isnan(value))
    at = lax.broadcasted_iota(jnp.int32, a.shape, axis) + origin
    return jnp.max(jnp.where(is_there, -at, jnp.iinfo(jnp.int32).min), axis=axis)


def largest(a, each, parts, axis):
    """Of so many parts of `axis` the `each` largest, and their positions, part by part."""
    last = jnp.moveaxis(a, axis, -1)
    lines = last.reshape(*last.shape[:-1], parts, -1)
    values, places = lax.top_k(lines, each)
    places += lines.shape[-1] * jnp.arange(parts, dtype=places.dtype)[:, None]
    found = (values, places)
    return [jnp.moveaxis(x.reshape(*last.shape[:-1], -1), -1, axis) for x in found]


def topk(a, each, parts, axis):
    """Of so many parts of `axis` the `each` largest, in falling order."""
    return largest(a, each, parts, axis)[0]


def argtopk(a, each, parts, axis, origin=0):
    """Where the largest stand, of equal ones the first before the others."""
    return (largest(a, each, parts, axis)[1] + origin).astype(jnp.int32)


def scatter_add(a, ids, places, shared, origin=0):
    """The rows that an id gives one place, added up; the first `shared` dims are batches.

    Floats are added in no less than 32 bits. An id that is no place of this block adds to none.
    """

    def added(a, ids):
        dtype = a.dtype
        if jnp.issubdtype(dtype, jnp.floating):
            a = a.astype(jnp.promote_types(dtype, jnp.float32))
        rows = a.reshape(-1, *a.shape[ids.ndim :])
        at = (ids - origin).ravel()
        at = jnp.where(at < 0, places, at)
        sums = jnp.zeros((places, *rows.shape[1:]), a.dtype)
        return sums.at[at].add(rows, mode="drop").astype(dtype)

    for _ in range(shared):
        added = jax.vmap(added)
    return added(a, ids)


def pad(a, before, after, axis):
    """The value with so many zeros before and after it along `axis`."""
    widths = [(0, 0)] * a.ndim
    widths[axis] = (before, after)
    return jnp.pad(a, widths)


def scan(a, factor, axis):
    """At each position its own value and the result before it, times the factor."""
    dtype = a.dtype
    factor = jnp.broadcast_to(factor, a.shape)
    if jnp.issubdtype(dtype, jnp.floating):
        wide = jnp.promote_types(dtype, jnp.float32)
        a, factor = a.astype(wide), factor.astype(wide)

    def both(left, right):
        return left[0] * right[0], left[1] * right[0] + right[1]

    return lax.associative_scan(both, (factor, a), axis=axis)[1].astype(dtype)


def take_rows(table, ids, axis, origin=0):
    """The rows of the table that the ids name; zeros for those that this block has not."""
    at = ids - origin
    held = (at >= 0) & (at < table.shape[axis])
    rows = jnp.take(table, jnp.where(held, at, 0), axis=axis)
    shape = (1,) * axis + ids.shape + (1,) * (table.ndim - axis - 1)
    return jnp.where(held.reshape(shape), rows, 0).astype(table.dtype)


def take_from_each(shared, tables, ids, axis, origin=0):
    """For each position of the first `shared` dims, the rows of its own table."""

    def rows(table, ids):
        return take_rows(table, ids, axis, origin)

    for _ in range(shared):
        rows = jax.vmap(rows)
    return rows(tables, ids)


def route(gates, choices, places):
    """For gates [..., token, expert], 1 at the place of an expert that a token is given.

    First choices come before second ones, and among them tokens in their order; of equal gates
    the lower numbered expert is liked better.
    """
    tokens, experts = gates.shape[-2:]
    liking = jnp.where(jnp.isnan(gates), -jnp.inf, gates)
    order = jnp.argsort(-liking, axis=-1, stable=True)[..., :choices]
    asks = jax.nn.one_hot(jnp.swapaxes(order, -1, -2), experts, dtype=jnp.int32)
    queue = asks.reshape(*asks.shape[:-3], choices * tokens, experts)
    place = jnp.cumsum(queue, axis=-2) - queue
    given = jax.nn.one_hot(place, places, dtype=jnp.int32) * queue[..., None]
    given = given.reshape(*asks.shape, places).sum(axis=-4)
    return given.astype(gates.dtype)


def to_partial(a, axes, neutral):
    """The value where the axes begin, and what leaves any term as it is everywhere else."""
    return jnp.where(lax.axis_index(axes) == 0, a, jnp.asarray(neutral, a.dtype))


def split_to_partial(a, axes, axis, neutral):
    """The block in its place along `axis`, and what leaves any term as it is around it."""
    size = a.shape[axis]
    shape = list(a.shape)
    shape[axis] = size * lax.axis_size(axes)
    whole = jnp.full(shape, neutral, a.dtype)
    at = lax.axis_index(axes) * size
    return lax.dynamic_update_slice_in_dim(whole, a, at, axis=axis)


def max_scatter(a, axes, axis):
    """A reduce-scatter of a maximum: each device gets the candidates for its block."""
    k = lax.axis_size(axes)
    parts = lax.all_to_all(a, axes, split_axis=axis, concat_axis=axis, tiled=True)
    shape = (*a.shape[:axis], k, a.shape[axis] // k, *a.shape[axis + 1 :])
    return jnp.max(parts.reshape(shape), axis=axis)


def chunks_in_front(a, parts):
    """Dims cut as `parts` says, {axis: chunks}, and the chunks, major to minor, in front."""
    shape, front, rest = [], [], []
    for axis, size in enumerate(a.shape):
        if axis in parts:
            front.append(len(shape))
            shape.append(parts[axis])
            size //= parts[axis]
        rest.append(len(shape))
        shape.append(size)
    cut = jnp.transpose(a.reshape(shape), (*front, *rest))
    return cut.reshape(-1, *cut.shape[len(front) :])


def scatter_dims(a, axes, parts):
    """A reduce-scatter of a sum along several dims: `parts` is {axis: chunks}."""
    chunks = chunks_in_front(a, parts)
    return lax.psum_scatter(chunks, axes, scatter_dimension=0)


def max_scatter_dims(a, axes, parts):
    """A reduce-scatter of a maximum along several dims: `parts` is {axis: chunks}."""
    chunks = chunks_in_front(a, parts)
    return jnp.max(lax.all_to_all(chunks, axes, split_axis=0, concat_axis=0), axis=0)


def gather_dims(a, axes, parts):
    """An all-gather along several dims: `parts` is {axis: chunks}, the axes dim by dim."""
    chunks = lax.all_gather(a, axes, axis=0)
    chunks = chunks.reshape(*parts.values(), *a.shape)
    order, shape = [], []
    for axis, size in enumerate(a.shape):
        if axis in parts:
            order.append(list(parts).index(axis))
        order.append(len(parts) + axis)
        shape.append(size * parts.get(axis, 1))
    return jnp.transpose(chunks, order).reshape(shape)


def moved_blocks(axes, before, after):
    """Who sends its block to whom where dims that these axes split are split otherwise.

    Devices are numbered in the order of the mesh, as `ppermute` does over several axes. One that
    has its new block already keeps it.
    """
    sizes = [MESH.shape[axis] for axis in axes]
    devices = [dict(zip(axes, at)) for at in np.ndindex(*sizes)]

    def block(device, dims):
        place = []
        for dim in dims:
            at = 0
            for axis in dim:
                at = at * MESH.shape[axis] + device[axis]
            place.append(at)
        return tuple(place)

    spare, pairs = {}, []
    for number, device in enumerate(devices):
        if block(device, before) != block(device, after):
            spare.setdefault(block(device, before), []).append(number)
    for number, device in enumerate(devices):
        wanted = block(device, after)
        stays = block(device, before) == wanted
        pairs.append((number if stays else spare[wanted].pop(0), number))
    return pairs


def ring(axes):
    """How many devices these axes have, this one's rank among them, and who sends to whom."""
    sizes = [MESH.shape[axis] for axis in axes]
    ordered = [axis for axis in MESH.axis_names if axis in axes]
    numbers = np.arange(np.prod(sizes)).reshape([MESH.shape[axis] for axis in ordered])
    numbers = numbers.transpose([ordered.index(axis) for axis in axes]).ravel().tolist()
    pairs = list(zip(numbers, numbers[1:] + numbers[:1]))
    return len(numbers), lax.axis_index(axes), pairs


def turns(k, turn, state):
    """The turns 1 to k - 1 of a ring: written out up to 8 chunks, else as a loop."""
    if k > 8:
        return lax.fori_loop(1, k, turn, state)
    for step in range(1, k):
        state = turn(step, state)
    return state


def einsum_gathering(equation, *operands, place, axes, along, into, dtype):
    """An einsum that gathers the operand at `place` over `axes`, chunk by chunk.

    `along` is the gathered dim in each operand, `into` in the result; None where it is not there.
    """
    k, rank, pairs = ring(axes)
    size = operands[place].shape[along[place]]

    def add(out, step, held):
        chunk = (rank - step) % k
        parts = []
        for at, (operand, axis) in enumerate(zip(operands, along)):
            if at != place and axis is not None:
                operand = lax.dynamic_slice_in_dim(operand, chunk * size, size, axis)
            parts.append(held if at == place else operand)
        part = jnp.einsum(equation, *parts, preferred_element_type=dtype)
        if into is None:
            return part if out is None else out + part
        if out is None:
            shape = list(part.shape)
            shape[into] *= k
            out = jnp.zeros(shape, part.dtype)
        return lax.dynamic_update_slice_in_dim(out, part, chunk * size, axis=into)

    def turn(step, state):
        held, out = state
        held = lax.ppermute(held, axes, pairs)
        return held, add(out, step, held)

    held = operands[place]
    return turns(k, turn, (held, add(None, 0, held)))[1]


def einsum_scattering(equation, *operands, axes, along, dtype):
    """An einsum whose partial sum over `axes` is scattered, chunk by chunk.

    `along` is the scattered dim in each operand; None where it is not there.
    """
    k, rank, pairs = ring(axes)

    def term(step):
        chunk = (rank - 1 - step) % k
        parts = []
        for operand, axis in zip(operands, along):
            if axis is not None:
                size = operand.shape[axis] // k
                operand = lax.dynamic_slice_in_dim(operand, chunk * size, size, axis)
            parts.append(operand)
        return jnp.einsum(equation, *parts, preferred_element_type=dtype)

    def turn(step, total):
        return lax.ppermute(total, axes, pairs) + term(step)

    return turns(k, turn, term(0))


def draw(random, shape, dtype, below, positive):
    """Numbers for a parameter: ids below a bound, small whole numbers, or floats around 0.

    Floats are the smaller the more there are, so that products of them stay near 1, and a
    softmax weighs several of them.
    """
    if below is not None:
        return random.integers(0, below, shape).astype(dtype)
    if dtype == jnp.bool_:
        return random.integers(0, 2, shape).astype(dtype)
    if not jnp.issubdtype(dtype, jnp.floating):
        return random.integers(1 if positive else -3, 4, shape).astype(dtype)
    count = max(1, np.prod(shape))
    if positive:
        return (random.uniform(0.5, 1.5, shape) * count**-0.5).astype(dtype)
    return (random.uniform(-1.0, 1.0, shape) * count**-0.25).astype(dtype)


def terms_of(random, whole, candidates, terms):
    """What devices hold of a partial value: candidates in front, and terms of each."""
    exact = not jnp.issubdtype(whole.dtype, jnp.floating)
    out = np.broadcast_to(whole, (candidates, terms, *whole.shape)).astype(whole.dtype)
    lower = random.integers(0, 4, out[:, 0].shape)
    best = random.integers(0, candidates, whole.shape)
    lower[np.arange(candidates).reshape(-1, *[1] * whole.ndim) == best] = 0
    rest = (out[:, 0] - lower).astype(whole.dtype)
    for term in range(1, terms):
        drawn = random.integers(-3, 4, rest.shape)
        out[:, term] = drawn if exact else drawn / 4
        rest = (rest - out[:, term]).astype(whole.dtype)
    out[:, 0] = rest
    return out


def inputs(layer, seed):
    """Whole tensors for the parameters, and the same as the devices hold them."""
    random = np.random.default_rng(seed)
    whole, held = [], []
    for name, (shape, dtype) in layer["shapes"].items():
        below = layer["below"].get(name)
        data = draw(random, shape, dtype, below, layer["positive"])
        whole.append(jnp.asarray(data))
        if name in layer["terms"]:
            candidates, terms = layer["terms"][name]
            data = terms_of(random, data, candidates or 1, terms or 1)
            kept = [axis for axis in (candidates, terms) if axis]
            data = data.reshape(*kept, *shape)
            if name in layer["stacked"]:
                data = np.moveaxis(data, len(kept), 0)
        memory = "pinned_host" if name in layer["host"] else None
        sharding = NamedSharding(MESH, layer["params"][name], memory_kind=memory)
        held.append(jax.device_put(data, sharding))
    return whole, held


def completed(value, candidates, terms, stacked):
    """A partial result with its terms added and its maxima taken."""
    value = np.asarray(value).astype(np.float64)
    if stacked:
        value = np.moveaxis(value, 0, bool(candidates) + bool(terms))
    if terms:
        value = value.sum(axis=1 if candidates else 0)
    return value.max(axis=0) if candidates else value


def check(name, layer, seed=0):
    """Runs a layer on the devices and on one, and says whether the results are the same."""
    whole, held = inputs(layer, seed)
    expected = jax.tree.leaves(jax.jit(layer["unsharded"])(*whole))
    found = jax.tree.leaves(layer["sharded"](*held))
    right = len(found) == len(expected) == len(layer["results"])
    for result, value, other in zip(layer["results"], found, expected):
        terms = layer["terms"].get("-> " + result, (None, None))
        value = completed(value, *terms, "-> " + result in layer["stacked"])
        other = np.asarray(other).astype(np.float64)
        finite = np.isfinite(value) & np.isfinite(other)
        same = value.shape == other.shape and np.array_equal(
            value[~finite], other[~finite], equal_nan=True
        )
        scale = np.abs(other[finite]).max(initial=1e-3)
        off = np.abs(value[finite] - other[finite]).max(initial=0) if same else np.inf
        equal = bool(off <= layer["tolerance"] * scale)
        right &= equal
        verdict = "equal" if equal else "DIFFERENT"
        print(
            f"{name}: {result} {verdict}, off by {off:.2e}, results up to {scale:.2e}"
        )
    return bool(right)


def main():
    """`--check` runs every layer on made-up inputs beside its unsharded form."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--check", action="store_true", help="compare with the unsharded form"
    )
    parser.add_argument("--seed", type=int, default=0, help="of the inputs")
    args = parser.parse_args()
    if not args.check:
        parser.print_help()
        return 0
    right = [check(name, layer, args.seed) for name, layer in LAYERS.items()]
    return 0 if all(right) else 1


def devices_for_a_check(count):
    """A check on a machine without so many devices takes virtual ones."""
    asked = "xla_force_host_platform_device_count" in os.environ.get("XLA_FLAGS", "")
    if "--check" in sys.argv and not asked:
        jax.config.update("jax_num_cpu_devices", count)


def at(a, *spec):
    """The value, held to a layout."""
    return lax.with_sharding_constraint(a, NamedSharding(MESH, P(*spec)))


def held(specs):
    """A decorator: what a function returns is held to one layout, or to one each."""

    def of(function):
        shardings = jax.tree.map(
            lambda spec: NamedSharding(MESH, spec),
            specs,
            is_leaf=lambda s: isinstance(s, P),
        )
        return lambda *given: lax.with_sharding_constraint(function(*given), shardings)

    return of


def placed(specs, host=()):
    """Where tensors of these specs lie; some of them in the memory of the host."""
    memory = {name: "pinned_host" if name in host else "device" for name in specs}
    return tuple(NamedSharding(MESH, specs[n], memory_kind=memory[n]) for n in specs)
