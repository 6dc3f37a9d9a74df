"""Functions of JAX as `.shard` files: each checks, and its plan, executed, gives what the function gives."""

# What a test says of JAX is typed by nobody: it may be absent.
# mypy: disable-error-code="misc"

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import shardc

numpy: Any = pytest.importorskip("numpy", reason="NumPy is not installed: to_shard is not tested")

jax: Any = pytest.importorskip("jax", reason="JAX is not installed: to_shard is not tested")
jnp: Any = jax.numpy
lax: Any = jax.lax
P: Any = jax.sharding.PartitionSpec

MESH = {"data": 2, "model": 2}
Case = tuple[Callable[..., Any], "tuple[Any, ...]", Any]
CASES: dict[str, Callable[[], Case]] = {}


def case(make: Callable[[], Case]) -> Callable[[], Case]:
    CASES[make.__name__] = make
    return make


def some(*shape: int, seed: int = 0, dtype: Any = None) -> Any:
    """Numbers between -1 and 1."""
    return jax.random.uniform(jax.random.key(seed), shape, dtype or jnp.float32, -1, 1)


@case
def a_feed_forward_layer() -> Case:
    def mlp(x: Any, w_in: Any, w_out: Any) -> Any:
        h = jnp.einsum("ble,ef->blf", x, w_in)
        a = jax.nn.gelu(h)
        return jnp.einsum("blf,fe->ble", a, w_out)

    args = some(4, 8, 16), some(16, 32, seed=1), some(32, 16, seed=2)
    return mlp, args, (P("data"), P(None, "model"), P("model"))


@case
def a_matrix_that_is_square() -> Case:
    def twice(x: Any, w: Any) -> Any:
        return x + (x @ w) @ w.T

    return twice, (some(8, 16), some(16, 16, seed=1)), (P("data"), P(None, "model"))


@case
def every_map() -> Case:
    def maps(x: Any) -> Any:
        y = jnp.exp(x) + jnp.log(x * x + 1) - jnp.tanh(x) * jax.nn.sigmoid(x) + jnp.sqrt(jnp.abs(x)) / 3
        y = y + lax.rsqrt(x * x + 0.5) - jax.nn.relu(x) + jax.nn.silu(x) + x**3 - 2.0**x + x**-2.0 * 0
        y = jnp.clip(y, -1, 2.5) + jnp.log1p(jnp.square(x)) + jnp.expm1(x) + jnp.logaddexp(x, 0.0)
        return jnp.maximum(y, jnp.minimum(x, 0.25)) + jax.nn.softplus(x) + jnp.sign(x) + jax.nn.leaky_relu(x)

    return maps, (some(8, 16) + 1.5,), P("data")


@case
def norms() -> Case:
    def both(x: Any, scale: Any, bias: Any) -> Any:
        mean = jnp.mean(x, axis=-1, keepdims=True)
        variance = jnp.var(x, axis=-1, keepdims=True)
        y = (x - mean) * lax.rsqrt(variance + 1e-5) * scale + bias
        return y * lax.rsqrt(jnp.mean(jnp.square(y), axis=-1, keepdims=True) + 1e-6)

    return both, (some(8, 4, 16), some(16, seed=1), some(16, seed=2)), (P("data", None, "model"), P(), P())


def attend(x: Any, p: Any, mask: Any) -> Any:
    q = jnp.einsum("ble,ehd->blhd", x, p["wq"])
    k = jnp.einsum("bse,ehd->bshd", x, p["wk"])
    v = jnp.einsum("bse,ehd->bshd", x, p["wv"])
    scores = mask(jnp.einsum("blhd,bshd->bhls", q, k) / jnp.sqrt(q.shape[-1]))
    weights = jax.nn.softmax(scores, axis=-1)
    return jnp.einsum("blhd,hde->ble", jnp.einsum("bhls,bshd->blhd", weights, v), p["wo"])


def attention_weights() -> tuple[Any, Any]:
    p = {name: some(16, 4, 8, seed=n) for n, name in enumerate(["wq", "wk", "wv"])}
    return {**p, "wo": some(4, 8, 16, seed=7)}, {**dict.fromkeys(p, P(None, "model")), "wo": P("model")}


