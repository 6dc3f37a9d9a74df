"""Rows of tables, and what is added to them."""

from __future__ import annotations

from .._program import indexing
from .._program import known as tables
from .._program.builder import Builder
from .._program.program import Known, Tensor, Value
from .node import Node, aligned
from .shapes import _one


def embedding(b: Builder, node: Node) -> Value:
    """Rows by ids."""
    return rows(b, node, node.tensor("weight"), node.tensor("indices"), 0)


def rows(b: Builder, node: Node, table: Tensor, ids: Tensor, at: int) -> Value:
    """Rows along one dim: the dims of the ids stand where it stood."""
    count = len(ids.shape)
    of_rows = [*range(at), *range(at + count, len(node.shape))]
    return indexing.take(b, table, ids, at, {}, of_rows, node.shape)


def index_select(b: Builder, node: Node) -> Value:
    """Rows along one dim."""
    table = node.tensor("self")
    return rows(b, node, table, node.tensor("index"), node.at("dim", len(table.shape)))


def index(b: Builder, node: Node) -> Value:
    """`table[:, ids]`."""
    table = node.tensor("self")
    given = [(at, one) for at, one in enumerate(node.plain("indices")) if one is not None]
    if len(given) != 1 or given[0][1].dtype == "bool":
        raise b.fail("`.shard` has no counterpart of this index: it takes rows along one dim by one tensor of ids")
    at, ids = given[0]
    number = tables.number(ids) if isinstance(ids, Known) and not ids.shape else None
    if number is not None:
        return _one(b, table, at, int(number))
    return rows(b, node, table, b.tensor(ids), at)


def gather(b: Builder, node: Node) -> Value:
    """One element of each row."""
    table, ids = node.tensor("self"), node.tensor("index")
    at = node.at("dim", len(table.shape))
    others = [d for d in range(len(table.shape)) if d != at]
    if any(table.shape[d] != ids.shape[d] for d in others):
        raise b.fail("`.shard` has no counterpart of a gather of fewer rows than there are")
    return indexing.take(b, table, ids, at, {d: d for d in others}, [], node.shape)


def index_add(b: Builder, node: Node) -> Value:
    """`a.index_add(0, ids, rows)`."""
    at = node.at("dim", len(node.shape))
    rows = node.value("source")
    alpha = node.plain("alpha")
    if alpha not in (None, 1):
        rows = b.binary("*", rows, b.number(alpha, rows))
    out = [None if d == at else d for d in range(len(node.shape))]
    return _added(b, node, node.tensor("index"), rows, [at], [0], out)


def scatter_add(b: Builder, node: Node) -> Value:
    """`a.scatter_add(0, ids, b)`: each element has an id of its own."""
    ids, source = node.tensor("index"), node.tensor("src")
    at = node.at("dim", len(node.shape))
    others = [d for d in range(len(node.shape)) if d != at]
    if ids.shape != source.shape or any(ids.shape[d] != node.shape[d] for d in others):
        raise b.fail("`.shard` has no counterpart of a scatter_add of fewer rows than there are")
    out = [None if d == at else d for d in range(len(node.shape))]
    return _added(b, node, ids, source, list(range(len(node.shape))), [at], out)


def index_put(b: Builder, node: Node) -> Value:
    """`a.index_put((ids,), rows, accumulate=True)`; without it places are written, which the language cannot."""
    given = [(at, one) for at, one in enumerate(node.plain("indices")) if one is not None]
    if not node.plain("accumulate"):
        raise b.fail("`.shard` has no counterpart of `index_put`: places that are written")
    if len(given) != 1 or given[0][1].dtype == "bool":
        raise b.fail(
            "`.shard` has no counterpart of this index_put: it adds to rows along one dim by one tensor of ids"
        )
    at, ids = given[0][0], b.tensor(given[0][1])
    count = len(ids.shape)
    shape = (*node.shape[:at], *ids.shape, *node.shape[at + 1 :])
    rows = aligned(node.value("values"), len(shape))
    if isinstance(rows, Tensor):
        rows = Tensor(rows.name, rows.positions, shape, rows.dtype)
    places = list(range(at, at + count))
    out = [*range(at), None, *range(at + count, len(shape))]
    return _added(b, node, ids, rows, places, list(range(count)), out)


def embedding_gradient(b: Builder, node: Node) -> Value:
    """What `embedding` is differentiated to."""
    if node.plain("scale_grad_by_freq") or (node.plain("padding_idx") or -1) >= 0:
        raise b.fail("`.shard` has no counterpart of a gradient that is scaled, or kept from one row")
    ids, rows = node.tensor("indices"), node.tensor("grad_output")
    count = len(ids.shape)
    return indexing.scatter_add(
        b, b.tensor(rows, whole=True), ids, list(range(count)), list(range(count)), [None, count], node.shape
    )


def _added(
    b: Builder,
    node: Node,
    ids: Tensor,
    rows: Value,
    scattered: list[int],
    summed: list[int],
    out: list[int | None],
) -> Value:
    updates = b.tensor(b.cast(rows, node.dtype), whole=True)
    return b.binary("+", node.value("self"), indexing.scatter_add(b, updates, ids, scattered, summed, out, node.shape))
