"""Programs that were written without a thought of `to_shard`, in the ways that people write them."""

# As their users write them, without types.
# mypy: ignore-errors

from __future__ import annotations

import pytest

import shardc

jax = pytest.importorskip("jax", reason="JAX is not installed: to_shard is not tested on programs")
jnp, lax, P = jax.numpy, jax.lax, jax.sharding.PartitionSpec

progs = {}


def prog(make):
    progs[make.__name__] = make
    return make


def R(*shape, seed=0):
    return jax.random.normal(jax.random.key(seed), shape) * 0.3


@prog
def vit():
    def f(images, p):
        b, h, w, c = images.shape
        x = images.reshape(b, h // 4, 4, w // 4, 4, c).transpose(0, 1, 3, 2, 4, 5).reshape(b, -1, 4 * 4 * c)
        x = x @ p["embed"] + p["pos"]
        x = jnp.concatenate([jnp.broadcast_to(p["cls"], (b, 1, x.shape[-1])), x], axis=1)
        m = x.mean(-1, keepdims=True)
        v = x.var(-1, keepdims=True)
        x = (x - m) / jnp.sqrt(v + 1e-5) * p["g"]
        return jax.nn.log_softmax(x[:, 0] @ p["head"])

    p = {"embed": R(48, 16), "pos": R(4, 16), "cls": R(1, 1, 16), "g": R(16), "head": R(16, 8)}
    return (
        f,
        (R(4, 8, 8, 3), p),
        (P("data"), {"embed": P(None, "model"), "pos": P(), "cls": P(), "g": P(), "head": P(None, "model")}),
    )


@prog
def gpt_fused():
    def block(x, wqkv, wo):
        q, k, v = jnp.split(x @ wqkv, 3, axis=-1)
        heads = lambda a: a.reshape(a.shape[0], 4, -1).swapaxes(0, 1)
        q, k, v = map(heads, (q, k, v))
        s = q @ k.swapaxes(-1, -2) / jnp.sqrt(k.shape[-1])
        s = jnp.where(jnp.tril(jnp.ones(s.shape[-2:])) == 0, -jnp.inf, s)
        o = (jax.nn.softmax(s, -1) @ v).swapaxes(0, 1).reshape(x.shape)
        return x + o @ wo

    def f(x, wqkv, wo):
        return jax.vmap(block, in_axes=(0, None, None))(x, wqkv, wo)

    return f, (R(4, 8, 16), R(16, 48), R(16, 16)), (P("data"), P(None, "model"), P("model"))


@prog
def cross_attention_padded():
    def f(x, mem, mask, wq, wkv):
        q = jnp.einsum("btd,dhk->bthk", x, wq)
        kv = jnp.einsum("bsd,dchk->cbshk", mem, wkv)
        k, v = kv[0], kv[1]
        s = jnp.einsum("bthk,bshk->bhts", q, k)
        s = jnp.where(mask[:, None, None, :], s, -1e9)
        return jnp.einsum("bhts,bshk->bthk", jax.nn.softmax(s), v)

    mask = jnp.arange(6)[None] < jnp.array([3, 6, 5, 2])[:, None]
    return (
        f,
        (R(4, 8, 16), R(4, 6, 16, seed=1), mask, R(16, 4, 8), R(16, 2, 4, 8)),
        (P("data"), P("data"), P("data"), P(None, "model"), P(None, None, "model")),
    )


@prog
def gru():
    def f(xs, h, wx, wh):
        def step(h, x):
            g = jax.nn.sigmoid(x @ wx[0] + h @ wh[0])
            c = jnp.tanh(x @ wx[1] + h @ wh[1])
            h = (1 - g) * h + g * c
            return h, h

        h, hs = lax.scan(step, h, xs)
        return h, hs.sum(0)

    return (
        f,
        (R(4, 8, 16), R(8, 16), R(2, 16, 16), R(2, 16, 16, seed=3)),
        (P(None, "data"), P("data"), P(None, None, "model"), P(None, None, "model")),
    )


@prog
def lora():
    def loss(ab, w, x, y):
        h = x @ (w + ab["a"] @ ab["b"])
        return jnp.square(h - y).sum(-1).mean()

    def f(ab, w, x, y):
        l, g = jax.value_and_grad(loss)(ab, w, x, y)
        return l, g

    ab = {"a": R(16, 4), "b": R(4, 32)}
    return (
        f,
        (ab, R(16, 32), R(8, 16), R(8, 32)),
        ({"a": P(), "b": P(None, "model")}, P(None, "model"), P("data"), P("data")),
    )


@prog
def grad_accum():
    def loss(p, x, y):
        return jnp.mean((jnp.tanh(x @ p["a"]) @ p["b"] - y) ** 2)

    def f(p, xs, ys):
        def micro(acc, xy):
            l, g = jax.value_and_grad(loss)(p, *xy)
            return jax.tree.map(jnp.add, acc, (l, g)), None

        zero = (jnp.zeros(()), jax.tree.map(jnp.zeros_like, p))
        (l, g), _ = lax.scan(micro, zero, (xs, ys))
        norm = jnp.sqrt(sum(jnp.sum(a * a) for a in jax.tree.leaves(g)))
        scale = jnp.minimum(1.0, 0.1 / (norm + 1e-6))
        return l, jax.tree.map(lambda w, a: w * (1 - 1e-3) - 0.1 * a * scale, p, g)

    p = {"a": R(16, 32), "b": R(32, 8)}
    return f, (p, R(3, 8, 16), R(3, 8, 8)), ({"a": P(None, "model"), "b": P("model")}, P(None, "data"), P(None, "data"))


@prog
def dpa():
    def f(q, k, v):
        return jax.nn.dot_product_attention(q, k, v, is_causal=True)

    return (
        f,
        (R(4, 8, 4, 8), R(4, 8, 2, 8), R(4, 8, 2, 8, seed=2)),
        (P("data", None, "model"), P("data", None, "model"), P("data", None, "model")),
    )


@prog
def clip():
    def f(a, b, w, t):
        a = a @ w
        b = b @ w
        a = a / jnp.linalg.norm(a, axis=-1, keepdims=True)
        b = b / jnp.linalg.norm(b, axis=-1, keepdims=True)
        z = a @ b.T * jnp.exp(t)
        lse = jax.scipy.special.logsumexp(z, axis=1)
        return (lse - jnp.diagonal(z)).mean()

    return (
        f,
        (R(8, 16), R(8, 16, seed=1), R(16, 16, seed=2), jnp.float32(0.2)),
        (P("data"), P("data"), P(None, "model"), P()),
    )


@prog
def fori():
    def f(x, ws):
        def body(i, x):
            return x + jnp.tanh(x @ ws[i])

        return lax.fori_loop(0, 3, body, x)

    return f, (R(8, 16), R(3, 16, 16)), (P("data"), P(None, None, "model"))


@prog
def seg():
    def f(x, ids, w):
        s = jax.ops.segment_sum(x @ w, ids, num_segments=4)
        n = jax.ops.segment_sum(jnp.ones(ids.shape), ids, num_segments=4)
        return s / jnp.maximum(n, 1)[:, None]

    return f, (R(16, 8), jnp.arange(16) % 4, R(8, 8)), (P("data"), P("data"), P(None, "model"))


@prog
def dropout():
    def f(x, w, key):
        h = x @ w
        keep = jax.random.bernoulli(key, 0.9, h.shape)
        return jnp.where(keep, h / 0.9, 0)

    return f, (R(8, 16), R(16, 16), jax.random.PRNGKey(3)), (P("data"), P(None, "model"), None)


@prog
def alibi_softcap():
    def f(q, k, v):
        s = jnp.einsum("bqhd,bkhd->bhqk", q, k)
        s = 30 * jnp.tanh(s / 30)
        slopes = 2.0 ** (-jnp.arange(1, 5))
        s = s + slopes[:, None, None] * (jnp.arange(8)[None, :] - jnp.arange(8)[:, None])
        s = jnp.where(jnp.triu(jnp.ones((8, 8), bool), 1), jnp.finfo(jnp.float32).min, s)
        p = jnp.exp(s - lax.stop_gradient(s.max(-1, keepdims=True)))
        p = p / p.sum(-1, keepdims=True)
        return jnp.einsum("bhqk,bkhd->bqhd", p, v)

    return f, (R(4, 8, 4, 8), R(4, 8, 4, 8, seed=1), R(4, 8, 4, 8, seed=2)), tuple([P("data", None, "model")] * 3)


@pytest.mark.parametrize("name", progs)
def test_the_plan_gives_what_the_program_gives(name):
    fn, args, specs = progs[name]()
    assert all(layer.equal for layer in shardc.run(fn, *args, mesh={"data": 2, "model": 2}, in_specs=specs))
