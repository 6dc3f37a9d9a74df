"""The programs of examples/jax/culprits: each culprit is named with its line, and XLA is near the optimum with the advice."""

from __future__ import annotations

import importlib
import re
import sys
import types
from pathlib import Path
from typing import Any

import pytest

import shardc

jax: Any = pytest.importorskip("jax", reason="JAX is not installed: the programs of examples/jax are not audited")

FOLDER = Path(__file__).parents[3] / "examples" / "jax" / "culprits"
NAMES = sorted(path.stem for path in FOLDER.glob("*.py") if path.stem != "audit_all")


def auditor() -> Any:
    """What audits them all."""
    if str(FOLDER) not in sys.path:
        sys.path.insert(0, str(FOLDER))
    return importlib.import_module("audit_all")


def smaller(name: str) -> Any:
    """The same program at sizes that are executed in no time: what is 64 or more is an eighth."""
    text = (FOLDER / f"{name}.py").read_text()
    lines = [
        re.sub(r"\d+", lambda n: str(int(n[0]) // 8 if int(n[0]) >= 64 else int(n[0])), line)
        if re.match(r"[A-Z]+(, [A-Z]+)* = \d", line)
        else line
        for line in text.splitlines()
    ]
    module = types.ModuleType(name)
    module.__file__ = str(FOLDER / f"{name}.py")
    exec(compile("\n".join(lines), module.__file__, "exec"), module.__dict__)  # noqa: S102 - a program of ours
    return module


@pytest.mark.parametrize("name", NAMES)
def test_the_culprit_is_named_and_xla_is_near_the_optimum_with_the_advice(name: str) -> None:
    audit_all = auditor()
    found = audit_all.row(name, "cpu", audit_all.devices_of("cpu"))
    assert found["named"], found["text"]
    assert found["edited"] <= audit_all.NEAR * found["optimum"] and not found["left"]


def test_there_are_as_many_as_the_readme_says() -> None:
    assert len(NAMES) == 23


@pytest.mark.parametrize("name", NAMES)
def test_the_plan_gives_what_the_function_gives(name: str) -> None:
    audit_all, program = auditor(), smaller(name)
    keys = iter(jax.random.split(jax.random.key(7), 200))

    def filled(leaf: Any, argument: str) -> Any:
        shape, _ = leaf
        if argument == "ids":
            return jax.random.randint(next(keys), shape, 0, 64)
        # Positive, as squares are that an optimiser keeps.
        return jax.random.uniform(next(keys), shape, minval=0.1, maxval=1.0) / shape[0]

    args = [
        jax.tree.map(lambda leaf, name=name: filled(leaf, name), tree, is_leaf=audit_all.is_leaf)
        for name, tree in program.ARGUMENTS.items()
    ]
    takes = tuple(
        jax.tree.map(lambda leaf: leaf[1], tree, is_leaf=audit_all.is_leaf) for tree in program.ARGUMENTS.values()
    )
    if name == "stack_along_layers":
        # What is split along its layers is no weight of one layer: as the advice has it.
        takes = (takes[0], jax.sharding.PartitionSpec(None, None, "model"), takes[2])
    devices = audit_all.numpy.array(jax.devices()[:8]).reshape(*program.MESH.values())
    mesh = jax.sharding.Mesh(devices, tuple(program.MESH))
    options = {"mesh": mesh, "in_specs": takes, "out_specs": program.RESULTS}
    shardc.check(shardc.Source(shardc.to_shard(program.program, *args, **options)))
    assert all(layer.equal for layer in shardc.run(program.program, *args, **options))
