"""Eight blocks of attention and a feed-forward part, written out; one weight of the sixth is split otherwise."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax.sharding import PartitionSpec as P

MESH = {"data": 2, "model": 4}
BLOCKS, BATCH, LENGTH, WIDE, HEADS, DEPTH, HIDDEN = 8, 4, 128, 512, 8, 64, 2048
WANTED = ("blocks[5]['down']", 'P("model", None)')


def block(x, p):
    q, k, v = (jnp.einsum("ble,ehd->bhld", x, p[name]) for name in ("q", "k", "v"))
    scores = jax.nn.softmax(jnp.einsum("bhld,bhsd->bhls", q, k) / 8.0, axis=-1)
    x = x + jnp.einsum("bhls,bhsd,hde->ble", scores, v, p["o"])
    return x + jax.nn.relu(x @ p["up"]) @ p["down"]


def program(x, blocks):
    for p in blocks:
        x = block(x, p)
    return x


HEAD = ((WIDE, HEADS, DEPTH), P(None, "model", None))
RIGHT = {
    "q": HEAD,
    "k": HEAD,
    "v": HEAD,
    "o": ((HEADS, DEPTH, WIDE), P("model", None, None)),
    "up": ((WIDE, HIDDEN), P(None, "model")),
    "down": ((HIDDEN, WIDE), P("model", None)),
}
WRONG = {**RIGHT, "down": ((HIDDEN, WIDE), P(None, "model"))}  # culprit
ARGUMENTS = {
    "x": ((BATCH, LENGTH, WIDE), P("data", None, None)),
    "blocks": [RIGHT] * 5 + [WRONG] + [RIGHT] * 2,
}
RESULTS = P("data", None, None)
