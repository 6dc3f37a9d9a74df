"""The programs of examples/jax: their culprit is found, the edit mends it, and their plans give what they give."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any

import pytest

import shardc

jax: Any = pytest.importorskip("jax", reason="JAX is not installed: the programs of examples/jax are not audited")
jnp: Any = jax.numpy

FOLDER = Path(__file__).parents[3] / "examples" / "jax"

# The program; the line of the annotation that is to blame and what it says; what XLA sends with it and without, in bytes;
# the proven optimum for the specs of before and of after.
CULPRITS = [
    ("decoder", '"down": P(None, "model"),', 'P("model", None)'),
    ("experts", '"down": P(None, None, "expert"),', 'P("expert", None, None)'),
    (
        "training",
        'weights = dict.fromkeys(["table", "up", "down", "head"], P())',
        'as the arguments: P("model", None), ',
    ),
]

SMALL: dict[str, dict[str, Any]] = {
    "decoder": {"b": 4, "l": 8, "e": 16, "h": 8, "k": 4, "d": 4, "f": 32, "dtype": jnp.float32},
    "experts": {"g": 4, "t": 8, "e": 8, "f": 16, "x": 4},
    "training": {"b": 8, "l": 8, "e": 16, "f": 32, "v": 64},
}


def example(name: str) -> tuple[Any, Any]:
    """The program, and what audits it."""
    if str(FOLDER) not in sys.path:
        sys.path.insert(0, str(FOLDER))
    return importlib.import_module(name), importlib.import_module("story")


def filled(shapes: Any) -> Any:
    """Numbers for shapes: positive, as squares are that an optimiser keeps."""

    def one(at: int, shape: Any) -> Any:
        key = jax.random.key(at)
        if jnp.issubdtype(shape.dtype, jnp.floating):
            return jax.random.uniform(key, shape.shape, shape.dtype, 0.1, 1)
        return jax.random.randint(key, shape.shape, 0, 5, shape.dtype)

    leaves, structure = jax.tree.flatten(shapes)
    return structure.unflatten([one(at, shape) for at, shape in enumerate(leaves)])


@pytest.mark.parametrize(("name", "line", "new"), CULPRITS)
def test_the_culprit_is_named_and_the_edit_mends_it(name: str, line: str, new: str) -> None:
    program, story = example(name)
    before = story.audited(program, edited=False)
    advice = before.advice[0]
    assert advice.source is not None and advice.new.startswith(new)
    assert Path(advice.source.file).read_text().splitlines()[advice.source.line - 1].strip() == line
    after = story.audited(program, edited=True)
    # XLA sends less by nearly what was said: the advice is of plans, which scatter where XLA for CPU reduces.
    assert before.wire_bytes - after.wire_bytes > 0.6 * advice.saves_bytes
    assert not after.advice


@pytest.mark.parametrize("name", list(SMALL))
@pytest.mark.parametrize("edited", [False, True])
def test_the_plan_gives_what_the_function_gives(name: str, edited: bool) -> None:
    program, story = example(name)
    takes, gives = story.specs_of(program, edited)
    args = filled(program.shapes(**SMALL[name]))
    ran = shardc.run(program.function, *args, mesh=program.MESH, in_specs=takes, out_specs=gives)
    assert all(layer.equal for layer in ran)


@pytest.mark.parametrize("name", list(SMALL))
def test_the_plan_at_full_size_is_proven(name: str) -> None:
    program, story = example(name)
    sent = []
    for edited in (False, True):
        takes, gives = story.specs_of(program, edited)
        plan = shardc.explain(
            program.function, *program.shapes(), mesh=program.MESH, in_specs=takes, out_specs=gives, alternatives="none"
        )
        (layer,) = plan
        assert layer.optimality is not None and layer.optimality.status == "proven"
        sent.append(layer.totals.comm_bytes)
    assert sent[1] < sent[0]
