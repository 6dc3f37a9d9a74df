"""Programs that choose, add up by ids, pad, sort, and run along a sequence: each is the op of the language that does so."""

# As their users write them, without types.
# mypy: ignore-errors

from __future__ import annotations

import re

import pytest

import shardc

jax = pytest.importorskip("jax", reason="JAX is not installed: to_shard is not tested on sequences")
jnp, lax, P = jax.numpy, jax.lax, jax.sharding.PartitionSpec

MESH = {"x": 2, "y": 2}
progs = {}


def prog(*ops, without=()):
    """A program whose file has these ops, and none of the others."""

    def kept(make):
        progs[make.__name__] = make, ops, without
        return make

    return kept


def R(*shape, seed=0):
    return jax.random.normal(jax.random.key(seed), shape)


def combine(left, right):
    return left[0] * right[0], right[0] * left[1] + right[1]


@prog("topk", "argtopk", without=["argmax"])
def two_experts_for_each_token():
    def f(x, router, up, down):
        gates = jax.nn.softmax(x @ router)
        best, which = lax.top_k(gates, 2)
        best = best / best.sum(-1, keepdims=True)
        weights = (jax.nn.one_hot(which, 6) * best[..., None]).sum(-2)
        h = jax.nn.relu(jnp.einsum("td,xdf->xtf", x, up))
        return jnp.einsum("xtf,xfd,tx->td", h, down, weights), which

    args = R(14, 6), R(6, 6, seed=1), R(6, 6, 10, seed=2), R(6, 10, 6, seed=3)
    return f, args, (P("x"), P(), P("y"), P("y"))


@prog("topk", "argtopk", "argmax", "take")
def sampling_among_the_most_likely():
    def f(logits, key):
        best, words = lax.top_k(logits, 5)
        noise = jax.random.gumbel(key, best.shape)
        chosen = jnp.argmax(best / 0.7 + noise, -1)
        return jnp.take_along_axis(words, chosen[:, None], 1)[:, 0], best

    return f, (R(6, 160), jax.random.key(2)), (P("x", "y"), None)


@prog("argtopk", "cumsum", "take")
def sampling_from_a_nucleus():
    def f(logits, noise):
        order = jnp.argsort(-logits)
        p = jax.nn.softmax(jnp.take_along_axis(logits, order, -1))
        keep = jnp.cumsum(p, -1) - p < 0.8
        chosen = jnp.argmax(jnp.where(keep, jnp.log(p) + noise, -1e30), -1)
        return jnp.take_along_axis(order, chosen[:, None], -1)[:, 0]

    return f, (R(6, 20), R(6, 20, seed=4)), (P("x"), P("x"))


@prog("scatter_add", without=["einsum"])
def the_gradient_of_a_table():
    def loss(table, ids, wanted):
        return ((table[ids] - wanted) ** 2).sum()

    ids = jax.random.randint(jax.random.key(1), (4, 7), 0, 10)
    return jax.grad(loss), (R(10, 6), ids, R(4, 7, 6, seed=2)), (P("y"), P("x"), P("x"))


@prog("scatter_add", "pad")
def rows_that_are_added_to():
    def f(a, i, y, each):
        one = jax.vmap(lambda a, i, y: a.at[i].add(y))(each, jnp.stack([i, i + 1]), jnp.stack([y, 2 * y]))
        return a.at[i].add(y), a.at[:, 2].add(1.0), a.at[3].add(y[0]), a.at[i[1]].add(y[2]), one

    i = jnp.array([1, 3, 3, 7, 0, 1, 1])
    return f, (R(9, 6), i, R(7, 6, seed=1), R(2, 9, 6, seed=2)), (P(None, "y"), P(), P(None, "y"), P("x"))


@prog("cumsum", "scatter_add", "take")
def sums_of_ragged_lengths():
    def f(x, lengths):
        ends = jnp.cumsum(lengths)
        at = jnp.arange(x.shape[0])
        segment = (at[:, None] >= ends[None]).sum(-1)
        return jax.ops.segment_sum(x, segment, 5), at - (ends - lengths)[segment], jnp.bincount(segment, length=5)

    return f, (R(20, 6), jnp.array([3, 5, 2, 6, 4])), (P(None, "y"), P())


@prog("scan", without=["concat"])
def a_gated_linear_recurrence():
    def f(x, wa, wx, rate):
        r, i = jax.nn.sigmoid(x @ wa), jax.nn.sigmoid(x @ wx)
        a = jnp.exp(-8 * jax.nn.softplus(rate) * r)
        u = jnp.sqrt(1 - a * a) * (i * x)

        def step(h, at):
            h = at[0] * h + at[1]
            return h, h

        h, hs = lax.scan(step, jnp.zeros((x.shape[0], x.shape[2])), (a.swapaxes(0, 1), u.swapaxes(0, 1)))
        return hs.swapaxes(0, 1), h

    return f, (R(4, 7, 6), R(6, 6, seed=1), R(6, 6, seed=2), R(6, seed=3)), (P("x"), P(None, "y"), P(None, "y"), P("y"))


