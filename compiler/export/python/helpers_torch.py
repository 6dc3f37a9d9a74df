"""What modules of PyTorch are made with: each takes over the functions that it calls.

`shardc export torch` copies a function of this file, and those that it calls, into the
modules that need it. `MESH`, `AXES`, `GROUPS`, `DEVICE` and `LAYERS` are the module's own.
"""

import argparse
import math
import os
import sys
import tempfile

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import distribute_tensor

MESH = {"x": 1}
AXES = ()
GROUPS = {}
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
LAYERS = {}


def rmsnorm(a, axis):
    """Divided by the root of the mean square, in no less than 32 bits."""
    wide = a.to(torch.promote_types(a.dtype, torch.float32))
    square = torch.mean(torch.square(wide), dim=axis, keepdim=True)
    return (wide * torch.rsqrt(square + 1e-6)).to(a.dtype)


def layernorm(a, axis):
    """Less the mean, and divided by the root of the variance, in no less than 32 bits."""
    wide = a.to(torch.promote_types(a.dtype, torch.float32))
    wide = wide - torch.mean(wide, dim=axis, keepdim=True)
    square = torch.mean(torch.square(wide), dim=axis, keepdim=True)
    return (wide * torch.rsqrt(square + 1e-6)).to(a.dtype)


def sink_softmax(a, sinks, axis):
    """A softmax whose sum has a term more, that of the sink."""
    wide = a.to(torch.promote_types(a.dtype, torch.float32))
    largest = torch.maximum(torch.amax(wide, axis, keepdim=True), sinks.to(wide.dtype))
    terms = torch.exp(wide - largest)
    total = torch.sum(terms, axis, keepdim=True) + torch.exp(sinks - largest)
    return (terms / total).to(a.dtype)


def softmax_of_part(a, axis):
    """The softmax over the keys of a process, 0 where it sees none, and the statistics."""
    wide = a.to(torch.promote_types(a.dtype, torch.float32))
    largest = torch.amax(wide, dim=axis, keepdim=True)
    seen = largest > -torch.inf
    terms = torch.exp(wide - torch.where(seen, largest, 0))
    total = torch.where(seen, torch.sum(terms, dim=axis, keepdim=True), 1)
    statistics = torch.where(seen, largest + torch.log(total), -torch.inf)
    return (terms / total).to(a.dtype), torch.squeeze(statistics, axis)


def softmax_merge(part, axes, by, axis=None, left=False):
    """The attention over all keys, or a block of it along `axis`, of parts of it.

    A part is a result and its statistics, which have the dims `by` of the result; with
    `left`, it still is one, of more keys.
    """

    def beside(a):
        shape = [1] * result.ndim
        for at, dim in enumerate(by):
            shape[dim] = a.shape[at]
        return a.reshape(shape)

    result, statistics = part
    largest = all_reduce(statistics, axes, op=dist.ReduceOp.MAX)
    seen = statistics > -torch.inf
    weights = torch.exp(statistics - torch.where(seen, largest, 0))
    weights = torch.where(seen, weights, 0)
    total = (result * beside(weights)).to(result.dtype)
    if axis is None:
        total, weights = all_reduce(total, axes), all_reduce(weights, axes)
    else:
        total = reduce_scatter(total, axes, dim=axis)
        if axis in by:
            at = by.index(axis)
            weights = reduce_scatter(weights, axes, dim=at)
            size = weights.shape[at]
            largest = torch.narrow(largest, at, rank(axes) * size, size)
        else:
            weights = all_reduce(weights, axes)
    weights, seen = torch.where(weights > 0, weights, 1), weights > 0
    result = (total / beside(weights)).to(result.dtype)
    if not left:
        return result
    return result, torch.where(seen, largest + torch.log(weights), -torch.inf)


