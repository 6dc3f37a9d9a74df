"""A constraint that forgets the axis of the batch: all of the batch is gathered."""

from __future__ import annotations

import jax
from jax.sharding import PartitionSpec as P

MESH = {"data": 4, "model": 2}
BATCH, LENGTH, WIDE, HIDDEN = 16, 128, 512, 2048
WANTED = ("the value here", 'P("data", None, "model")')


def program(x, up, down):
    h = jax.nn.gelu(x @ up)
    h = jax.lax.with_sharding_constraint(h, P(None, None, "model"))  # culprit
    return x + h @ down


ARGUMENTS = {
    "x": ((BATCH, LENGTH, WIDE), P("data", None, None)),
    "up": ((WIDE, HIDDEN), P(None, "model")),
    "down": ((HIDDEN, WIDE), P("model", None)),
}
RESULTS = P("data", None, None)
