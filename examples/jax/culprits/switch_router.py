"""A switch of one expert for each token, whose tokens are dispatched by a product; one weight is split inside."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax.sharding import PartitionSpec as P

MESH = {"data": 2, "expert": 4}
GROUPS, TOKENS, WIDE, HIDDEN, EXPERTS, PLACES = 8, 128, 512, 2048, 8, 24
WANTED = ("shrink", 'P("expert", None, None)')


def program(batch, router, grow, shrink):
    gates = jax.nn.softmax(jnp.einsum("gte,ex->gtx", batch, router), axis=-1)
    chosen = jax.nn.one_hot(jnp.argmax(gates, axis=-1), EXPERTS)
    place = ((jnp.cumsum(chosen, axis=1) - 1) * chosen).sum(axis=-1).astype(jnp.int32)
    sent = (chosen[..., None] * jax.nn.one_hot(place, PLACES)[..., None, :]).astype(batch.dtype)
    there = jnp.einsum("gtxc,gte->xgce", sent, batch)
    hidden = jax.nn.relu(jnp.einsum("xgce,xef->xgcf", there, grow))
    back = jnp.einsum("xgcf,xfe->xgce", hidden, shrink)
    return jnp.einsum("gtxc,xgce->gte", sent, back)


ARGUMENTS = {
    "batch": ((GROUPS, TOKENS, WIDE), P("data", None, None)),
    "router": ((WIDE, EXPERTS), P(None, None)),
    "grow": ((EXPERTS, WIDE, HIDDEN), P("expert", None, None)),
    "shrink": ((EXPERTS, HIDDEN, WIDE), P(None, "expert", None)),  # culprit
}
RESULTS = P("data", None, None)
