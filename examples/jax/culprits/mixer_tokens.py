"""A block that mixes tokens and then channels, all along one axis; one weight of the first is transposed in its spec."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax.sharding import PartitionSpec as P

MESH = {"cores": 8}
BATCH, PATCHES, CHANNELS, HIDDEN = 2, 256, 512, 2048
WANTED = ("p['t2']", 'P("cores", None)')


def program(x, p):
    y = jax.nn.gelu(jnp.einsum("bnc,nm->bmc", x, p["t1"]))
    x = x + jnp.einsum("bmc,mn->bnc", y, p["t2"])
    return x + jax.nn.gelu(x @ p["c1"]) @ p["c2"]


ARGUMENTS = {
    "x": ((BATCH, PATCHES, CHANNELS), P(None, None, None)),
    "p": {
        "t1": ((PATCHES, HIDDEN), P(None, "cores")),
        "t2": ((HIDDEN, PATCHES), P(None, "cores")),  # culprit
        "c1": ((CHANNELS, HIDDEN), P(None, "cores")),
        "c2": ((HIDDEN, CHANNELS), P("cores", None)),
    },
}
RESULTS = P(None, None, None)
