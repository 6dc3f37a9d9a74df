"""Programs with several loops, a gradient through a scan, or a `shard_map`: the audit names their culprits."""

# As their users write them, without types.
# mypy: ignore-errors

from __future__ import annotations

from pathlib import Path

import pytest

import shardc

jax = pytest.importorskip("jax", reason="JAX is not installed: loops are not audited")
numpy = pytest.importorskip("numpy")
jnp, lax, P = jax.numpy, jax.lax, jax.sharding.PartitionSpec
NamedSharding = jax.sharding.NamedSharding

MESH = jax.sharding.Mesh(numpy.array(jax.devices()[:8]).reshape(2, 4), ("data", "model"))


def laid(shape, spec, dtype=jnp.float32):
    return jax.ShapeDtypeStruct(shape, dtype, sharding=NamedSharding(MESH, spec))


def audited(fn, args, results):
    shardings = jax.tree.map(lambda spec: NamedSharding(MESH, spec), results, is_leaf=lambda node: isinstance(node, P))
    return shardc.audit(jax.jit(fn, out_shardings=shardings), *args, hardware="tpu-v5e")


def line_of(mark):
    lines = Path(__file__).read_text().splitlines()
    (line,) = [number for number, text in enumerate(lines, 1) if text.endswith(f"# culprit: {mark}")]
    return line


def block(x, w):
    h = jax.nn.relu(jnp.einsum("ble,ef->blf", x, w["into"]))
    return x + jnp.einsum("blf,fe->ble", h, w["out"]), None


LAYERS, BATCH, LENGTH, WIDE, HIDDEN, WORDS = 3, 8, 64, 256, 1024, 512


def test_a_gradient_through_a_scan_names_its_culprit():
    def loss(p, ids, labels):
        x, _ = lax.scan(jax.checkpoint(block), p["table"][ids], p["blocks"])
        logits = jnp.einsum("ble,ev->blv", x, p["head"])
        return -jnp.take_along_axis(jax.nn.log_softmax(logits), labels[..., None], -1).mean()

    def step(p, m, ids, labels):
        value, grads = jax.value_and_grad(loss)(p, ids, labels)
        scale = 1 / jnp.maximum(1.0, jnp.sqrt(sum(jnp.sum(g * g) for g in jax.tree.leaves(grads))))
        m = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * scale * g, m, grads)
        return value, jax.tree.map(lambda w, m: w - 1e-3 * m, p, m), m

    blocks = {
        "into": P(None, None, "model"),
        "out": P(None, None, "model"),  # culprit: gradient
    }
    specs = {"table": P(None, "model"), "head": P(None, "model"), "blocks": blocks}
    sizes = {"table": (WORDS, WIDE), "head": (WIDE, WORDS)}
    sizes["blocks"] = {"into": (LAYERS, WIDE, HIDDEN), "out": (LAYERS, HIDDEN, WIDE)}
    p = jax.tree.map(laid, sizes, specs, is_leaf=lambda node: isinstance(node, tuple))
    ids = laid((BATCH, LENGTH), P("data"), jnp.int32)
    found = audited(step, (p, p, ids, ids), (P(), specs, specs))
    assert found.raw["optimum_same_specs"] is not None and len(found.raw["loops"]) == 2
    first = found.advice[0]
    # Its momentum and the results of both are laid out with it.
    assert first.value == "p['blocks']['out'], m['blocks']['out'], results 2, 6"
    assert (first.old, first.new) == ('P(None, None, "model")', 'P(None, "model", None)')
    assert first.source.line == line_of("gradient") and first.tried == "compiled"
    again = found.compiled_again
    assert again.wire_bytes_edited < 0.6 * again.wire_bytes_as_is


def test_two_scans_with_something_between_name_their_culprit():
    def block(x, w):
        h = jax.nn.relu(jnp.einsum("ble,ef->blf", x, w["up"]))
        return x + jnp.einsum("blf,fe->ble", h, w["down"]), None

    def program(x, first, second, w):
        x, _ = lax.scan(block, x, first)
        x = jnp.tanh(jnp.einsum("ble,ef->blf", x, w))
        x, _ = lax.scan(block, x, second)
        return x

    right = {"up": P(None, None, "model"), "down": P(None, "model", None)}
    wrong = {"up": P(None, None, "model"), "down": P(None, None, "model")}  # culprit: second
    sizes = {"up": (LAYERS, WIDE, HIDDEN), "down": (LAYERS, HIDDEN, WIDE)}
    first, second = ({name: laid(sizes[name], specs[name]) for name in sizes} for specs in (right, wrong))
    x, w = laid((BATCH, LENGTH, WIDE), P("data")), laid((WIDE, WIDE), P())
    found = audited(program, (x, first, second, w), P("data"))
    assert found.raw["no_optimum_because"] is None
    (advice,) = found.advice
    assert advice.value == "second['down']" and advice.new == 'P(None, "model", None)'
    assert advice.source.line == line_of("second")
    again = found.compiled_again
    assert again.wire_bytes_edited <= 1.05 * again.wire_bytes_optimum


def test_a_shard_map_takes_and_gives_what_it_says():
    inside = jax.shard_map(
        lambda h, w: lax.psum(h @ w, "model"),
        mesh=MESH,
        in_specs=(P("data", "model"), P("model", None)),
        out_specs=P("data", None),
    )

    def layer(x, into, middle, out):
        return jnp.tanh(inside(jnp.tanh(x @ into), middle)) @ out

    specs = {
        "x": P("data", None),
        "into": P("model", None),  # culprit: shard_map
        "middle": P("model", None),
        "out": P(None, "model"),
    }
    sizes = {"x": (512, 256), "into": (256, 1024), "middle": (1024, 256), "out": (256, 512)}
    args = [laid(sizes[name], spec) for name, spec in specs.items()]
    found = audited(layer, args, P("data", "model"))
    # Half of a megabyte is summed by hand: it is part of what is compiled, and of the optimum.
    by_hand = 256 * 256 * 4 * 2 * 3 // 4
    (advice,) = found.advice
    assert (advice.value, advice.new, advice.source.line) == ("into", 'P(None, "model")', line_of("shard_map"))
    assert found.compiled_again.wire_bytes_edited == found.compiled_again.wire_bytes_optimum == by_hand
    assert found.raw["by_hand_wire_bytes"] == by_hand and "of each, what shard_maps send by hand" in found.text