@case
def attention_with_a_triangle() -> Case:
    def layer(x: Any, p: Any) -> Any:
        return attend(x, p, lambda s: jnp.where(jnp.tril(jnp.ones((8, 8), bool)), s, -1e30))

    p, specs = attention_weights()
    return layer, (some(4, 8, 16, seed=9), p), (P("data"), specs)


@case
def attention_with_positions_compared() -> Case:
    def layer(x: Any, p: Any) -> Any:
        here, there = jnp.arange(8)[:, None], jnp.arange(8)[None, :]
        return attend(x, p, lambda s: jnp.where((here >= there)[None, None], s, jnp.finfo(s.dtype).min))

    p, specs = attention_weights()
    return layer, (some(4, 8, 16, seed=9), p), (P("data"), specs)


@case
def attention_with_a_mask_that_is_added() -> Case:
    def layer(x: Any, p: Any) -> Any:
        mask = jnp.triu(jnp.full((8, 8), -jnp.inf), k=1)
        return attend(x, p, lambda s: s + mask)

    p, specs = attention_weights()
    return layer, (some(4, 8, 16, seed=9), p), (P("data"), specs)


@case
def attention_in_a_window() -> Case:
    def layer(x: Any, p: Any) -> Any:
        here, there = jnp.arange(8)[:, None], jnp.arange(8)[None, :]
        near = (here >= there) & (here - there < 3)
        return attend(x, p, lambda s: jnp.where(near, s, -1e9))

    p, specs = attention_weights()
    return layer, (some(4, 8, 16, seed=9), p), (P("data"), specs)


@case
def rotary_positions_and_grouped_heads() -> Case:
    def rope(x: Any) -> Any:
        half = x.shape[-1] // 2
        angles = jnp.arange(x.shape[1])[:, None] * (10000.0 ** (-jnp.arange(half) / half))
        sin, cos = jnp.sin(angles)[None, :, None, :], jnp.cos(angles)[None, :, None, :]
        left, right = jnp.split(x, 2, axis=-1)
        return jnp.concatenate([left * cos - right * sin, right * cos + left * sin], axis=-1)

    def layer(x: Any, wq: Any, wk: Any) -> Any:
        q = rope((x @ wq).reshape(4, 8, 8, 8))
        k = jnp.repeat(rope((x @ wk).reshape(4, 8, 2, 8)), 4, axis=2)
        return jax.nn.softmax(jnp.einsum("blhd,bshd->bhls", q, k))

    return layer, (some(4, 8, 16), some(16, 64, seed=1), some(16, 16, seed=2)), (P("data"), P(None, "model"), P())


@case
def an_embedding_and_its_loss() -> Case:
    def loss(table: Any, ids: Any, labels: Any) -> Any:
        x = table[ids]
        logits = jnp.einsum("ble,ve->blv", x, table)
        picked = jnp.take_along_axis(jax.nn.log_softmax(logits), labels[..., None], axis=-1)
        return -jnp.mean(picked)

    ids = jax.random.randint(jax.random.key(1), (4, 8), 0, 32)
    return loss, (some(32, 16), ids, (ids + 3) % 32), (P("model"), P("data"), P("data"))


@case
def one_hot_and_labels() -> Case:
    def loss(logits: Any, labels: Any) -> Any:
        chosen = jax.nn.one_hot(labels, 16) * jax.nn.log_softmax(logits)
        return -chosen.sum(-1).mean(), (jnp.argmax(logits, -1) == labels).astype(jnp.float32).mean()

    return loss, (some(8, 16), jnp.arange(8) % 5), (P("data", "model"), P("data"))


@case
def a_step_of_decoding() -> Case:
    def step(x: Any, p: Any, keys: Any, values: Any, at: Any) -> Any:
        q = jnp.einsum("ble,ehd->blhd", x, p["wq"])
        keys = lax.dynamic_update_slice(keys, jnp.einsum("ble,ehd->blhd", x, p["wk"]), (0, at, 0, 0))
        values = lax.dynamic_update_slice(values, jnp.einsum("ble,ehd->blhd", x, p["wv"]), (0, at, 0, 0))
        scores = jnp.einsum("blhd,bshd->bhls", q, keys)
        scores = jnp.where(jnp.arange(8) <= at, scores, -1e30)
        y = jnp.einsum("bhls,bshd->blhd", jax.nn.softmax(scores), values)
        return jnp.einsum("blhd,hde->ble", y, p["wo"]), {"keys": keys, "values": values}

    p, specs = attention_weights()
    cache = P("data", None, "model")
    args = some(4, 1, 16), p, some(4, 8, 4, 8, seed=3), some(4, 8, 4, 8, seed=4), jnp.int32(7)
    return step, args, (P("data"), specs, P("data", None, "model"), cache, None)


