"""A weight with an adapter of low rank, whose second factor is split otherwise than the weight."""

from __future__ import annotations

import jax.numpy as jnp
from jax.sharding import PartitionSpec as P

MESH = {"data": 2, "model": 4}
TOKENS, WIDE, RANK = 2048, 1024, 64
WANTED = ("lift", 'P(None, "model")')


def program(x, frozen, drop, lift):
    return jnp.tanh(x @ frozen + (x @ drop) @ lift)


ARGUMENTS = {
    "x": ((TOKENS, WIDE), P("data", None)),
    "frozen": ((WIDE, WIDE), P(None, "model")),
    "drop": ((WIDE, RANK), P(None, None)),
    "lift": ((RANK, WIDE), P("model", None)),  # culprit
}
RESULTS = P("data", "model")