def whole_division(a, b):
    """Whole numbers, truncated toward zero; 0 where the divisor is 0."""
    quotient = torch.div(a, torch.where(b == 0, 1, b), rounding_mode="trunc")
    return torch.where(b == 0, 0, quotient)


def to_whole(a, dtype, bits=None):
    """Truncated toward zero, and no further than the dtype, or so many bits, goes."""
    if dtype == torch.bool:
        return a != 0
    bits = bits or torch.iinfo(dtype).bits
    least, most = -(2 ** (bits - 1)), 2 ** (bits - 1) - 1
    if a.is_floating_point():
        a = torch.trunc(a.to(torch.float64))
        a = torch.nan_to_num(a, nan=0, posinf=most, neginf=least)
    else:
        a = a.to(torch.int64)
    return torch.clamp(a, least, most).to(dtype)


def to_f4(a):
    """The nearest number of 4 bits (e2m1), ties to even, in a byte."""
    a = torch.nan_to_num(a.to(torch.float32), nan=0, posinf=6, neginf=-6)
    step = torch.where(a.abs() < 2, 0.5, torch.where(a.abs() < 4, 1.0, 2.0))
    return torch.clamp(torch.round(a / step) * step, -6, 6).to(torch.float8_e4m3fn)


def along(a, axis, origin=0):
    """The place of each element along an axis, as a tensor that broadcasts against it."""
    shape = [1] * a.ndim
    shape[axis] = a.shape[axis]
    return torch.arange(a.shape[axis], device=a.device).reshape(shape) + origin


def append_block(cache, new, first, axis, origin):
    """The cache, of which a device has a block from `origin` on, with `new` from `first` on."""
    at = along(cache, axis, origin) - first
    rows = torch.index_select(new, axis, at.flatten().clamp(0, new.shape[axis] - 1))
    return torch.where(at >= 0, rows, cache)


def causal(a, queries, keys, later, window=None, query_origin=0, key_origin=0):
    """Minus infinity where the key is later than the query, or past its window of last positions."""
    at_query = along(a, queries, query_origin + later)
    at_key = along(a, keys, key_origin)
    hidden = at_key > at_query
    if window is not None:
        hidden |= at_key + window <= at_query
    return a.masked_fill(hidden, -torch.inf)


def rope(a, axis, at, origin=0):
    """Pairs of the two halves of `axis`, turned by their position along `at`."""
    wide = torch.promote_types(a.dtype, torch.float32)
    low, high = torch.chunk(a.to(wide), 2, axis)
    pair = along(low, axis).to(wide)
    turns = torch.tensor(10000.0, dtype=wide, device=a.device)
    angle = along(a, at, origin).to(wide) * turns ** (-2.0 * pair / a.shape[axis])
    cos, sin = torch.cos(angle), torch.sin(angle)
    both = (low * cos - high * sin, high * cos + low * sin)
    return torch.cat(both, axis).to(a.dtype)


def cumsum(a, axis):
    """At each position the sum up to it; of floats in no less than 32 bits."""
    if not a.dtype.is_floating_point:
        return torch.cumsum(a, axis, dtype=a.dtype)
    wide = a.to(torch.promote_types(a.dtype, torch.float32))
    return torch.cumsum(wide, axis).to(a.dtype)


def iota(a, axis, origin=0):
    """The position along a dim, at every element."""
    shape = [1] * a.ndim
    shape[axis] = -1
    at = torch.arange(a.shape[axis], dtype=torch.int32, device=a.device) + origin
    return at.reshape(shape).expand(a.shape).contiguous()


def shift(a, by, axis):
    """At each position what stands `by` before it, and zeros in front."""
    by = min(by, a.shape[axis])
    zeros = torch.zeros_like(a.narrow(axis, 0, by))
    return torch.cat((zeros, a.narrow(axis, 0, a.shape[axis] - by)), axis)


