"""`scaled_dot_product_attention`."""

from __future__ import annotations

import math

from .._program import arithmetic, shapes
from .._program import known as tables
from .._program.builder import Builder
from .._program.lib import numpy
from .._program.products import Pairs, product
from .._program.program import Known, Tensor, Value
from .node import Node, aligned, promoted
from .reductions import softmax_of


def attention(b: Builder, node: Node) -> Value:
    """Scores, a mask, a softmax, and the sum of values. Heads that share a key are a dim of their own."""
    if node.plain("dropout_p"):
        raise b.fail("`.shard` has no counterpart of attention with dropout: export the program after `.eval()`")
    q, k, v = (node.tensor(name) for name in ("query", "key", "value"))
    rank = len(q.shape)
    groups = 1
    if node.plain("enable_gqa") and rank > 2 and q.shape[-3] != k.shape[-3]:
        groups = q.shape[-3] // k.shape[-3]
        q = shapes.reshape(b, q, (*q.shape[:-3], k.shape[-3], groups, *q.shape[-2:]))
    scale = node.plain("scale")
    scale = 1 / math.sqrt(q.shape[-1]) if scale is None else scale
    scores = _scores(b, q, k, node.dtype)
    scores = b.tensor(b.binary("*", scores, b.number(scale, scores)))
    if groups > 1:
        mask_rank = rank + 1
        weights = softmax_of(b, _masked(b, node, scores, mask_rank), mask_rank - 1)
    else:
        weights = softmax_of(b, _masked(b, node, scores, rank), rank - 1)
    made = _weighted(b, weights, v, node.dtype)
    return shapes.reshape(b, made, node.shape) if groups > 1 else made


def _scores(b: Builder, q: Tensor, k: Tensor, dtype: str) -> Tensor:
    rank, keys = len(q.shape), len(k.shape)
    batch = range(keys - 2)
    pairs = Pairs(((rank - 1,), (keys - 1,)), (batch, batch))
    made = product(b, q, k, pairs, (*q.shape[:-1], k.shape[-2]), dtype)
    return b.tensor(made)


def _weighted(b: Builder, weights: Tensor, v: Tensor, dtype: str) -> Tensor:
    rank, keys = len(weights.shape), len(v.shape)
    batch = range(keys - 2)
    pairs = Pairs(((rank - 1,), (keys - 2,)), (batch, batch))
    return b.tensor(product(b, weights, v, pairs, (*weights.shape[:-1], v.shape[-1]), dtype))


def _masked(b: Builder, node: Node, scores: Tensor, rank: int) -> Tensor:
    minus = b.number(-math.inf, scores)
    dtype = minus.dtype
    if node.plain("is_causal"):
        queries, keys = scores.shape[-2:]
        shown = tables.constant(numpy().tri(queries, keys, dtype=bool))
        return b.tensor(arithmetic.choose(b, aligned(shown, rank), scores, minus, dtype))
    if not node.has("attn_mask"):
        return scores
    mask = node.value("attn_mask")
    if rank > len(node.shape) and len(mask.shape) > 2:  # of heads: those that share a key go together
        tensor = b.tensor(mask)
        heads, parts = tensor.shape[-3], scores.shape[-4:-2]
        shape = (*tensor.shape[:-3], *((1, 1) if heads == 1 else parts), *tensor.shape[-2:])
        mask = shapes.reshape(b, tensor, shape)
    mask = aligned(mask, rank)
    if isinstance(mask, (Tensor, Known)) and mask.dtype == "bool":
        return b.tensor(arithmetic.choose(b, mask, scores, minus, dtype))
    one, other = promoted(b, [scores, mask], node.dtype, rank)
    added = arithmetic.add_mask(b, one, other)
    return b.tensor(added if added is not None else b.binary("+", one, other))
