"""Attention to the states of an encoder, whose values are split over the dim of a head."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax.sharding import PartitionSpec as P

MESH = {"data": 2, "model": 4}
BATCH, LENGTH, SOURCE, WIDE, HEADS, DEPTH = 4, 128, 512, 512, 8, 64
WANTED = ("w['value']", 'P(None, "model", None)')


def program(target, memory, w):
    q = jnp.einsum("ble,ehd->bhld", target, w["query"])
    k = jnp.einsum("bse,ehd->bhsd", memory, w["key"])
    v = jnp.einsum("bse,ehd->bhsd", memory, w["value"])
    scores = jax.nn.softmax(jnp.einsum("bhld,bhsd->bhls", q, k) / 8.0, axis=-1)
    mixed = jnp.einsum("bhls,bhsd->bhld", scores, v)
    return target + jnp.einsum("bhld,hde->ble", mixed, w["out"])


ARGUMENTS = {
    "target": ((BATCH, LENGTH, WIDE), P("data", None, None)),
    "memory": ((BATCH, SOURCE, WIDE), P("data", None, None)),
    "w": {
        "query": ((WIDE, HEADS, DEPTH), P(None, "model", None)),
        "key": ((WIDE, HEADS, DEPTH), P(None, "model", None)),
        "value": ((WIDE, HEADS, DEPTH), P(None, None, "model")),  # culprit
        "out": ((HEADS, DEPTH, WIDE), P("model", None, None)),
    },
}
RESULTS = P("data", None, None)