@prog("scan", without=["concat"])
def linear_attention_with_decay():
    def f(q, k, v, decay):
        def step(s, at):
            q, k, v = at
            s = s * decay[None, :, None, None] + jnp.einsum("bhd,bhe->bhde", k, v)
            return s, jnp.einsum("bhd,bhde->bhe", q, s)

        return lax.scan(step, jnp.full((2, 4, 3, 5), 0.1), (q, k, v))[1]

    args = R(6, 2, 4, 3), R(6, 2, 4, 3, seed=1), R(6, 2, 4, 5, seed=2), jax.nn.sigmoid(R(4, seed=4))
    return f, args, (P(None, "x", "y"), P(None, "x", "y"), P(None, "x", "y"), P("y"))


@prog("scan", "shift", "pad")
def a_selective_state():
    def f(x, p):
        length, taps = x.shape[1], p["conv"].shape[0]
        u = jax.nn.silu(x @ p["in"])
        u = sum(jnp.pad(u, ((0, 0), (taps - 1 - k, 0), (0, 0)))[:, :length] * p["conv"][k] for k in range(taps))
        dt = jax.nn.softplus(u @ p["dt"])
        da = jnp.exp(-dt[..., None] * jnp.exp(p["a"]))
        db = dt[..., None] * (u @ p["b"])[:, :, None, :] * u[..., None]

        def step(c, at):
            h, last = c
            da, db, out = at
            h = da * h + db
            return (h, out), jnp.einsum("bdn,bn->bd", h, out + last)

        start = jnp.zeros(db.shape[:1] + db.shape[2:]), jnp.zeros((x.shape[0], 3))
        _, y = lax.scan(step, start, tuple(one.swapaxes(0, 1) for one in (da, db, u @ p["c"])))
        return (y.swapaxes(0, 1) + u * p["d"]) @ p["out"]

    sizes = {
        "in": (6, 8),
        "conv": (3, 8),
        "dt": (8, 8),
        "b": (8, 3),
        "c": (8, 3),
        "a": (8, 3),
        "d": (8,),
        "out": (8, 6),
    }
    p = {name: 0.5 * R(*size, seed=n) for n, (name, size) in enumerate(sizes.items())}
    specs = {name: P(None, "y") if name in ("in", "conv", "dt") else P("y") for name in sizes}
    return f, (R(4, 7, 6, seed=9), p), (P("x"), specs)


@prog("scan", "take")
def the_gradient_of_a_recurrence():
    def loss(w, x):
        def step(h, at):
            h = jax.nn.sigmoid(at @ w) * h + at
            return h, h

        return (lax.scan(step, jnp.zeros(x.shape[1:]), x)[1] ** 2).mean()

    return jax.value_and_grad(loss), (0.3 * R(4, 4), R(7, 4, 4, seed=1)), (P(None, "y"), P(None, "x"))


@prog("scan", "take")
def the_gradient_of_a_recurrence_that_computes_again():
    def loss(w, x):
        @jax.checkpoint
        def step(h, at):
            f = jax.nn.sigmoid(at @ w)
            h = f * h + (1 - f) * jnp.tanh(at)
            return h, h

        h, hs = lax.scan(step, jnp.zeros(x.shape[1:]), x)
        return (hs**2).mean() + h.sum()

    return jax.grad(loss, argnums=(0, 1)), (0.3 * R(4, 4), R(7, 4, 4, seed=1)), (P(None, "y"), P(None, "x"))


@prog("scan")
def a_recurrence_kept_in_more_bits():
    def f(a, b):
        def step(h, at):
            h = at[0].astype(jnp.float32) * h + at[1].astype(jnp.float32)
            return h, h.astype(jnp.bfloat16)

        return lax.scan(step, jnp.zeros(b.shape[1:]), (a, b))[1]

    args = jax.nn.sigmoid(R(7, 4, 6)).astype(jnp.bfloat16), R(7, 4, 6, seed=1).astype(jnp.bfloat16)
    return f, args, (P(None, "x", "y"),) * 2


@prog("scan", "take")
def a_recurrence_from_behind_that_begins_anew():
    def f(x, anew):
        def step(h, at):
            x, anew = at
            h = jnp.where(anew[:, None], 0.0, h) * 0.9 + x
            return h, (h, x * 2)

        return lax.scan(step, jnp.ones((4, 6)), (x, anew), reverse=True)

    return f, (R(5, 4, 6), R(5, 4, seed=3) > 0.5), (P(None, "x", "y"), P(None, "x"))


