"""Runs the layer of an exported module of JAX on the data that `shardc run` has written.

    python engine.py FOLDER [--process P --processes N --coordinator HOST:PORT]

FOLDER has `module.py`, the number of devices in `devices`, and for each parameter in `in/` the
blocks of all devices, one behind another. The blocks of the results go to `out/`, and what XLA
made of the layer to `compiled.hlo`.
"""

import argparse
import importlib.util
import sys
from pathlib import Path

import jax
import numpy as np
from engine_hosts import let_gloo_of_jax


def loaded(path):
    """The module of a file."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def placed(module, layer, name, blocks, numbers):
    """A parameter on the devices of this process, each with the block of its number."""
    shape, dtype = layer["shapes"][name]
    front = [count for count in layer["terms"].get(name, ()) if count]
    memory = "pinned_host" if name in layer["host"] else None
    sharding = jax.sharding.NamedSharding(
        module.MESH, layer["params"][name], memory_kind=memory
    )
    held = []
    for device in sharding.addressable_devices:
        block = blocks[numbers[device]].astype(dtype)
        block = block.reshape([1] * len(front) + list(block.shape))
        there = jax.sharding.SingleDeviceSharding(device, memory_kind=memory)
        held.append(jax.device_put(block, there))
    whole = (*front, *shape)
    return jax.make_array_from_single_device_arrays(whole, sharding, held)


def main():
    """One process of the run."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--process", type=int, default=0)
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--coordinator")
    args = parser.parse_args()
    devices = int((args.folder / "devices").read_text())
    # Without accelerators, so many devices of the CPU.
    jax.config.update("jax_num_cpu_devices", devices // args.processes)
    if args.processes > 1:
        let_gloo_of_jax(args.coordinator)
        jax.distributed.initialize(args.coordinator, args.processes, args.process)
    if jax.device_count() < devices:
        sys.exit(
            f"the plan has {devices} devices, and JAX sees {jax.device_count()} of "
            f"{jax.default_backend()}; JAX_PLATFORMS=cpu takes those of the CPU"
        )
    module = loaded(args.folder / "module.py")
    numbers = {device: at for at, device in enumerate(module.MESH.devices.flat)}
    ((_, layer),) = module.LAYERS.items()
    held = []
    for at, name in enumerate(layer["shapes"]):
        blocks = np.load(args.folder / "in" / f"{at}.npy", mmap_mode="r")
        held.append(placed(module, layer, name, blocks, numbers))
    compiled = layer["sharded"].lower(*held).compile()
    if args.process == 0:
        (args.folder / "compiled.hlo").write_text(compiled.as_text())
    found = jax.tree.leaves(compiled(*held))
    for at, (name, value) in enumerate(zip(layer["results"], found, strict=True)):
        front = sum(map(bool, layer["terms"].get("-> " + name, ())))
        for shard in value.addressable_shards:
            block = np.asarray(shard.data).astype(np.float64)
            path = args.folder / "out" / f"{at}.{numbers[shard.device]}.npy"
            np.save(path, block.reshape(block.shape[front:]))


if __name__ == "__main__":
    main()
