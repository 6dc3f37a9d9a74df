"""Thirty-two blocks in a scan, one stack of whose weights is split along the layers."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax.sharding import PartitionSpec as P

MESH = {"data": 2, "model": 4}
BLOCKS, TOKENS, WIDE, HIDDEN = 32, 512, 256, 1024
WANTED = ("up", 'P(None, None, "model")')


def program(x, up, down):
    def block(x, turn):
        return x + jnp.tanh(x @ turn[0]) @ turn[1], None

    return jax.lax.scan(block, x, (up, down))[0]


ARGUMENTS = {
    "x": ((TOKENS, WIDE), P("data", None)),
    "up": ((BLOCKS, WIDE, HIDDEN), P("model", None, None)),  # culprit
    "down": ((BLOCKS, HIDDEN, WIDE), P(None, "model", None)),
}
RESULTS = P("data", None)