def conv(a, weights, axis):
    """At each position what stands there and before it, each times its tap: the last its own."""
    count, dtype = weights.shape[0], a.dtype
    if dtype.is_floating_point:
        wide = torch.promote_types(dtype, torch.float32)
        a, weights = a.to(wide), weights.to(wide)
    terms = (
        shift(a, back, axis) * weights[count - 1 - back] for back in range(1, count)
    )
    return sum(terms, a * weights[count - 1]).to(dtype)


def argmax(a, axis):
    """The first position of the largest."""
    return torch.argmax(a, axis).to(torch.int32)


def locate(a, value, axis, origin=0):
    """Minus the first position of `value`; the least int32 where this block has it not."""
    value = value.expand(a.shape)
    is_there = (a == value) | (torch.isnan(a) & torch.isnan(value))
    at = along(a, axis, origin).to(torch.int32)
    least = torch.iinfo(torch.int32).min
    return torch.amax(torch.where(is_there, -at, least), axis)


def largest(a, each, parts, axis):
    """Of so many parts of `axis` the `each` largest, and their positions, part by part."""
    lines = a.movedim(axis, -1).unflatten(-1, (parts, -1))
    values, places = torch.sort(lines, dim=-1, descending=True, stable=True)
    begins = lines.shape[-1] * torch.arange(parts, device=a.device)[:, None]
    found = (values[..., :each], places[..., :each] + begins)
    return [x.flatten(-2).movedim(-1, axis) for x in found]


def topk(a, each, parts, axis):
    """Of so many parts of `axis` the `each` largest, in falling order."""
    return largest(a, each, parts, axis)[0]


def argtopk(a, each, parts, axis, origin=0):
    """Where the largest stand, of equal ones the first before the others."""
    return (largest(a, each, parts, axis)[1] + origin).to(torch.int32)


def scatter_add(a, ids, places, shared, origin=0):
    """The rows that an id gives one place, added up; the first `shared` dims are batches.

    Floats are added in no less than 32 bits. An id that is no place of this block adds to none.
    """
    ids = ids - origin
    front, rest = a.shape[:shared], a.shape[ids.ndim :]
    batches = math.prod(front)
    wide = a.dtype
    if a.is_floating_point():
        wide = torch.promote_types(a.dtype, torch.float32)
    # What has no place goes behind those of its batch.
    at = torch.where((ids >= 0) & (ids < places), ids, places).reshape(batches, -1)
    begins = (places + 1) * torch.arange(batches, device=a.device)[:, None]
    sums = torch.zeros((batches * (places + 1), *rest), dtype=wide, device=a.device)
    sums.index_add_(0, (at + begins).flatten(), a.reshape(-1, *rest).to(wide))
    sums = sums.unflatten(0, (batches, places + 1))[:, :places]
    return sums.reshape(*front, places, *rest).to(a.dtype)


def pad(a, before, after, axis):
    """The value with so many zeros before and after it along `axis`."""

    def zeros(count):
        return a.new_zeros([*a.shape[:axis], count, *a.shape[axis + 1 :]])

    return torch.cat((zeros(before), a, zeros(after)), axis)


def scan(a, factor, axis):
    """At each position its own value and the result before it, times the factor.

    Sums of 1, 2, 4, .. positions, each from two of the step before.
    """
    dtype, reach = a.dtype, 1
    factor = factor.expand(a.shape)
    if a.is_floating_point():
        wide = torch.promote_types(dtype, torch.float32)
        a, factor = a.to(wide), factor.to(wide)
    while reach < a.shape[axis]:
        a = a + factor * shift(a, reach, axis)
        factor = factor * shift(factor, reach, axis)
        reach *= 2
    return a.to(dtype)


def take_rows(table, ids, axis, origin=0):
    """The rows of the table that the ids name; zeros for those that this block has not."""
    at = ids.flatten() - origin
    held = (at >= 0) & (at < table.shape[axis])
    rows = torch.index_select(table, axis, torch.where(held, at, 0))
    rows = torch.where(held.reshape([-1] + [1] * (table.ndim - axis - 1)), rows, 0)
    return rows.reshape(table.shape[:axis] + ids.shape + table.shape[axis + 1 :])


