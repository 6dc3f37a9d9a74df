"""Attention whose output weight is split over its columns, though heads are split."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax.sharding import PartitionSpec as P

MESH = {"data": 2, "model": 4}
BATCH, LENGTH, WIDE, HEADS, DEPTH = 4, 256, 512, 32, 64
WANTED = ("wo", 'P("model", None, None)')


def program(resid, wq, wk, wv, wo):
    q, k, v = (jnp.einsum("ble,ehd->bhld", resid, w) for w in (wq, wk, wv))
    scores = jnp.einsum("bhld,bhsd->bhls", q, k) * DEPTH**-0.5
    mixed = jnp.einsum("bhls,bhsd->bhld", jax.nn.softmax(scores, axis=-1), v)
    return jnp.einsum("bhld,hde->ble", mixed, wo)


ARGUMENTS = {
    "resid": ((BATCH, LENGTH, WIDE), P("data", None, None)),
    "wq": ((WIDE, HEADS, DEPTH), P(None, "model", None)),
    "wk": ((WIDE, HEADS, DEPTH), P(None, "model", None)),
    "wv": ((WIDE, HEADS, DEPTH), P(None, "model", None)),
    "wo": ((HEADS, DEPTH, WIDE), P(None, None, "model")),  # culprit
}
RESULTS = P("data", None, None)
