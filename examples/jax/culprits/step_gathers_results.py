"""A step of plain descent whose new weights are asked for whole."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax.sharding import PartitionSpec as P

MESH = {"model": 8}
TOKENS, WIDE, HIDDEN = 256, 512, 2048
WANTED = ("out_shardings of result 0, 1", "as the arguments: ")


def loss(p, x, y):
    return jnp.mean((jax.nn.relu(x @ p["a"]) @ p["b"] - y) ** 2)


def program(p, x, y):
    return jax.tree.map(lambda w, g: w - 0.1 * g, p, jax.grad(loss)(p, x, y))


ARGUMENTS = {
    "p": {"a": ((WIDE, HIDDEN), P(None, "model")), "b": ((HIDDEN, WIDE), P("model", None))},
    "x": ((TOKENS, WIDE), P(None, None)),
    "y": ((TOKENS, WIDE), P(None, None)),
}
RESULTS = {"a": P(), "b": P()}  # culprit