def take_from_each(shared, tables, ids, axis, origin=0):
    """For each position of the first `shared` dims, the rows of its own table."""
    each = zip(tables.flatten(0, shared - 1), ids.flatten(0, shared - 1))
    rows = [take_rows(table, of_table, axis, origin) for table, of_table in each]
    return torch.stack(rows).unflatten(0, tables.shape[:shared])


def route(gates, choices, places):
    """For gates [..., token, expert], 1 at the place of an expert that a token is given.

    First choices come before second ones, and among them tokens in their order; of equal gates
    the lower numbered expert is liked better.
    """
    tokens, experts = gates.shape[-2:]
    disliking = -torch.where(torch.isnan(gates), -torch.inf, gates)
    order = torch.argsort(disliking, dim=-1, stable=True)[..., :choices]
    asks = torch.nn.functional.one_hot(order.transpose(-1, -2), experts)
    queue = asks.reshape(*asks.shape[:-3], choices * tokens, experts)
    place = torch.cumsum(queue, dim=-2) - queue
    given = place[..., None] == torch.arange(places, device=gates.device)
    given = (given * queue[..., None]).reshape(*asks.shape, places)
    return given.sum(dim=-4).to(gates.dtype)


def size(axes):
    """How many processes differ in their places along these axes alone."""
    return math.prod(MESH[axis] for axis in ([axes] if isinstance(axes, str) else axes))


def rank(axes):
    """The rank of this process among those, the first axis the major-most."""
    rest, at = dist.get_rank(), {}
    for axis in reversed(MESH):
        rest, at[axis] = divmod(rest, MESH[axis])
    found = 0
    for axis in [axes] if isinstance(axes, str) else axes:
        found = found * MESH[axis] + at[axis]
    return found


def all_gather(a, axes, dim):
    """The blocks of all processes, one behind the other along `dim`."""
    out = a.new_empty(size(axes), *a.shape)
    flat = a.contiguous().view(-1)
    dist.all_gather_into_tensor(out.view(-1), flat, group=GROUPS[axes])
    return torch.cat(out.unbind(), dim)


def all_reduce(a, axes, op=dist.ReduceOp.SUM):
    """The terms of all processes, combined."""
    out = a.clone(memory_format=torch.contiguous_format)
    dist.all_reduce(out, op, group=GROUPS[axes])
    return out


def reduce_scatter(a, axes, dim, op=dist.ReduceOp.SUM):
    """The terms of all processes, combined, and of that a block along `dim`."""
    chunks = torch.stack(a.chunk(size(axes), dim))
    out = a.new_empty(chunks.shape[1:])
    flat = chunks.view(-1)
    dist.reduce_scatter_tensor(out.view(-1), flat, op, group=GROUPS[axes])
    return out


def all_to_all(a, axes, split, concat):
    """Blocks along `split` for blocks along `concat`."""
    chunks = torch.stack(a.chunk(size(axes), split))
    out = torch.empty_like(chunks)
    dist.all_to_all_single(out, chunks, group=GROUPS[axes])
    return torch.cat(out.unbind(), concat)


def permute(a, axes, pairs):
    """The block of another process: `pairs` says who sends to whom."""
    me, sent, got = rank(axes), [0] * size(axes), [0] * size(axes)
    for source, target in pairs:
        sent[target] += a.numel() * (source == me)
        got[source] += a.numel() * (target == me)
    out = torch.empty_like(a, memory_format=torch.contiguous_format)
    flat = a.contiguous().view(-1)
    dist.all_to_all_single(out.view(-1), flat, got, sent, group=GROUPS[axes])
    return out


def to_partial(a, axes, neutral):
    """The value where the axes begin, and what leaves any term as it is everywhere else."""
    return a if rank(axes) == 0 else torch.full_like(a, neutral)


