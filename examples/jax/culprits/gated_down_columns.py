"""A gated feed-forward part whose last weight is split over its columns."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax.sharding import PartitionSpec as P

MESH = {"data": 2, "model": 4}
TOKENS, WIDE, HIDDEN = 1024, 1024, 4096
WANTED = ("third", 'P("model", None)')


def program(acts, first, second, third):
    gate = jax.nn.silu(jnp.einsum("te,ef->tf", acts, first))
    return acts + jnp.einsum("tf,fe->te", gate * jnp.einsum("te,ef->tf", acts, second), third)


ARGUMENTS = {
    "acts": ((TOKENS, WIDE), P("data", None)),
    "first": ((WIDE, HIDDEN), P(None, "model")),
    "second": ((WIDE, HIDDEN), P(None, "model")),
    "third": ((HIDDEN, WIDE), P(None, "model")),  # culprit
}
RESULTS = P("data", None)