@case
def a_scan_over_layers() -> Case:
    def body(x: Any, w: Any) -> Any:
        h = jax.nn.gelu(x @ w["w_in"])
        return x + h @ w["w_out"], None

    def tower(x: Any, layers: Any, head: Any) -> Any:
        x, _ = lax.scan(body, x, layers)
        return x @ head

    layers = {"w_in": some(3, 16, 32), "w_out": some(3, 32, 16, seed=1)}
    specs = {"w_in": P(None, None, "model"), "w_out": P(None, "model", None)}
    return tower, (some(8, 16, seed=2), layers, some(16, 8, seed=3)), (P("data"), specs, P(None, "model"))


@case
def a_scan_whose_layers_share_a_table() -> Case:
    def tower(x: Any, layers: Any, bias: Any) -> Any:
        mask = jnp.where(jnp.arange(16) % 3 == 0, 0.0, 1.0)

        def block(x: Any, w: Any) -> Any:
            return x + jnp.tanh(x.astype(jnp.float32) @ w.astype(jnp.float32) + bias) * mask, None

        return lax.scan(jax.checkpoint(block), x, layers)[0]

    return tower, (some(8, 16), some(3, 16, 16, seed=1), some(16, seed=2)), (P("data"), P(None, None, "model"), P())


@case
def a_scan_that_fills_caches() -> Case:
    def tower(x: Any, layers: Any, caches: Any) -> Any:
        def block(x: Any, turn: Any) -> Any:
            w, cache = turn
            cache = lax.dynamic_update_slice(cache, (x @ w)[:, None], (0, 3, 0))
            return x + cache.sum(1), cache

        return lax.scan(block, x, (layers, caches))

    args = some(8, 16), some(3, 16, 16, seed=1), some(3, 8, 4, 16, seed=2)
    return tower, args, (P("data"), P(None, None, "model"), P(None, "data"))


@case
def a_step_of_training() -> Case:
    def loss(p: Any, x: Any, y: Any) -> Any:
        h = jax.nn.relu(x @ p["w1"] + p["b1"])
        return jnp.mean((h @ p["w2"] - y) ** 2)

    def step(p: Any, x: Any, y: Any) -> Any:
        value, grads = jax.value_and_grad(loss)(p, x, y)
        return value, jax.tree.map(lambda w, g: w - 0.1 * g, p, grads)

    p = {"w1": some(16, 32), "b1": some(32, seed=1), "w2": some(32, 16, seed=2)}
    specs = {"w1": P("data", "model"), "b1": P("model"), "w2": P("model", "data")}
    return step, (p, some(8, 16, seed=3), some(8, 16, seed=4)), (specs, P("data"), P("data"))


@case
def a_step_of_training_through_a_scan() -> Case:
    def loss(p: Any, ids: Any) -> Any:
        def block(x: Any, w: Any) -> Any:
            return x + jnp.tanh(x @ w), None

        x, _ = lax.scan(block, p["table"][ids], p["layers"])
        logits = x @ p["table"].T
        return -jnp.take_along_axis(jax.nn.log_softmax(logits), ids[:, None], -1).mean()

    def step(p: Any, m: Any, ids: Any, count: Any) -> Any:
        value, grads = jax.value_and_grad(loss)(p, ids)
        m = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, m, grads)
        p = jax.tree.map(lambda p, m: p - 0.01 * m / (1 - 0.9 ** (count + 1)), p, m)
        return value, p, m, count + 1

    p = {"table": some(32, 16), "layers": some(3, 16, 16, seed=1)}
    specs = {"table": P("model"), "layers": P(None, "data", "model")}
    args = p, jax.tree.map(lambda a: 0.5 * a, p), jnp.arange(8) * 3 % 32, jnp.int32(2)
    return step, args, (specs, specs, P("data"), None)


