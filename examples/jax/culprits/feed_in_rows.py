"""A feed-forward part whose first weight is split over the dim that it contracts."""

from __future__ import annotations

import jax.numpy as jnp
from jax.sharding import PartitionSpec as P

MESH = {"data": 2, "model": 4}
TOKENS, WIDE, HIDDEN = 1024, 1024, 4096
WANTED = ("widen", 'P(None, "model")')


def program(tokens, widen, narrow):
    return jnp.tanh(tokens @ widen) @ narrow


ARGUMENTS = {
    "tokens": ((TOKENS, WIDE), P("data", None)),
    "widen": ((WIDE, HIDDEN), P("model", None)),  # culprit
    "narrow": ((HIDDEN, WIDE), P("model", None)),
}
RESULTS = P("data", None)
