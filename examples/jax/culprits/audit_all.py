"""Audits the programs of this folder: `python audit_all.py [--on cpu|tpu] [--json FOLDER] [NAME..]`; with
`--page`, what is in FOLDER becomes the table of its README.

Every program is compiled by XLA as it is and again with the advice: for eight virtual devices of the CPU, in float32, or ahead of
time for eight chips of a TPU v5e, in bfloat16, which needs libtpu and no TPU.
"""

from __future__ import annotations

import argparse
import importlib
import json
import math
import os
import sys
import time
from pathlib import Path

os.environ.setdefault("XLA_FLAGS", "--xla_force_host_platform_device_count=8")
os.environ.setdefault("JAX_PLATFORMS", "cpu")
# Without these libtpu looks for a machine with TPUs.
os.environ.setdefault("TPU_SKIP_MDS_QUERY", "1")
os.environ.setdefault("TPU_WORKER_HOSTNAMES", "localhost")

import jax
import jax.numpy as jnp
import numpy
import shardc
from jax.sharding import Mesh, NamedSharding, PartitionSpec

FOLDER = Path(__file__).parent
NAMES = sorted(path.stem for path in FOLDER.glob("*.py") if path.stem != "audit_all")
NEAR = 1.05


def devices_of(platform):
    if platform == "cpu":
        return jax.devices()[:8]
    from jax.experimental import topologies

    return topologies.get_topology_desc("v5e:2x4", "tpu").devices


def is_leaf(node):
    """A shape and its spec."""
    return isinstance(node, tuple) and len(node) == 2 and isinstance(node[1], PartitionSpec)


def program_of(name):
    if str(FOLDER) not in sys.path:
        sys.path.insert(0, str(FOLDER))
    return importlib.import_module(name)


def culprit(program):
    """The line that is to blame."""
    lines = Path(program.__file__).read_text().splitlines()
    (line,) = [number for number, text in enumerate(lines, 1) if text.endswith("# culprit")]
    return line


def audited(program, devices, dtype):
    count = math.prod(program.MESH.values())
    mesh = Mesh(numpy.array(devices[:count]).reshape(*program.MESH.values()), tuple(program.MESH))

    def one(leaf, name):
        shape, spec = leaf
        kind = jnp.int32 if name == "ids" else dtype
        return jax.ShapeDtypeStruct(shape, kind, sharding=NamedSharding(mesh, spec))

    args = [
        jax.tree.map(lambda leaf, name=name: one(leaf, name), tree, is_leaf=is_leaf)
        for name, tree in program.ARGUMENTS.items()
    ]
    is_spec = lambda node: isinstance(node, PartitionSpec)
    results = jax.tree.map(lambda spec: NamedSharding(mesh, spec), program.RESULTS, is_leaf=is_spec)
    with jax.sharding.use_mesh(mesh) if hasattr(jax.sharding, "use_mesh") else mesh:
        return shardc.audit(jax.jit(program.program, out_shardings=results), *args, hardware="tpu-v5e")


def names_culprit(program, found):
    """Whether the advice names the value that is known to be annotated wrongly, with its line and what to write."""
    value, to = program.WANTED

    def is_it(advice):
        # A weight stands with what an optimiser keeps of it: `p['w'], m['w'], results 0, 2`.
        same = advice.value == value or advice.value.startswith(f"{value}, ")
        return same and advice.new.startswith(to) and advice.source and advice.source.line == culprit(program)

    return any(map(is_it, found.advice))


def row(name, platform, devices):
    program = program_of(name)
    started = time.time()
    found = audited(program, devices, jnp.float32 if platform == "cpu" else jnp.bfloat16)
    again = found.compiled_again
    return {
        "name": name,
        "named": names_culprit(program, found),
        "first": found.advice[0].value if found.advice else None,
        "as_is": again and again.wire_bytes_as_is,
        "edited": again and again.wire_bytes_edited,
        "optimum": again and again.wire_bytes_optimum,
        "constraints": again and again.constraints,
        "left": found.raw["compiled_again"]["left"] if again else found.raw["not_compiled_because"],
        "why": found.raw["no_optimum_because"],
        "seconds": round(time.time() - started, 1),
        "text": found.text,
    }


def times(found):
    """What XLA sends with the advice, of the optimum."""
    if found["optimum"]:
        return f"{found['edited'] / found['optimum']:.2f}"
    return "1.00" if found["edited"] == 0 else "-"


def table(folder):
    """The rows of the README, from what was found."""
    yield "| program | is | culprit | CPU: as it is | with the advice | of the optimum | TPU: as it is | with the advice | of the optimum |"
    yield "|---|---|---|---|---|---|---|---|---|"
    for name in NAMES:
        program = program_of(name)
        cells = [f"[{name}]({name}.py)", program.__doc__.splitlines()[0].rstrip("."), f"line {culprit(program)}"]
        for platform in ("cpu", "tpu"):
            path = folder / f"{name}.{platform}.json"
            if not path.exists():
                cells += ["-"] * 3
                continue
            found = json.loads(path.read_text())
            advice = f" ({found['constraints']} constraints)" if found["constraints"] else ""
            cells += [f"{found['as_is'] / 1e6:.3g} MB", f"{found['edited'] / 1e6:.3g} MB{advice}", times(found)]
        yield f"| {' | '.join(cells)} |"


def write_page(folder):
    """Puts the table between its marks."""
    page = FOLDER / "README.md"
    head, rest = page.read_text().split("<!-- table -->\n")[0::2]
    page.write_text("<!-- table -->\n".join([head, "\n".join(table(folder)) + "\n", rest]))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", default=NAMES)
    parser.add_argument("--on", choices=("cpu", "tpu"), default="cpu")
    parser.add_argument("--json", type=Path, help="a folder for what was found")
    parser.add_argument("--page", action="store_true", help="write the table of what is in that folder")
    asked = parser.parse_args()
    if asked.page:
        write_page(asked.json)
        sys.exit()
    where = devices_of(asked.on)
    for name in asked.names:
        found = row(name, asked.on, where)
        ratio = found["edited"] / found["optimum"] if found["optimum"] else 1 + found["edited"]
        print(
            f"{name:26}{'named' if found['named'] else 'NOT NAMED':10}{found['as_is'] or 0:12}{found['edited'] or 0:12}"
            f"{found['optimum'] or 0:12}{ratio:7.3f} {found['constraints']} {found['seconds']} s {found['why'] or ''}",
            flush=True,
        )
        if asked.json:
            asked.json.mkdir(parents=True, exist_ok=True)
            text = found.pop("text")
            (asked.json / f"{name}.{asked.on}.json").write_text(json.dumps(found, indent=1) + "\n")
            (asked.json / f"{name}.{asked.on}.txt").write_text(text)
