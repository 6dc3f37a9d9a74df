"""Sixteen gated blocks in a scan, whose last weights are split over their columns."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax.sharding import PartitionSpec as P

MESH = {"data": 2, "model": 4}
BLOCKS, TOKENS, WIDE, HIDDEN = 16, 512, 512, 2048
WANTED = ("p['w2']", 'P(None, "model", None)')


def program(x, p):
    def block(x, p):
        y = x * jax.lax.rsqrt(jnp.mean(x * x, axis=-1, keepdims=True) + 1e-6)
        return x + (jax.nn.silu(y @ p["w1"]) * (y @ p["w3"])) @ p["w2"], None

    return jax.lax.scan(block, x, p)[0]


ARGUMENTS = {
    "x": ((TOKENS, WIDE), P("data", None)),
    "p": {
        "w1": ((BLOCKS, WIDE, HIDDEN), P(None, None, "model")),
        "w3": ((BLOCKS, WIDE, HIDDEN), P(None, None, "model")),
        "w2": ((BLOCKS, HIDDEN, WIDE), P(None, None, "model")),  # culprit
    },
}
RESULTS = P("data", None)
