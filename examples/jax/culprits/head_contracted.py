"""A language model's head that is split over the dim that it contracts: logits are added up whole."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax.sharding import PartitionSpec as P

MESH = {"data": 2, "model": 4}
BATCH, LENGTH, WIDE, WORDS = 4, 128, 512, 8192
WANTED = ("head", 'P(None, "model")')


def program(states, scale, head):
    mean = jnp.mean(states * states, axis=-1, keepdims=True)
    logits = (states * jax.lax.rsqrt(mean + 1e-6) * scale) @ head
    return jax.nn.softmax(logits, axis=-1)


ARGUMENTS = {
    "states": ((BATCH, LENGTH, WIDE), P("data", None, None)),
    "scale": ((WIDE,), P(None)),
    "head": ((WIDE, WORDS), P("model", None)),  # culprit
}
RESULTS = P("data", None, "model")