@prog("cumsum", "shift", without=["scan"])
def means_of_all_up_to_each():
    def f(x):
        def step(c, at):
            n, total, squares = c
            return (n + 1, total + at, squares + at * at), (total + at) / (n + 1)

        (n, total, squares), means = lax.scan(step, (jnp.zeros(()), jnp.zeros(6), jnp.zeros(6)), x)
        return means, squares / n - (total / n) ** 2

    return f, (R(9, 6),), (P(None, "x"),)


@prog("scan", "cumsum", without=["concat", "slice"])
def trees_of_prefixes():
    def f(a, b, c):
        each = jax.vmap(lambda a, b: lax.associative_scan(combine, (a, b))[1], in_axes=1)(a, b)
        behind = lax.associative_scan(combine, (a, b), reverse=True)[1]
        sums, products = lax.associative_scan(jnp.add, c, axis=1), lax.associative_scan(jnp.multiply, c)
        return lax.associative_scan(combine, (a, b))[1], each, behind, sums, products, jnp.cumprod(c, 1)

    args = jax.nn.sigmoid(R(13, 4, 6)), R(13, 4, 6, seed=2), R(5, 8)
    return f, args, (P(None, "x", "y"), P(None, "x"), P(None, "y"))


@prog("concat", without=["scan"])
def trees_that_only_look_like_recurrences():
    def f(a, b):
        twice = lax.associative_scan(lambda l, r: (l[0] * r[0], r[0] * l[1] + 2 * r[1]), (a, b))[1]
        turned = lax.associative_scan(lambda l, r: (l[0] * r[0], l[0] * r[1] + l[1]), (a, b))[1]
        return twice, turned, lax.associative_scan(jnp.maximum, b)

    return f, (jax.nn.sigmoid(R(6, 4)), R(6, 4, seed=2)), (P(None, "y"), P(None, "y"))


@prog("einsum", without=["scan"])
def a_state_that_is_contracted_is_no_recurrence():
    def f(q, k, v):
        def step(s, at):
            q, k, v = at
            s = s + jnp.einsum("bd,be->bde", k, v - jnp.einsum("bd,bde->be", k, s))
            return s, jnp.einsum("bd,bde->be", q, s)

        return lax.scan(step, jnp.zeros((2, 3, 4)), (q, k, v))[1]

    return f, (R(3, 2, 3), 0.3 * R(3, 2, 3, seed=1), R(3, 2, 4, seed=2)), (P(None, "x"),) * 3


@prog("pad", "shift", "take", "topk", "cumsum")
def paddings_steps_and_orders():
    def f(x):
        padded = (
            jnp.pad(x, ((1, 2), (0, 0))),
            lax.pad(x, 0.0, ((1, -2, 2), (-1, 0, 0))),
            jnp.pad(x > 0, ((2, 0), (0, 1))),
        )
        moved = lax.pad(x, 0.0, ((2, -2, 0), (0, 0, 0))), jnp.pad(x, ((1, 2), (0, 0)), constant_values=3.0)
        cut = x[1::3], x[::2], x[:, ::-1], lax.cumsum(x, 1, reverse=True), lax.cumprod(x, 0, reverse=True)
        order = jnp.sort(x, 0), jnp.sort(x, -1, descending=True), jnp.argsort(x, 0), jnp.median(x, 0)
        return padded, moved, cut, order, lax.top_k(x, 7), lax.top_k(x, 1), lax.sort((x, x * x), num_keys=1)

    return f, (R(9, 8),), (P(None, "x"),)


@prog("pad", "scatter_add")
def gradients_of_these():
    def loss(x):
        kept = (x[::2] ** 2).sum() + (jnp.cumsum(x, 0) ** 3).sum() + (jnp.pad(x, ((1, 2), (0, 0)))[2:] ** 2).sum()
        return kept + (lax.top_k(x, 3)[0] ** 2).sum() + (jnp.sort(x, 0) * jnp.arange(9)[:, None]).sum()

    return jax.grad(loss), (R(9, 8),), (P(None, "x"),)


