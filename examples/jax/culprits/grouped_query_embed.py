"""Grouped queries whose weight is split over the dim that it contracts."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax.sharding import PartitionSpec as P

MESH = {"replica": 2, "tensor": 4}
BATCH, LENGTH, WIDE, GROUPS, EACH, DEPTH = 4, 256, 1024, 4, 4, 64
WANTED = ("p['q']", 'P(None, "tensor", None, None)')


def program(x, p):
    q = jnp.einsum("ble,ekgd->bkgld", x, p["q"])
    k = jnp.einsum("ble,ekd->bkld", x, p["k"])
    v = jnp.einsum("ble,ekd->bkld", x, p["v"])
    scores = jax.nn.softmax(jnp.einsum("bkgld,bksd->bkgls", q, k) / 8.0, axis=-1)
    return jnp.einsum("bkgls,bksd,kgde->ble", scores, v, p["o"])


ARGUMENTS = {
    "x": ((BATCH, LENGTH, WIDE), P("replica", None, None)),
    "p": {
        "q": ((WIDE, GROUPS, EACH, DEPTH), P("tensor", None, None, None)),  # culprit
        "k": ((WIDE, GROUPS, DEPTH), P(None, "tensor", None)),
        "v": ((WIDE, GROUPS, DEPTH), P(None, "tensor", None)),
        "o": ((GROUPS, EACH, DEPTH, WIDE), P("tensor", None, None, None)),
    },
}
RESULTS = P("replica", None, None)
