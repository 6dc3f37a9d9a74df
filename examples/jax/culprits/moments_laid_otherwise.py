"""A step with momentum, whose momentum of one weight is split over another dim than the weight."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax.sharding import PartitionSpec as P

MESH = {"data": 2, "model": 4}
TOKENS, WIDE, HIDDEN = 512, 512, 2048
WANTED = ("speed['back']", 'P("model", None)')


def loss(p, x, y):
    return jnp.mean((jax.nn.gelu(x @ p["into"]) @ p["back"] - y) ** 2)


def program(p, speed, x, y):
    grads = jax.grad(loss)(p, x, y)
    speed = jax.tree.map(lambda s, g: 0.9 * s + g, speed, grads)
    return jax.tree.map(lambda w, s: w - 0.1 * s, p, speed), speed


INTO, BACK = (WIDE, HIDDEN), (HIDDEN, WIDE)
ARGUMENTS = {
    "p": {"into": (INTO, P(None, "model")), "back": (BACK, P("model", None))},
    "speed": {"into": (INTO, P(None, "model")), "back": (BACK, P(None, "model"))},  # culprit
    "x": ((TOKENS, WIDE), P("data", None)),
    "y": ((TOKENS, WIDE), P("data", None)),
}
RIGHT = {"into": P(None, "model"), "back": P("model", None)}
RESULTS = (RIGHT, RIGHT)
