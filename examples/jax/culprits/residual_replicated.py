"""Four blocks; between them the residual is asked for whole on every device."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax.sharding import PartitionSpec as P

MESH = {"data": 8}
BLOCKS, TOKENS, WIDE, HIDDEN = 4, 4096, 256, 512
WANTED = ("the value here", 'P("data", None)')


def program(x, blocks):
    for number, (up, down) in enumerate(blocks):
        x = x + jnp.tanh(x @ up) @ down
        if number == 1:
            x = jax.lax.with_sharding_constraint(x, P(None, None))  # culprit
    return x


ARGUMENTS = {
    "x": ((TOKENS, WIDE), P("data", None)),
    "blocks": [(((WIDE, HIDDEN), P(None, None)), ((HIDDEN, WIDE), P(None, None)))] * BLOCKS,
}
RESULTS = P("data", None)