@case
def experts_by_capacity() -> Case:
    def moe(x: Any, router: Any, up: Any, down: Any) -> Any:
        gates = jax.nn.softmax(x @ router)
        weights, chosen = lax.top_k(gates, 2)
        onehot = jax.nn.one_hot(chosen, 4)
        place = jnp.cumsum(onehot.reshape(-1, 4), 0).reshape(16, 2, 4) * onehot - 1
        fits = (place < 8) & (place >= 0)
        slots = jax.nn.one_hot(place.astype(jnp.int32), 8) * fits[..., None]
        sent = jnp.einsum("tkxc->txc", slots)
        weighted = jnp.einsum("tkxc,tk->txc", slots, weights)
        h = jax.nn.relu(jnp.einsum("xce,xef->xcf", jnp.einsum("txc,te->xce", sent, x), up))
        return jnp.einsum("txc,xce->te", weighted, jnp.einsum("xcf,xfe->xce", h, down))

    args = some(16, 8), some(8, 4, seed=1), some(4, 8, 16, seed=2), some(4, 16, 8, seed=3)
    return moe, args, (P("data"), P(), P("model"), P("model"))


@case
def cuts_and_joins() -> Case:
    def shapes(x: Any, y: Any) -> Any:
        a = jnp.concatenate([x[:, :4], y, x[:, 4:] * 2], axis=1)
        b = jnp.stack([x, y], axis=0).sum(0) + jnp.pad(x[:, 2:], ((0, 0), (1, 1)))
        c = x.reshape(2, 4, 2, 4).transpose(0, 2, 1, 3).reshape(8, 8)
        d = jnp.cumsum(x, axis=1) + x[:, ::-1] + jnp.broadcast_to(y[0], y.shape) + x.T
        e = jnp.stack([x[:, 0::2], x[:, 1::2]], axis=-1).reshape(8, 8)
        return a, b + c + d, e, x[3], x.reshape(-1), x.reshape(4, 16), x[:, :, None] * x[:, None, :]

    return shapes, (some(8, 8), some(8, 8, seed=1)), (P("data"), P(None, "model"))


@case
def joins_of_what_is_repeated() -> Case:
    def shapes(q: Any, prefix: Any, own: Any) -> Any:
        repeated = jnp.broadcast_to(prefix[None], (4, *prefix.shape))
        keys = jnp.concatenate([repeated, own], axis=1)
        weights = jax.nn.softmax(jnp.einsum("bhc,bsc->bhs", q, keys), axis=-1)
        out = jnp.einsum("bhs,bsc->bhc", weights, keys)
        # Square, so that dims of one name meet at other places.
        behind = jnp.broadcast_to(prefix[:, None], (4, 4, 4))
        last = jnp.broadcast_to(prefix[:, :, None], (4, 4, 4))
        twice = jnp.concatenate([repeated, behind, last], axis=1)
        both = jnp.concatenate([behind, own], axis=1) + jnp.concatenate([own, last], axis=1)
        apart = jnp.broadcast_to(q[:, None, 0], (4, 3, 4))
        return out, twice, both, jnp.concatenate([repeated, apart], axis=1)

    return shapes, (some(4, 8, 4), some(4, 4, seed=1), some(4, 4, 4, seed=2)), (P("data"), P(), P("model"))


@case
def along_a_line() -> Case:
    def mixer(x: Any, w: Any, taps: Any, kernel: Any) -> Any:
        h = jnp.einsum("ble,ef->blf", x, w)
        near = lax.conv_general_dilated(
            h, taps[:, None], (1,), [(3, 0)], dimension_numbers=("NHC", "HIO", "NHC"), feature_group_count=16
        )
        wide = lax.conv_general_dilated(h, kernel, (2,), [(1, 1)], dimension_numbers=("NHC", "HIO", "NHC"))
        sums = jnp.cumsum(jax.nn.softplus(near), axis=1)
        return sums, jnp.argmax(sums, -1), jnp.argmin(x, 1), wide, jnp.cumsum(h[::1], 1, dtype=jnp.float32)[:, -1]

    args = some(4, 8, 8), some(8, 16, seed=1), some(4, 16, seed=2), some(3, 16, 8, seed=3)
    return mixer, args, (P("data"), P(None, "model"), P(None, "model"), P())