def split_to_partial(a, axes, dim, neutral):
    """The block in its place along `dim`, and what leaves any term as it is around it."""
    shape = list(a.shape)
    shape[dim] *= size(axes)
    whole, at = a.new_full(shape, neutral), rank(axes) * a.shape[dim]
    return torch.slice_scatter(whole, a, dim, at, at + a.shape[dim])


def chunks_in_front(a, parts):
    """Dims cut as `parts` says, {dim: chunks}, and the chunks, major to minor, in front."""
    shape, front, rest = [], [], []
    for dim, length in enumerate(a.shape):
        if dim in parts:
            front.append(len(shape))
            shape.append(parts[dim])
            length //= parts[dim]
        rest.append(len(shape))
        shape.append(length)
    cut = torch.permute(a.reshape(shape), (*front, *rest))
    return cut.flatten(0, len(front) - 1).contiguous()


def scatter_dims(a, axes, parts, op=dist.ReduceOp.SUM):
    """A reduce-scatter along several dims: `parts` is {dim: chunks}."""
    return reduce_scatter(chunks_in_front(a, parts), axes, 0, op).squeeze(0)


def gather_dims(a, axes, parts):
    """An all-gather along several dims: `parts` is {dim: chunks}, the axes dim by dim."""
    chunks = all_gather(a[None], axes, 0).unflatten(0, [*parts.values()])
    order, shape = [], []
    for dim, length in enumerate(a.shape):
        if dim in parts:
            order.append(list(parts).index(dim))
        order.append(len(parts) + dim)
        shape.append(length * parts.get(dim, 1))
    return torch.permute(chunks, order).reshape(shape)


def moved_blocks(axes, before, after):
    """Who sends its block to whom where dims that these axes split are split otherwise.

    Processes are numbered in the order of the axes. One that has its new block already keeps it.
    """
    devices = [{}]
    for axis in axes:
        devices = [
            {**device, axis: at} for device in devices for at in range(MESH[axis])
        ]

    def block_of(device, dims):
        place = []
        for dim in dims:
            at = 0
            for axis in dim:
                at = at * MESH[axis] + device[axis]
            place.append(at)
        return tuple(place)

    spare, pairs = {}, []
    for number, device in enumerate(devices):
        if block_of(device, before) != block_of(device, after):
            spare.setdefault(block_of(device, before), []).append(number)
    for number, device in enumerate(devices):
        wanted = block_of(device, after)
        stays = block_of(device, before) == wanted
        pairs.append((number if stays else spare[wanted].pop(0), number))
    return pairs


def ring(axes):
    """How many processes these axes have, this one's rank, and who sends to whom."""
    k = size(axes)
    return k, rank(axes), [(at, (at + 1) % k) for at in range(k)]


def einsum_gathering(equation, *operands, place, axes, along, into, dtype):
    """An einsum that gathers the operand at `place` over `axes`, chunk by chunk.

    `along` is the gathered dim in each operand, `into` in the result; None where it is not there.
    """
    k, me, pairs = ring(axes)
    held, terms = operands[place], [None] * k
    length = held.shape[along[place]]
    for step in range(k):
        chunk = (me - step) % k
        parts = []
        for at, (operand, dim) in enumerate(zip(operands, along)):
            if at != place and dim is not None:
                operand = operand.narrow(dim, chunk * length, length)
            parts.append((held if at == place else operand).to(dtype))
        terms[step if into is None else chunk] = torch.einsum(equation, *parts)
        if step + 1 < k:
            held = permute(held, axes, pairs)
    return sum(terms[1:], terms[0]) if into is None else torch.cat(terms, into)


