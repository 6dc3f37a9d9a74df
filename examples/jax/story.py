"""Audits a program of this folder as XLA compiles it for eight virtual devices: `python story.py decoder [--edited]`."""

from __future__ import annotations

import argparse
import importlib
import math
import os

os.environ.setdefault("XLA_FLAGS", "--xla_force_host_platform_device_count=8")

import jax
from jax.sharding import NamedSharding, PartitionSpec

import shardc


def audited(program, edited):
    """What the compiled program sends, and what to edit."""
    devices = jax.devices()[: math.prod(program.MESH.values())]
    mesh = jax.sharding.Mesh(
        __import__("numpy").array(devices).reshape(*program.MESH.values()), tuple(program.MESH)
    )
    specs = jax.tree.map(
        lambda spec: NamedSharding(mesh, spec),
        program.specs(edited),
        is_leaf=lambda node: isinstance(node, PartitionSpec),
    )
    args = jax.tree.map(
        lambda shape, sharding: jax.ShapeDtypeStruct(shape.shape, shape.dtype, sharding=sharding),
        program.shapes(),
        specs,
    )
    out = (*specs[:3], None, None) if program.__name__ == "training" else specs[0]
    return shardc.audit(jax.jit(program.function, out_shardings=out), *args, hardware="tpu-v5e")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("program", choices=["decoder", "experts", "training"])
    parser.add_argument("--edited", action="store_true", help="with the annotation that the audit advises")
    asked = parser.parse_args()
    print(audited(importlib.import_module(asked.program), asked.edited))
