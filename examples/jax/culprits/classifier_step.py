"""A step of a classifier with cross entropy and Adam, one of whose weights is split over what it contracts."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax.sharding import PartitionSpec as P

MESH = {"data": 4, "model": 2}
ROWS, WIDE, HIDDEN, CLASSES = 2048, 512, 2048, 1024
WANTED = ("p['enc']", 'P(None, "model")')


def loss(p, x, wanted):
    logits = jax.nn.relu(x @ p["enc"]) @ p["cls"]
    return -jnp.mean(jnp.sum(wanted * jax.nn.log_softmax(logits, axis=-1), axis=-1))


def program(p, m, v, x, wanted):
    grads = jax.grad(loss)(p, x, wanted)
    m = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, m, grads)
    v = jax.tree.map(lambda v, g: 0.99 * v + 0.01 * g * g, v, grads)
    p = jax.tree.map(lambda w, m, v: w - 1e-3 * m / (jnp.sqrt(v) + 1e-8), p, m, v)
    return p, m, v


WEIGHTS = {
    "enc": ((WIDE, HIDDEN), P("model", None)),  # culprit
    "cls": ((HIDDEN, CLASSES), P("model", None)),
}
ARGUMENTS = {
    "p": WEIGHTS,
    "m": WEIGHTS,
    "v": WEIGHTS,
    "x": ((ROWS, WIDE), P("data", None)),
    "wanted": ((ROWS, CLASSES), P("data", None)),
}
KEPT = {name: spec for name, (_, spec) in WEIGHTS.items()}
RESULTS = (KEPT, KEPT, KEPT)
