"""A decoder layer in the style of MaxText: grouped heads, rotary positions, a gated feed-forward part, bfloat16."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax.sharding import PartitionSpec as P

MESH = {"data": 2, "model": 4}
BATCH, LENGTH, EMBED, HEADS, KV_HEADS, HEAD, HIDDEN = 8, 512, 1024, 16, 4, 64, 4096


def rms_norm(x, scale):
    y = x.astype(jnp.float32)
    y = y * jax.lax.rsqrt(jnp.mean(jnp.square(y), axis=-1, keepdims=True) + 1e-6)
    return y.astype(x.dtype) * scale


def rotary(x):
    half = x.shape[-1] // 2
    angles = jnp.arange(x.shape[1])[:, None] * 10000.0 ** (-jnp.arange(half) / half)
    sin, cos = (table(angles)[None, :, None, :].astype(x.dtype) for table in (jnp.sin, jnp.cos))
    left, right = jnp.split(x, 2, axis=-1)
    return jnp.concatenate([left * cos - right * sin, right * cos + left * sin], axis=-1)


def attention(x, p):
    q = rotary(jnp.einsum("ble,ehd->blhd", x, p["query"]))
    k = rotary(jnp.einsum("bse,ekd->bskd", x, p["key"]))
    v = jnp.einsum("bse,ekd->bskd", x, p["value"])
    q = q.reshape(*q.shape[:2], k.shape[2], -1, q.shape[3])
    scores = jnp.einsum("blkgd,bskd->bkgls", q, k) * q.shape[-1] ** -0.5
    seen = jnp.tril(jnp.ones((x.shape[1], x.shape[1]), bool))
    weights = jax.nn.softmax(jnp.where(seen, scores, jnp.finfo(scores.dtype).min), axis=-1)
    heads = jnp.einsum("bkgls,bskd->blkgd", weights, v)
    heads = heads.reshape(*heads.shape[:2], -1, heads.shape[4])
    return jnp.einsum("blhd,hde->ble", heads, p["out"])


def decoder(x, p):
    x = x + attention(rms_norm(x, p["norm_1"]), p)
    y = rms_norm(x, p["norm_2"])
    gate = jnp.einsum("ble,ef->blf", y, p["gate"])
    up = jnp.einsum("ble,ef->blf", y, p["up"])
    return x + jnp.einsum("blf,fe->ble", jax.nn.silu(gate) * up, p["down"])


def shapes(b=BATCH, l=LENGTH, e=EMBED, h=HEADS, k=KV_HEADS, d=HEAD, f=HIDDEN, dtype=jnp.bfloat16):
    weights = {
        "norm_1": (e,),
        "query": (e, h, d),
        "key": (e, k, d),
        "value": (e, k, d),
        "out": (h, d, e),
        "norm_2": (e,),
        "gate": (e, f),
        "up": (e, f),
        "down": (f, e),
    }
    return jax.tree.map(lambda n: jax.ShapeDtypeStruct(n, dtype), ((b, l, e), weights), is_leaf=is_shape)


def is_shape(node):
    return isinstance(node, tuple) and all(isinstance(n, int) for n in node)


def specs(edited=False):
    weights = {
        "norm_1": P(),
        "query": P(None, "model", None),
        "key": P(None, "model", None),
        "value": P(None, "model", None),
        "out": P("model", None, None),
        "norm_2": P(),
        "gate": P(None, "model"),
        "up": P(None, "model"),
        "down": P(None, "model"),
    }
    if edited:
        weights["down"] = P("model", None)
    return P("data", None, None), weights


def result_specs(edited=False):
    return specs(edited)[0]


function = decoder
