"""A step of decoding whose cache of keys is split over the dim of a head, and all else over heads."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax.sharding import PartitionSpec as P

MESH = {"data": 2, "model": 4}
BATCH, LENGTH, WIDE, HEADS, DEPTH = 16, 1024, 1024, 16, 64
WANTED = ("past_k", 'P("data", "model", None, None)')


def program(x, wq, past_k, past_v, wo):
    q = jnp.einsum("be,ehd->bhd", x, wq)
    scores = jax.nn.softmax(jnp.einsum("bhd,bhsd->bhs", q, past_k) / 8.0, axis=-1)
    return jnp.einsum("bhd,hde->be", jnp.einsum("bhs,bhsd->bhd", scores, past_v), wo)


ARGUMENTS = {
    "x": ((BATCH, WIDE), P("data", None)),
    "wq": ((WIDE, HEADS, DEPTH), P(None, "model", None)),
    "past_k": ((BATCH, HEADS, LENGTH, DEPTH), P("data", None, None, "model")),  # culprit
    "past_v": ((BATCH, HEADS, LENGTH, DEPTH), P("data", "model", None, None)),
    "wo": ((HEADS, DEPTH, WIDE), P("model", None, None)),
}
RESULTS = P("data", None)