@case
def truths() -> Case:
    def choose(x: Any, y: Any, flags: Any) -> Any:
        where = jnp.where((x > y) | (x < -0.5), x, y) + jnp.where(flags[:, None], 1.0, 0.0)
        return where, jnp.any(x > 0.9, axis=1), jnp.where(~(x >= y) & (x != 0), -jnp.inf, x).max(1), x.min(0)

    return choose, (some(8, 16), some(8, 16, seed=1), jnp.arange(8) % 2 == 0), (P("data"), P("data"), P())


@case
def attention_over_packed_sequences() -> Case:
    def layer(x: Any, p: Any, segment: Any, length: Any) -> Any:
        same = segment[:, :, None] == segment[:, None, :]
        real = jnp.arange(8)[None, None, :] < length[:, None, None]
        return attend(x, p, lambda s: jnp.where((same & real)[:, None], s, -jnp.inf))

    p, specs = attention_weights()
    segment = jnp.tile(jnp.arange(8) // 4, (4, 1))
    args = some(4, 8, 16, seed=9), p, segment, jnp.array([8, 7, 6, 5])
    return layer, args, (P("data"), specs, P("data"), P("data"))


@case
def choices_of_truths() -> Case:
    def choose(x: Any, y: Any, ids: Any, flags: Any) -> Any:
        either = (x < y) ^ flags[:, None]
        known = jnp.arange(8) % 3 == 0
        odd = jnp.where(ids != 3, jnp.where(known, ids, -ids), 7)
        here = jnp.where(jnp.arange(16) == jnp.argmax(x, 1)[:, None], x, 0)
        hidden = jnp.where(x <= y, -jnp.inf, y).max(0) + jnp.where(either, 0.0, -jnp.inf).max(0)
        whole = jnp.all(x < 2, axis=0) & ~jnp.any(y > 0.95, axis=0)
        return odd, either, here, hidden, whole, jnp.sign(x), jnp.concatenate([either, x > 0], 1), either[2], either.T

    ids, flags = jnp.arange(8) % 5, jnp.arange(8) % 2 == 0
    return choose, (some(8, 16), some(8, 16, seed=1), ids, flags), (P("data"), P("data"), P("data"), P())


@case
def halves_of_precision() -> Case:
    def layer(x: Any, w: Any) -> Any:
        h = jnp.einsum("be,ef->bf", x, w, preferred_element_type=jnp.float32)
        return jax.nn.silu(h).astype(jnp.bfloat16)

    return layer, (some(8, 16, dtype=jnp.bfloat16), some(16, 32, seed=1, dtype=jnp.bfloat16)), (P("data"), P("data"))


@pytest.mark.parametrize("name", CASES)
def test_a_function_checks_and_its_plan_gives_the_same(name: str) -> None:
    fn, args, in_specs = CASES[name]()
    text = shardc.to_shard(fn, *args, mesh=MESH, in_specs=in_specs)
    shardc.check(shardc.Source(text))
    assert all(layer.equal for layer in shardc.run(fn, *args, mesh=MESH, in_specs=in_specs)), text


def text_of(name: str) -> str:
    fn, args, in_specs = CASES[name]()
    return shardc.to_shard(fn, *args, mesh=MESH, in_specs=in_specs)


def test_the_file_has_the_names_of_the_program() -> None:
    text = text_of("a_feed_forward_layer")
    assert text.splitlines()[4:8] == [
        "dim B = 4  // x[0]",
        "dim L = 8  // x[1]",
        "dim E = 16  // x[2], w_in[0]",
        "dim F = 32  // w_in[1], w_out[0]",
    ]
    assert "  w_in: f32 EF_{model}," in text and "  let a = gelu(h)" in text
    assert "  let h = einsum(x, w_in -> BLF)" in text and ': h = jnp.einsum("ble,ef->blf", x, w_in)' in text


def test_what_is_written_out_is_one_op() -> None:
    for name in (
        "attention_with_a_triangle",
        "attention_with_positions_compared",
        "attention_with_a_mask_that_is_added",
    ):
        text = "".join(line for line in text_of(name).splitlines() if "//" not in line)
        assert text.count("causal(") == text.count("softmax(") == 1, text
        assert "exp(" not in text
    assert re.search(r"causal\(\w+ over \w, \w, 3\)", text_of("attention_in_a_window"))
    norm = text_of("norms")
    assert norm.count("rmsnorm(") == 1 and "rsqrt(" in norm  # of the two, one has the language's own epsilon
    decoding = text_of("a_step_of_decoding")
    assert decoding.count("append(") == 2 and "keys: cache f32" in decoding
    assert "taken to be the end of the cache" in decoding  # JAX writes at a position that only the caller knows


def test_comparisons_are_those_of_the_language() -> None:
    text = text_of("attention_over_packed_sequences")
    body = "".join(line for line in text.splitlines() if "//" not in line)
    assert body.count("equal(") == body.count("less(") == 1 and body.count("where(") == 2, text
    # A softmax leaves of -1e30 what it leaves of minus infinity, for which the language has no number.
    assert ", -1e+30)" in body and "log(" not in body and body.count("softmax(") == 1
    choices = text_of("choices_of_truths")
    assert "1e+30" not in choices and choices.count("log(") == 2 and "where(equal(ids, 3), 7, " in choices
    chosen = text_of("experts_by_capacity")
    assert chosen.count(" topk(") == chosen.count(" argtopk(") == 1 and "relu((" not in chosen


def test_a_scan_is_a_repeated_layer() -> None:
    text = text_of("a_scan_over_layers")
    assert "layer body(" in text and " repeat 3 {" in text and "model tower(" in text
    assert "w_in: weight f32 BC_{model}" in text or "w_in: weight f32" in text
    # Backwards a layer needs what it had forwards: then turns are written out, each with weights of its own.
    trained = text_of("a_step_of_training_through_a_scan")
    assert "repeat" not in trained and "p_layers_2: weight f32" in trained


def test_a_value_may_be_named() -> None:
    def layer(x: Any, w: Any) -> Any:
        return jnp.tanh(shardc.named(x @ w, "scores")) * 2

    args = some(8, 16), some(16, 16, seed=1)
    for fn in (layer, jax.jit(layer)):
        assert "let scores = einsum(x, w -> " in shardc.to_shard(fn, *args, mesh=MESH, in_specs=(P("data"), P()))
    assert "scores" in shardc.to_shard(jax.grad(lambda x, w: layer(x, w).sum(), 1), *args, mesh=MESH)
    with pytest.raises(ValueError, match="no name"):
        shardc.named(args[0], "Not One")


def test_a_constraint_is_a_reshard() -> None:
    mesh = jax.sharding.Mesh(numpy.array(jax.devices()[:4]).reshape(2, 2), ("data", "model"))

    def layer(x: Any, w: Any) -> Any:
        return jax.lax.with_sharding_constraint(x @ w, P("data", "model")) * 2

    text = shardc.to_shard(layer, some(8, 16), some(16, 16), mesh=mesh, in_specs=(P("data"), P()), out_specs=P("model"))
    assert "reshard(" in text and "_{data}" in text and "mesh data=2, model=2" in text
    shardc.check(shardc.Source(text))
    assert shardc.run(layer, some(8, 16), some(16, 16), mesh=mesh, in_specs=(P("data"), P())).layers[0].equal


def test_steps_have_the_line_of_python() -> None:
    fn, args, in_specs = CASES["a_feed_forward_layer"]()
    plan = shardc.explain(fn, *args, mesh=MESH, in_specs=in_specs, hardware="tpu-v5p")
    (layer,) = plan
    assert plan.program is not None and "einsum(x, w_in -> BLF)" in plan.program and layer.hardware == "tpu-v5p"
    sources = {step.name: step.source for step in layer.instructions if step.name}
    line = fn.__code__.co_firstlineno
    assert sources["h"] == shardc.Place(__file__, line + 1) and sources["a"] == shardc.Place(__file__, line + 2)


def test_shapes_are_enough() -> None:
    shape = jax.ShapeDtypeStruct
    text = shardc.to_shard(
        lambda x, w: x @ w,
        shape((8192, 4096), jnp.bfloat16),
        shape((4096, 4096), jnp.bfloat16),
        mesh=MESH,
        weights=["w"],
    )
    assert "w: weight bf16" in text and "?" in text


@pytest.mark.parametrize(
    ("fn", "said", "primitive"),
    [
        (lambda x: lax.sort((x, x), num_keys=2), "sorting by several keys", "sort"),
        (lambda x: lax.erf(x), "gelu with approximate=True", "erf"),
        (lambda x: lax.while_loop(lambda x: x.sum() < 3, lambda x: x + 1, x), "number of turns is not known", "while"),
        (lambda x: lax.cummax(x), "no counterpart of `cummax`", "cummax"),
        (lambda x: lax.top_k(x, 16)[0].at[x.astype(int)].set(0), "several places", "scatter"),
    ],
)
def test_what_has_no_counterpart_is_named_with_its_line(fn: Any, said: str, primitive: str) -> None:
    with pytest.raises(shardc.TranslationError, match=said) as raised:
        shardc.to_shard(fn, some(8, 16), mesh=MESH, in_specs=P("data"))
    wrong = raised.value
    assert wrong.primitive == primitive and wrong.file == __file__ and wrong.line == fn.__code__.co_firstlineno
    assert f"{__file__}:{wrong.line}: " in str(wrong) and "lambda x:" in str(wrong)


def test_wrong_specs_are_said_as_such() -> None:
    x = some(8, 16)
    with pytest.raises(shardc.TranslationError, match="x is split over 'rows', which the mesh"):
        shardc.to_shard(lambda x: x, x, mesh=MESH, in_specs=P("rows"))
    with pytest.raises(shardc.TranslationError, match="x has 2 dims, and its spec"):
        shardc.to_shard(lambda x: x, x, mesh=MESH, in_specs=P(None, None, "data"))
    with pytest.raises(TypeError, match="2 entries, and the function 1"):
        shardc.to_shard(lambda x: x, x, mesh=MESH, in_specs=(P(), P()))
    with pytest.raises(TypeError, match="weights names 'w'"):
        shardc.to_shard(lambda x: x, x, mesh=MESH, weights=["w"])
    with pytest.raises(TypeError, match="mesh is missing"):
        shardc.explain(lambda x: x, x)
    with pytest.raises(TypeError, match="full says nothing of a function"):
        shardc.run(lambda x: x, x, mesh=MESH, full=True)  # type: ignore[call-overload]
    with pytest.raises(TypeError, match="in_specs says nothing of a program"):
        shardc.explain("mlp.shard", in_specs=P())  # type: ignore[call-overload]
    with pytest.raises(shardc.ProgramError):  # 8 rows over 3 devices
        shardc.explain(lambda x: x * 2, x, mesh={"data": 3}, in_specs=P("data"))


def test_a_plan_that_gives_something_else_is_refused() -> None:
    def step(cache: Any, new: Any, at: Any) -> Any:
        return lax.dynamic_update_slice(cache, new, (0, at))

    # The file has it at the end; the function is called with another position.
    with pytest.raises(shardc.ProgramError, match="not what the function gives"):
        shardc.run(step, some(8, 16), some(8, 2, seed=1), jnp.int32(3), mesh=MESH)


def test_the_page_prints_what_it_says(tmp_path: Path) -> None:
    page = (Path(__file__).parents[3] / "spec" / "from-jax.md").read_text()
    code, prints = (page.split(f"```{kind}\n")[1].split("```")[0] for kind in ("python", "text"))
    (tmp_path / "mlp.py").write_text(code)
    ran = subprocess.run([sys.executable, "mlp.py"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stdout.replace(f"{tmp_path}/", "")) == (0, prints), ran.stderr


def test_no_value_is_called_as_an_op_of_the_language() -> None:
    from shardc._program.text import RESERVED

    grammar = (
        (Path(__file__).parents[3] / "spec" / "language.md").read_text().split("\nform       =")[1].split("\nint  ")[0]
    )
    words = {word for word in re.findall(r'"([a-z]+)"', grammar) if word not in ("over", "at")}
    assert len(words) > 30 and words <= RESERVED

    def layer(x: Any, split: Any) -> Any:
        relu = x * split
        return relu + 1

    assert "let relu_ = " in shardc.to_shard(layer, some(8), some(8), mesh=MESH)
