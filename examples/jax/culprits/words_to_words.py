"""Words from a table, a block, and logits; the last weight is split over the dim that it contracts."""

from __future__ import annotations

import jax
from jax.sharding import PartitionSpec as P

MESH = {"data": 2, "model": 4}
BATCH, LENGTH, WORDS, WIDE, HIDDEN = 8, 256, 4096, 512, 2048
WANTED = ("unembed", 'P(None, "model")')


def program(ids, embed, up, down, unembed):
    x = embed[ids]
    x = x + jax.nn.gelu(x @ up) @ down
    return x @ unembed


ARGUMENTS = {
    "ids": ((BATCH, LENGTH), P("data", None)),
    "embed": ((WORDS, WIDE), P(None, None)),
    "up": ((WIDE, HIDDEN), P(None, "model")),
    "down": ((HIDDEN, WIDE), P("model", None)),
    "unembed": ((WIDE, WORDS), P("model", None)),  # culprit
}
RESULTS = P("data", None, "model")
