"""What changes how a tensor is cut into dims."""

from __future__ import annotations

from collections.abc import Sequence

from .._program import shapes
from .._program.builder import Builder
from .._program.program import Tensor, Value
from .node import Node, aligned, at


def reshape(b: Builder, node: Node) -> Value:
    """Dims that are cut and joined: `view`, `reshape`, `flatten`, `unflatten`."""
    return shapes.reshape(b, node.tensor("self"), node.shape)


def permute(b: Builder, node: Node) -> Value:
    """Another order of dims."""
    value = node.tensor("self")
    return shapes.transpose(value, node.many("dims", len(value.shape)))


def transpose(b: Builder, node: Node) -> Value:
    """Two dims change places."""
    value = node.tensor("self")
    order = list(range(len(value.shape)))
    if node.name in ("t", "numpy_T", "mT"):
        return shapes.transpose(value, order if len(order) < 2 else [*order[:-2], order[-1], order[-2]])
    one, other = node.at("dim0", len(order)), node.at("dim1", len(order))
    order[one], order[other] = other, one
    return shapes.transpose(value, order)


def unsqueeze(b: Builder, node: Node) -> Value:
    """Adds a dim of size 1."""
    value = node.tensor("self")
    place = node.at("dim", len(value.shape) + 1)
    return _with(value, place, 1)


def _with(value: Tensor, place: int, size: int) -> Tensor:
    """The value with one more dim, along which it is repeated."""
    positions = (*value.positions[:place], None, *value.positions[place:])
    return shapes.renewed(value, positions, (*value.shape[:place], size, *value.shape[place:]))


def squeeze(b: Builder, node: Node) -> Value:
    """Without dims of size 1."""
    value = node.tensor("self")
    asked = node.many("dim", len(value.shape))
    return shapes.squeeze(value, [place for place in asked if value.shape[place] == 1]) if value.shape else value


def expand(b: Builder, node: Node) -> Value:
    """Repeated along dims of size 1: only noted."""
    value = aligned(node.tensor("self"), len(node.shape))
    assert isinstance(value, Tensor)
    positions = value.positions if value.shape else (None,) * len(node.shape)
    return shapes.renewed(value, positions, node.shape)


def repeat(b: Builder, node: Node) -> Value:
    """Copies one behind the other along each dim."""
    times = list(node.plain("repeats"))
    value = aligned(node.tensor("self"), len(times))
    assert isinstance(value, Tensor)
    for place, count in reversed(list(enumerate(times))):
        value = _with(value, place, count)
    return shapes.reshape(b, value, node.shape)


def repeat_interleave(b: Builder, node: Node) -> Value:
    """Each element several times."""
    value = node.tensor("self")
    count = node.plain("repeats")
    if not isinstance(count, int) or node.plain("dim") is None:
        raise b.fail("`.shard` has no counterpart of copies whose number is computed")
    return shapes.reshape(b, _with(value, node.at("dim", len(value.shape)) + 1, count), node.shape)


def cat(b: Builder, node: Node) -> Value:
    """Tensors joined along a dim."""
    values = [b.tensor(value) for value in node.plain("tensors") if 0 not in value.shape]
    return shapes.concatenate(b, values, node.at("dim", len(node.shape)))


def stack(b: Builder, node: Node) -> Value:
    """Tensors stacked along a new dim."""
    place = node.at("dim", len(node.shape))
    return shapes.concatenate(b, [_with(b.tensor(value), place, 1) for value in node.plain("tensors")], place)


def slices(b: Builder, node: Node) -> Value:
    """Some positions of one dim."""
    value = node.tensor("self")
    place = node.at("dim", len(value.shape))
    size = value.shape[place]
    start, end, step = slice(node.plain("start"), node.plain("end"), node.plain("step")).indices(size)
    return shapes.strided(b, value, place, start, max(end, start), step)


def narrow(b: Builder, node: Node) -> Value:
    """Some positions of one dim, from one on."""
    value = node.tensor("self")
    place = node.at("dim", len(value.shape))
    start = node.plain("start")
    return shapes.window(b, value, place, start % value.shape[place], node.plain("length"))


def select(b: Builder, node: Node) -> Value:
    """One position of a dim."""
    value = node.tensor("self")
    return _one(b, value, node.at("dim", len(value.shape)), node.plain("index"))


def _one(b: Builder, value: Tensor, place: int, index: int) -> Tensor:
    return shapes.squeeze(shapes.window(b, value, place, index % value.shape[place], 1), [place])


def unbind(b: Builder, node: Node) -> list[Value]:
    """Each position of a dim."""
    value = node.tensor("self")
    place = node.at("dim", len(value.shape))
    return [_one(b, value, place, index) for index in range(value.shape[place])]


def split(b: Builder, node: Node) -> list[Value]:
    """One tensor as several along a dim."""
    value = node.tensor("self")
    place = node.at("dim", len(value.shape))
    # PyTorch's metadata of the results has their sizes.
    sizes: Sequence[int] = [int(one.shape[place]) for one in node.node.meta["val"]]
    return list(shapes.split(b, value, place, sizes))


def pad(b: Builder, node: Node) -> Value:
    """A number in front of and behind a tensor; the last dim is written first."""
    value = node.tensor("self")
    filling = node.plain("value") or 0
    if node.plain("mode") not in (None, "constant"):
        raise b.fail("`.shard` has no counterpart of a padding with elements of the tensor")
    counts = list(node.plain("pad"))
    for turn in range(len(counts) // 2):
        place = len(value.shape) - 1 - turn
        low, high = counts[2 * turn], counts[2 * turn + 1]
        value = shapes.padded(b, value, place, low, high, filling, node.dtype)
    return value


def flip(b: Builder, node: Node) -> Value:
    """Reverses a dim."""
    value = node.tensor("self")
    return shapes.reverse(b, value, [at(place, len(value.shape)) for place in node.plain("dims")])