@prog("scan", without=["take", "concat"])
def a_recurrence_whose_turns_look_up_their_places():
    def f(u, delta, a, b, c):
        decay = jnp.exp(jnp.einsum("bdl,dn->bldn", delta, a))
        added = jnp.einsum("bdl,bnl,bdl->bldn", delta, b, u)

        def turn(state, at):
            h, nothing = state
            h = decay[:, at] * h + added[:, at]
            return (h, nothing), jnp.einsum("bdn,bn->bd", h, c[:, :, at])

        start = jnp.zeros((u.shape[0], u.shape[1], a.shape[1])), None
        return lax.scan(turn, start, jnp.arange(u.shape[2]))[1]

    args = (
        R(4, 6, 7),
        jax.nn.softplus(R(4, 6, 7, seed=1)),
        -jnp.exp(R(6, 3, seed=2)),
        R(4, 3, 7, seed=3),
        R(4, 3, 7, seed=4),
    )
    return f, args, (P("x", "y"), P("x", "y"), P("y"), P("x"), P("x"))


@prog("scan")
def a_mean_that_forgets():
    def f(xs, h):
        return lax.fori_loop(0, 11, lambda i, h: 0.9 * h + 0.1 * xs[i], h)

    return f, (R(11, 4, 6), R(4, 6, seed=3)), (P(None, "x", "y"), P("x", "y"))


@prog("scan", "pad")
def advantages_from_behind():
    def f(rewards, values, ends):
        def step(c, at):
            advantage, after = c
            reward, value, end = at
            advantage = reward + 0.99 * after * (1 - end) - value + 0.94 * (1 - end) * advantage
            return (advantage, value), advantage

        start = jnp.zeros(4), jnp.zeros(4)
        return lax.scan(step, start, (rewards, values, ends), reverse=True)[1]

    return f, (R(7, 4), R(7, 4, seed=1), (R(7, 4, seed=2) > 1).astype(jnp.float32)), (P(None, "x"),) * 3


@prog("scatter_add", "take", "split", "merge")
def elements_by_several_coordinates():
    def f(x, expert, place, pairs):
        there = jax.vmap(lambda x, e, p: jnp.zeros((4, 5, 6)).at[e, p].add(x))(x, expert, place)
        back = jax.vmap(lambda there, e, p: there[e, jnp.clip(p, 0, 4)])(there * 2, expert, place)
        some = (
            x[jnp.arange(3), expert[:3, 0]],
            x[jnp.arange(4), expert[:, 1]],
            x.transpose(1, 2, 0)[pairs[:, 0], pairs[:, 1]],
        )
        return there, back, some

    at = [jax.random.randint(jax.random.key(n), (4, 9), 0, most) for n, most in enumerate((4, 7))]
    pairs = jnp.array([[1, 2], [0, 5], [8, 0]])
    return f, (R(4, 9, 6), *at, pairs), (P("x"), P("x"), P("x"), P())


@prog()
def a_number_with_more_elements_than_what_it_is_added_to():
    def f(w, x):
        return jnp.maximum(w + jnp.full((4, 6), 2.0), x) * (w * jnp.ones((4, 1)))

    return f, (R(6), R(4, 6, seed=1)), (P("y"), P("x", "y"))


@prog("take", "rename")
def as_many_ids_as_rows():
    def f(table, ids):
        return table[ids] + table

    return f, (R(8, 6), jnp.array([3, 1, 1, 0, 7, 6, 5, 2])), (P("x"), P())


@pytest.mark.parametrize("name", progs)
def test_the_plan_gives_what_the_program_gives(name):
    make, ops, without = progs[name]
    fn, args, specs = make()
    text = shardc.to_shard(fn, *args, mesh=MESH, in_specs=specs)
    body = "".join(line for line in text.splitlines() if "//" not in line)
    written = set(re.findall(r"\b(\w+)\(", body))
    assert written.issuperset(ops) and written.isdisjoint(without), text
    assert all(layer.equal for layer in shardc.run(fn, *args, mesh=MESH, in_specs=specs))


def test_the_largest_of_a_split_dim_are_chosen_where_they_are():
    fn, (_, key), specs = sampling_among_the_most_likely()
    logits = jax.ShapeDtypeStruct((512, 32000), jnp.float32)
    (layer,) = shardc.explain(fn, logits, key, mesh=MESH, in_specs=specs)
    # 5 of each of 4 parts of the words, and where they are: no logits are sent.
    assert sum(step.wire_bytes for step in layer.collectives) <= 2 * 512 * 20 * 4


def test_a_long_recurrence_is_one_op():
    def f(a, b):
        return lax.scan(lambda h, at: (at[0] * h + at[1],) * 2, jnp.zeros(b.shape[1:]), (a, b))[1]

    shapes = [jax.ShapeDtypeStruct((1 << 17, 4, 6), jnp.float32)] * 2
    text = shardc.to_shard(f, *shapes, mesh=MESH, in_specs=(P(None, "x"), P(None, "x")))
    assert text.count("let ") == 1 and "= scan(b, a over " in text
