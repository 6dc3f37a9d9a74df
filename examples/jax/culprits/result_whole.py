"""A feed-forward part whose result is asked for whole, though its batch comes split."""

from __future__ import annotations

import jax
from jax.sharding import PartitionSpec as P

MESH = {"data": 4, "model": 2}
BATCH, LENGTH, WIDE, HIDDEN = 16, 256, 512, 1024
WANTED = ("out_shardings of result 0", 'as the arguments: P("data", None, None)')


def program(x, grow, shrink):
    return x + jax.nn.silu(x @ grow) @ shrink


ARGUMENTS = {
    "x": ((BATCH, LENGTH, WIDE), P("data", None, None)),
    "grow": ((WIDE, HIDDEN), P(None, "model")),
    "shrink": ((HIDDEN, WIDE), P("model", None)),
}
RESULTS = P(None, None, None)  # culprit
