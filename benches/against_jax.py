"""The interpreter against JAX on as many virtual CPU devices: one feed-forward layer in f32.

    python3 benches/against_jax.py [--rounds 3] [--devices 64]

Both execute the plan of `runtime/benches/feed_forward.rs`, which is 2D weight-stationary: 10.7
GFLOP, the same collectives, inputs made beforehand. The interpreter's times are those of
`cargo bench -p shard-runtime`. The two take turns, and the least time of each counts. On a shared
machine the ratio of the two says more than either time. The ratio of processor times says more than
that of clock times, since JAX has a thread for each device and gets more of the machine. CI does not
run this.

Needs the packages of `compiler/export/python/requirements.txt`; `compiler/export/python/run` makes a
venv with them, `target/export-venv`.
"""

import argparse
import os
import re
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SIZES = {"B": 1024, "E": 1024, "F": 2560}
TURNS_OF_JAX = 11


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=3, help="turns of each")
    parser.add_argument("--devices", type=int, default=64, help="a cube: 8, 64 or 512")
    return parser.parse_args()


def interpreter(devices):
    """Seconds of the interpreter, sharded and unsharded, each by the clock and of processors."""
    bench = ["cargo", "bench", "-q", "-p", "shard-runtime", "--bench", "feed_forward"]
    ran = subprocess.run(
        [*bench, "--", "--devices", str(devices)],
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
    )
    found = re.search(
        r"sharded ([\d.]+) s, unsharded ([\d.]+) s.* of processors ([\d.]+) s and ([\d.]+) s",
        ran.stdout,
    )
    if found is None:
        sys.exit(f"the benchmark says something else:\n{ran.stdout}")
    sharded, whole, of_sharded, of_whole = (float(number) for number in found.groups())
    return (sharded, of_sharded), (whole, of_whole)


def jax_layer(devices):
    """A function that executes the plan once, and one that does it unsharded."""
    flag = f"--xla_force_host_platform_device_count={devices}"
    os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} {flag}".strip()
    import jax
    import jax.numpy as jnp
    import numpy as np
    from jax import lax
    from jax.sharding import NamedSharding
    from jax.sharding import PartitionSpec as P

    side = round(devices ** (1 / 3))
    mesh = jax.make_mesh((side, side, side), ("x", "y", "z"))
    specs = (P(None, ("x", "y", "z")), P("x", ("y", "z")), P(("y", "z"), "x"))

    def layer(x, w_in, w_out):
        x = lax.all_gather(x, ("y", "z"), axis=1, tiled=True)
        h = jnp.einsum("BE,EF->BF", x, w_in)
        h = lax.psum_scatter(h, "x", scatter_dimension=1, tiled=True)
        a = jax.nn.gelu(h, approximate=True)
        a = lax.all_gather(a, "x", axis=1, tiled=True)
        y = jnp.einsum("BF,FE->BE", a, w_out)
        return lax.psum_scatter(y, ("y", "z"), scatter_dimension=1, tiled=True)

    def whole(x, w_in, w_out):
        h = jnp.einsum("BE,EF->BF", x, w_in)
        return jnp.einsum("BF,FE->BE", jax.nn.gelu(h, approximate=True), w_out)

    shapes = [("B", "E"), ("E", "F"), ("F", "E")]
    random = np.random.default_rng(0)
    given = [
        random.uniform(-1, 1, [SIZES[d] for d in dims]).astype("float32")
        for dims in shapes
    ]
    placed = [
        jax.device_put(value, NamedSharding(mesh, spec))
        for value, spec in zip(given, specs, strict=True)
    ]
    sharded = jax.jit(
        jax.shard_map(
            layer, mesh=mesh, in_specs=specs, out_specs=specs[0], check_vma=False
        )
    )
    on_one = [jax.device_put(value, jax.devices()[0]) for value in given]
    unsharded = jax.jit(whole)
    made, expected = np.asarray(sharded(*placed)), np.asarray(unsharded(*on_one))
    off = np.max(np.abs(made - expected)) / np.max(np.abs(expected))
    if off > 1e-4:
        sys.exit(f"JAX's two results differ by {off} of their scale")
    return (
        lambda: jax.block_until_ready(sharded(*placed)),
        lambda: jax.block_until_ready(unsharded(*on_one)),
    )


def took(work):
    """The least time of some turns, and the mean time of processors."""
    times, before = [], time.process_time()
    for _ in range(TURNS_OF_JAX):
        since = time.perf_counter()
        work()
        times.append(time.perf_counter() - since)
    return min(times), (time.process_time() - before) / TURNS_OF_JAX


def best(turns):
    """The least of each time over all turns."""
    return tuple(min(times) for times in zip(*turns, strict=True))


def main():
    given = arguments()
    interpreter(given.devices)  # builds it
    layers = jax_layer(given.devices)
    ours, theirs = [], []
    for _ in range(given.rounds):
        ours.append(interpreter(given.devices))
        theirs.append(tuple(took(layer) for layer in layers))
    print(f"{given.devices} devices, seconds (of processors)")
    found = []
    for name, turns in (("interpreter", ours), ("JAX", theirs)):
        sharded, whole = (best(times) for times in zip(*turns, strict=True))
        shown = (f"{clock:.3f} ({cores:.3f})" for clock, cores in (sharded, whole))
        print(f"  {name:11} {', unsharded '.join(shown)}")
        found.append(sharded)
    by_clock, of_processors = (mine / other for mine, other in zip(*found, strict=True))
    print(
        f"  the interpreter takes {by_clock:.2f} times as long as JAX"
        f" ({of_processors:.2f} times its processors)"
    )


if __name__ == "__main__":
    main()
