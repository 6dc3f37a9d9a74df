"""Runs exported modules over 4 processes of 2 devices each, as on several machines.

    python compiler/export/python/test_processes.py --shardc target/debug/shardc

The processes find each other by `jax.distributed`, and send over sockets (gloo). Each makes the same
inputs, runs its part, collects the whole results, and compares them with the unsharded source.
"""

import argparse
import importlib.util
import os
import socket
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
PROCESSES, DEVICES = 4, 2
FILES = [
    ROOT / "examples" / "llama" / "llama_2_13b.shard",
    ROOT / "examples" / "gpt3" / "tensor_parallel.shard",
    Path(__file__).with_name("plans") / "moves.shir",
]


def worker(number, port, paths):
    """Runs modules as one of the processes; 0 if all results are right."""
    import jax

    jax.config.update("jax_num_cpu_devices", DEVICES)
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    jax.distributed.initialize(f"localhost:{port}", PROCESSES, number)
    from jax.experimental.multihost_utils import process_allgather

    def collected(function):
        def run(*held):
            results = jax.tree.leaves(function(*held))
            return [process_allgather(value, tiled=True) for value in results]

        return run

    right = jax.device_count() == PROCESSES * DEVICES
    for path in paths:
        spec = importlib.util.spec_from_file_location(Path(path).stem, path)
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        for name, layer in module.LAYERS.items():
            layer["sharded"] = collected(layer["sharded"])
            right &= module.check(name, layer)
    return 0 if right else 1


def exported(shardc, out):
    """The modules, in a folder."""
    out.mkdir(parents=True, exist_ok=True)
    paths = []
    for source in FILES:
        path = out / f"{source.stem}.py"
        export = [shardc, "export", "jax", "--dtype", "f64", "--small", str(source)]
        run = subprocess.run(export, capture_output=True, text=True, check=True)
        path.write_text(run.stdout)
        paths.append(str(path))
    return paths


def main():
    """Exports the modules and runs all processes."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--shardc", help="the compiler's binary")
    parser.add_argument("--out", type=Path, default=ROOT / "target/exports-processes")
    parser.add_argument("--worker", nargs="+", help="the number, the port, the modules")
    args = parser.parse_args()
    if args.worker:
        number, port, *paths = args.worker
        return worker(int(number), int(port), paths)
    paths = exported(str(Path(args.shardc).resolve()), args.out)
    with socket.socket() as free:
        free.bind(("localhost", 0))
        port = free.getsockname()[1]
    environment = {**os.environ, "JAX_PLATFORMS": "cpu"}
    started = [
        subprocess.Popen(
            [sys.executable, __file__, "--worker", str(number), str(port), *paths],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env=environment,
        )
        for number in range(PROCESSES)
    ]
    said = [process.communicate(timeout=900)[0] for process in started]
    wrong = [n for n, process in enumerate(started) if process.returncode]
    for number in wrong or []:
        print(f"process {number}:\n{said[number][-3000:]}")
    results = said[0].count(" equal, ")
    print(
        f"{PROCESSES} processes of {DEVICES} devices: {len(paths)} modules, "
        f"{results} results, {len(wrong)} processes failed"
    )
    return 1 if wrong or not results else 0


if __name__ == "__main__":
    sys.exit(main())
