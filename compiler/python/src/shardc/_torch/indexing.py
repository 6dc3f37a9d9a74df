"""Rows of tables."""

from __future__ import annotations

from .._program import indexing
from .._program import known as tables
from .._program.builder import Builder
from .._program.program import Known, Tensor, Value
from .node import Node
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