def einsum_scattering(equation, *operands, axes, along, dtype):
    """An einsum that scatters its sum over `axes`, chunk by chunk, along a dim of the operands."""
    k, me, pairs = ring(axes)
    total = None
    for step in range(k):
        chunk = (me - 1 - step) % k
        parts = []
        for operand, dim in zip(operands, along):
            if dim is not None:
                length = operand.shape[dim] // k
                operand = operand.narrow(dim, chunk * length, length)
            parts.append(operand.to(dtype))
        term = torch.einsum(equation, *parts)
        total = term if total is None else permute(total, axes, pairs) + term
    return total


def block(whole, spec):
    """What this process has of a tensor whose dims these axes split."""
    for dim, axes in enumerate(spec):
        if axes:
            length = whole.shape[dim] // size(axes)
            whole = whole.narrow(dim, rank(axes) * length, length)
    return whole.contiguous()


def draw(random, shape, dtype, below, positive):
    """Numbers for a parameter: ids below a bound, small whole numbers, or floats around 0.

    Floats are the smaller the more there are, so that products of them stay near 1, and a
    softmax weighs several of them.
    """
    if below is not None:
        return torch.randint(0, below, shape, generator=random).to(dtype)
    if dtype == torch.bool:
        return torch.randint(0, 2, shape, generator=random).to(dtype)
    if not dtype.is_floating_point:
        least = 1 if positive else -3
        return torch.randint(least, 4, shape, generator=random).to(dtype)
    drawn = torch.rand(shape, generator=random, dtype=torch.float64)
    count = max(1, math.prod(shape))
    if positive:
        return ((drawn + 0.5) * count**-0.5).to(dtype)
    return ((2 * drawn - 1) * count**-0.25).to(dtype)


def terms_of(random, whole, candidates, terms):
    """What processes hold of a partial value: candidates, and terms of each."""
    best = torch.randint(0, candidates, whole.shape, generator=random)
    out = []
    for candidate in range(candidates):
        lower = torch.randint(0, 4, whole.shape, generator=random)
        rest = (whole - torch.where(best == candidate, 0, lower)).to(whole.dtype)
        row = []
        for _ in range(terms - 1):
            drawn = torch.randint(-3, 4, whole.shape, generator=random)
            drawn = drawn / 4 if whole.is_floating_point() else drawn
            row.append(drawn.to(whole.dtype))
            rest = rest - row[-1]
        out.append([rest, *row])
    return out


def inputs(layer, seed):
    """Whole tensors for the parameters, and what this process holds of each."""
    random = torch.Generator().manual_seed(seed)
    whole, held = [], []
    for name, (shape, dtype) in layer["shapes"].items():
        below = layer["below"].get(name)
        data = draw(random, shape, dtype, below, layer["positive"])
        whole.append(data.to(DEVICE))
        maxima, sums = layer["partial"].get(name, ((), ()))
        if maxima or sums:
            terms = terms_of(random, data, size(maxima), size(sums))
            data = terms[rank(maxima)][rank(sums)]
        data = block(data, layer["params"][name])
        held.append(data if name in layer["host"] else data.to(DEVICE))
    return whole, held


def completed(value, maxima, sums):
    """A partial result with its terms added and its maxima taken."""
    value = all_reduce(value, sums) if sums else value
    return all_reduce(value, maxima, dist.ReduceOp.MAX) if maxima else value


def worst(*numbers):
    """The largest of each number over all processes."""
    found = torch.tensor(numbers, dtype=torch.float64, device=DEVICE)
    dist.all_reduce(found, dist.ReduceOp.MAX)
    return found.tolist()


