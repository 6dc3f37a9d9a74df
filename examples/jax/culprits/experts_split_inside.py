"""Experts of which each device has a part, though tokens come sorted by expert."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax.sharding import PartitionSpec as P

MESH = {"data": 2, "expert": 4}
EXPERTS, PLACES, WIDE, HIDDEN = 8, 512, 512, 2048
WANTED = ("p['into']", 'P("expert", None, None)')


def program(sorted_tokens, p):
    hidden = jax.nn.relu(jnp.einsum("xce,xef->xcf", sorted_tokens, p["into"]))
    return jnp.einsum("xcf,xfe->xce", hidden, p["back"])


ARGUMENTS = {
    "sorted_tokens": ((EXPERTS, PLACES, WIDE), P("expert", "data", None)),
    "p": {
        "into": ((EXPERTS, WIDE, HIDDEN), P(None, None, "expert")),  # culprit
        "back": ((EXPERTS, HIDDEN, WIDE), P("expert", None, None)),
    },
}
RESULTS = P("expert", "data", None)
