"""A step of training of two blocks with attention; one output weight is split over its columns."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax.sharding import PartitionSpec as P

MESH = {"data": 2, "model": 4}
BATCH, LENGTH, WIDE, HEADS, DEPTH, HIDDEN = 8, 128, 512, 8, 64, 2048
WANTED = ("p[1]['o']", 'P("model", None, None)')


def block(x, p):
    q, k, v = (jnp.einsum("ble,ehd->bhld", x, p[name]) for name in ("q", "k", "v"))
    scores = jax.nn.softmax(jnp.einsum("bhld,bhsd->bhls", q, k) / 8.0, axis=-1)
    mixed = jnp.einsum("bhls,bhsd->bhld", scores, v)
    x = x + jnp.einsum("bhld,hde->ble", mixed, p["o"])
    return x + jax.nn.relu(x @ p["up"]) @ p["down"]


def loss(p, x, y):
    for one in p:
        x = block(x, one)
    return jnp.mean((x - y) ** 2)


def program(p, x, y):
    value, grads = jax.value_and_grad(loss)(p, x, y)
    return value, jax.tree.map(lambda w, g: w - 1e-3 * g, p, grads)


def weights(out):
    head = ((WIDE, HEADS, DEPTH), P(None, "model", None))
    return {
        "q": head,
        "k": head,
        "v": head,
        "o": ((HEADS, DEPTH, WIDE), out),
        "up": ((WIDE, HIDDEN), P(None, "model")),
        "down": ((HIDDEN, WIDE), P("model", None)),
    }


GOOD = weights(P("model", None, None))
POOR = weights(P(None, None, "model"))  # culprit
ARGUMENTS = {
    "p": [GOOD, POOR],
    "x": ((BATCH, LENGTH, WIDE), P("data", None, None)),
    "y": ((BATCH, LENGTH, WIDE), P("data", None, None)),
}
RESULTS = (P(), [{name: spec for name, (_, spec) in part.items()} for part in (GOOD, POOR)])