def check(name, layer, seed=0):
    """Runs a layer on all processes and on one, and says whether the results are the same."""
    whole, held = inputs(layer, seed)
    # A tensor that is not partial, placed by DTensor, is the block that the layer takes.
    wrong = 0
    for at, (parameter, placements) in enumerate(layer["placements"].items()):
        if placements and parameter not in layer["partial"]:
            placed = distribute_tensor(whole[at], GROUPS[None], placements)
            wrong += not torch.equal(placed.to_local(), held[at].to(DEVICE))
    expected, found = layer["unsharded"](*whole), layer["sharded"](*held)
    expected, found = [
        list(values) if isinstance(values, tuple) else [values]
        for values in (expected, found)
    ]
    right = len(found) == len(expected) == len(layer["results"]) and not wrong
    for result, value, other in zip(layer["results"], found, expected):
        value = completed(value, *layer["partial"].get("-> " + result, ((), ())))
        value = value.to(torch.float64)
        other = other.to(torch.float64)
        scale = other.abs().nan_to_num(posinf=0).max().item() if other.numel() else 0
        other = block(other, layer["results"][result])
        finite = torch.isfinite(value) & torch.isfinite(other)
        same = value.shape == other.shape and torch.equal(
            value[~finite].nan_to_num(), other[~finite].nan_to_num()
        )
        gap = (value - other)[finite].abs() if same else torch.ones(1)
        off = gap.max().item() if gap.numel() else 0.0
        off, missing = worst(off, not same)
        scale = max(scale, 1e-3)
        equal = not missing and off <= layer["tolerance"] * scale
        right &= equal
        verdict = "equal" if equal else "DIFFERENT"
        if dist.get_rank() == 0:
            print(
                f"{name}: {result} {verdict}, off by {off:.2e}, results up to {scale:.2e}"
            )
    right, wrong = worst(not right, wrong)
    if wrong and dist.get_rank() == 0:
        print(f"{name}: {wrong:.0f} parameters lie otherwise than PLACEMENTS say")
    return not right


def make_groups():
    """A process group for each tuple of AXES, ranked in its order; under None, the mesh."""
    names, sizes = list(MESH), tuple(MESH.values())
    GROUPS[None] = init_device_mesh(DEVICE, sizes, mesh_dim_names=tuple(names))
    for axes in AXES:
        if isinstance(axes, str):
            GROUPS[axes] = GROUPS[None].get_group(axes)
            continue
        outer = [name for name in names if name not in axes]
        order = [names.index(name) for name in (*outer, *axes)]
        devices = torch.arange(math.prod(sizes)).reshape(sizes)
        for ranks in devices.permute(order).reshape(-1, size(axes)).tolist():
            # A group sorts its processes unless it is told not to.
            kept = {} if ranks == sorted(ranks) else {"sort_ranks": False}
            group = dist.new_group(ranks, **kept)
            if dist.get_rank() in ranks:
                GROUPS[axes] = group


def work(number, init_method, seed):
    """The check on one process; `number` says which, or else the environment."""
    count = math.prod(MESH.values()) if number >= 0 else -1
    backend = "nccl" if DEVICE == "cuda" else "gloo"
    dist.init_process_group(
        backend, init_method=init_method, rank=number, world_size=count
    )
    if DEVICE == "cuda":
        torch.cuda.set_device(dist.get_rank() % torch.cuda.device_count())
    else:
        torch.set_num_threads(1)
    make_groups()
    right = [check(name, layer, seed) for name, layer in LAYERS.items()]
    dist.destroy_process_group()
    if not all(right):
        sys.exit(1)


def main():
    """`--check` runs every layer on made-up inputs beside its unsharded form.

    Started by torchrun, on the processes that are there; else on new ones of this machine.
    """
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--check", action="store_true", help="compare with the unsharded form"
    )
    parser.add_argument("--seed", type=int, default=0, help="of the inputs")
    args = parser.parse_args()
    if not args.check:
        parser.print_help()
        return 0
    if "RANK" in os.environ:
        work(-1, "env://", args.seed)
        return 0
    with tempfile.TemporaryDirectory() as folder:
        store = "file://" + os.path.join(folder, "store")
        try:
            mp.spawn(work, (store, args.seed), nprocs=math.prod(MESH.values()))
        except mp.ProcessExitedException:
            return 1
    return 0
