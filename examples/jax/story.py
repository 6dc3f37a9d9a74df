"""Audits a program of this folder as XLA compiles it: `python story.py decoder [--edited] [--on cpu|tpu]`.

For eight virtual devices of the CPU, or ahead of time for eight chips of a TPU v5e, which needs libtpu and no TPU.
"""

from __future__ import annotations

import argparse
import importlib
import inspect
import math
import os

os.environ.setdefault("XLA_FLAGS", "--xla_force_host_platform_device_count=8")

os.environ.setdefault("JAX_PLATFORMS", "cpu")
# Without these libtpu looks for a machine with TPUs.
os.environ.setdefault("TPU_SKIP_MDS_QUERY", "1")
os.environ.setdefault("TPU_WORKER_HOSTNAMES", "localhost")

import jax
import numpy
import shardc
from jax.sharding import Mesh, NamedSharding, PartitionSpec

PROGRAMS = ("decoder", "experts", "training")


def specs_of(program, edited):
    """How the arguments lie, and the results; a program has one edit, in one of the two."""
    takes_edit = "edited" in inspect.signature(program.specs).parameters
    return program.specs(edited) if takes_edit else program.specs(), program.result_specs(edited)


def devices_of(platform):
    """What a program is compiled for."""
    if platform == "cpu":
        return jax.devices()
    from jax.experimental import topologies

    return topologies.get_topology_desc("v5e:2x4", "tpu").devices


def audited(program, edited, platform="cpu"):
    """What the compiled program sends, and what to edit."""
    devices = numpy.array(devices_of(platform)[: math.prod(program.MESH.values())])
    mesh = Mesh(devices.reshape(*program.MESH.values()), tuple(program.MESH))

    def placed(specs):
        is_spec = lambda node: isinstance(node, PartitionSpec)
        return jax.tree.map(lambda spec: NamedSharding(mesh, spec), specs, is_leaf=is_spec)

    inputs, results = map(placed, specs_of(program, edited))
    args = jax.tree.map(
        lambda one, sharding: jax.ShapeDtypeStruct(one.shape, one.dtype, sharding=sharding), program.shapes(), inputs
    )
    return shardc.audit(jax.jit(program.function, out_shardings=results), *args, hardware="tpu-v5e")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("program", choices=PROGRAMS)
    parser.add_argument("--edited", action="store_true", help="with the annotation that the audit advises")
    parser.add_argument("--on", choices=("cpu", "tpu"), default="cpu")
    asked = parser.parse_args()
    print(audited(importlib.import_module(asked.program), asked.edited, asked.on))
