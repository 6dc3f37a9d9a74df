"""A step of training: the loss of a small language model, its gradients, and Adam."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax.sharding import PartitionSpec as P

MESH = {"data": 4, "model": 2}
BATCH, LENGTH, EMBED, HIDDEN, WORDS = 16, 128, 512, 2048, 4096
RATE, FIRST, SECOND = 1e-3, 0.9, 0.99


def loss(p, ids):
    x = p["table"][ids]
    h = jax.nn.gelu(jnp.einsum("ble,ef->blf", x, p["up"]))
    x = x + jnp.einsum("blf,fe->ble", h, p["down"])
    logits = jnp.einsum("ble,ev->blv", x, p["head"])[:, :-1]
    wanted = jnp.take_along_axis(jax.nn.log_softmax(logits), ids[:, 1:, None], axis=-1)
    return -jnp.mean(wanted)


def training(p, mean, square, ids, count):
    value, grads = jax.value_and_grad(loss)(p, ids)
    count = count + 1
    mean = jax.tree.map(lambda m, g: FIRST * m + (1 - FIRST) * g, mean, grads)
    square = jax.tree.map(lambda s, g: SECOND * s + (1 - SECOND) * g * g, square, grads)

    def moved(w, m, s):
        return w - RATE * (m / (1 - FIRST**count)) / (jnp.sqrt(s / (1 - SECOND**count)) + 1e-8)

    p = jax.tree.map(moved, p, mean, square)
    return p, mean, square, value, count


def shapes(b=BATCH, l=LENGTH, e=EMBED, f=HIDDEN, v=WORDS, dtype=jnp.float32):
    sizes = {"table": (v, e), "up": (e, f), "down": (f, e), "head": (e, v)}
    weights = {name: jax.ShapeDtypeStruct(size, dtype) for name, size in sizes.items()}
    ids = jax.ShapeDtypeStruct((b, l), jnp.int32)
    return weights, weights, weights, ids, jax.ShapeDtypeStruct((), jnp.int32)


def result_specs(edited=False):
    weights = dict.fromkeys(["table", "up", "down", "head"], P())
    if edited:
        weights = specs()[0]
    return weights, weights, weights, P(), P()


def specs():
    weights = {
        "table": P("model", None),
        "up": P(None, "model"),
        "down": P("model", None),
        "head": P(None, "model"),
    }
    return weights, weights, weights, P("data", None), P()


function = training
