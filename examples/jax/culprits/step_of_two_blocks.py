"""A step of training of two gated blocks; the last weight of the second is split over its columns."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax.sharding import PartitionSpec as P

MESH = {"model": 8}
TOKENS, WIDE, HIDDEN = 512, 512, 4096
WANTED = ("p[1]['down']", 'P("model", None)')


def block(x, p):
    y = x * jax.lax.rsqrt(jnp.mean(x * x, axis=-1, keepdims=True) + 1e-6)
    return x + (jax.nn.silu(y @ p["gate"]) * (y @ p["up"])) @ p["down"]


def loss(p, x, y):
    for one in p:
        x = block(x, one)
    return jnp.mean((x - y) ** 2)


def program(p, x, y):
    value, grads = jax.value_and_grad(loss)(p, x, y)
    return value, jax.tree.map(lambda w, g: w - 1e-3 * g, p, grads)


def weights(down):
    return {
        "gate": ((WIDE, HIDDEN), P(None, "model")),
        "up": ((WIDE, HIDDEN), P(None, "model")),
        "down": ((HIDDEN, WIDE), down),
    }


FIRST = weights(down=P("model", None))
SECOND = weights(down=P(None, "model"))  # culprit
ARGUMENTS = {
    "p": [FIRST, SECOND],
    "x": ((TOKENS, WIDE), P(None, None)),
    "y": ((TOKENS, WIDE), P(None, None)),
}
RESULTS = (P(), [{name: spec for name, (_, spec) in part.items()} for part in (FIRST, SECOND)])
