"""What XLA sends for every example, beside what its plan sends: writes `spec/engines.md`.

    python compiler/export/python/engines.py --shardc target/debug/shardc [--on cpu,tpu] [FILE..]

Each layer is compiled at its own sizes, without a run: as the source has it, given the layouts of
its parameters and results alone; with every move of the plan as a constraint; and as the plan. What
was counted is kept under `target/engines` and not counted again.
"""

import argparse
import functools
import gzip
import importlib.util
import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
PAGE = ROOT / "spec" / "engines.md"
DEVICES = 256
# The chip that is compiled for without having one, and its slices by the number of their chips.
CHIP = "v5p"
SLICES = {
    4: "2x2x1",
    8: "2x2x2",
    16: "2x2x4",
    32: "2x4x4",
    64: "4x4x4",
    128: "4x4x8",
    256: "4x8x8",
}
STYLES = ("specs", "constraints", "plan")

KINDS = "all-gather|all-reduce|reduce-scatter|all-to-all|collective-permute"
COLLECTIVE = re.compile(rf"= (?P<type>.+?) (?P<kind>{KINDS})(?P<start>-start)?\(")
CALLED = re.compile(
    r"(?:to_apply|calls|true_computation|false_computation|body|branch_computations)="
    r"(?:%?([\w.\-]+)|\{([^}]*)\})"
)
LOOP = re.compile(r" while\(.*condition=%?([\w.\-]+), body=%?([\w.\-]+)")
TRIPS = re.compile(r'"known_trip_count":\{"n":"(\d+)"\}')
TENSOR = re.compile(r"\b(pred|[suf]\d+|bf16|f[48]e\w+|c\d+)\[([\d,]*)\]")


def bits(dtype):
    """Of one element: `bf16`, `s8`, `pred`, `f4e2m1fn`."""
    if dtype == "pred":
        return 8
    return int(re.search(r"\d+", dtype).group())


def bytes_of(types):
    """Of each tensor in a type of HLO."""
    found = []
    for dtype, sizes in TENSOR.findall(types):
        elements = 1
        for size in filter(None, sizes.split(",")):
            elements *= int(size)
        found.append(elements * bits(dtype) / 8)
    return found


def group_size(line, devices):
    """How many devices are in a group."""
    if listed := re.search(r"replica_groups=\{\{([\d,]*)\}", line):
        return len(listed.group(1).split(","))
    if counted := re.search(r"replica_groups=\[(\d+),(\d+)\]", line):
        return int(counted.group(2))
    if "replica_groups={}" in line:
        return devices
    raise ValueError(f"groups of an unknown form: {line[:300]}")


def on_the_wire(line, found, devices, scattered=False):
    """The kind of a collective, and the bytes that a device sends for it."""
    kind, sizes = found.group("kind"), bytes_of(found.group("type"))
    if kind == "collective-permute":
        # A start gives what it takes and what it gives.
        return kind, max(sizes)
    k = group_size(line, devices)
    if found.group("start") and kind == "all-gather":
        sizes = [max(sizes)] if len(sizes) < 4 else sizes[len(sizes) // 2 :]
    elif found.group("start") and kind == "all-to-all":
        sizes = sizes[: max(1, len(sizes) // 2)]
    whole = sum(sizes) * (k if kind == "reduce-scatter" else 1)
    once = whole * (k - 1) / k
    if scattered:
        return "reduce-scatter", once
    return kind, 2 * once if kind == "all-reduce" else once


def computations(text):
    """The lines of each computation, and the name of the one that is run."""
    found, entry, name = {}, None, None
    for line in text.splitlines():
        opened = re.match(r"(ENTRY )?%?([\w.\-]+) \(.*\{$", line)
        if opened:
            name = opened.group(2)
            found[name] = []
            entry = name if opened.group(1) else entry
        elif name is not None:
            found[name].append(line)
    return found, entry


def trips(line, lines):
    """How often a loop is run: XLA says so, or its condition compares with a number."""
    if said := TRIPS.search(line):
        return int(said.group(1))
    numbers = [
        int(n)
        for n in re.findall(r"[su]32\[\][^=]* constant\((\d+)\)", "\n".join(lines))
    ]
    if len(numbers) != 1:
        raise ValueError(f"a loop of unknown length: {line[:300]}")
    return numbers[0]


def sent(text, devices):
    """The bytes that a device sends in a compiled module, by kind."""
    of, entry = computations(text)
    totals, seen = {}, set()

    def walk(name, times, scattered=False):
        for line in of.get(name, []):
            if loop := LOOP.search(line):
                walk(loop.group(2), times * trips(line, of.get(loop.group(1), [])))
            elif found := COLLECTIVE.search(line):
                # One that is fused with others is spelled several times.
                chain = re.search(r'chain_id="?(\d+)', line)
                if chain and (chain.group(1), found.group("kind")) in seen:
                    continue
                if chain:
                    seen.add((chain.group(1), found.group("kind")))
                kind, count = on_the_wire(line, found, devices, scattered)
                totals[kind] = totals.get(kind, 0) + count * times
            else:
                for one, several in CALLED.findall(line):
                    for called in [one] if one else re.findall(r"[\w.\-]+", several):
                        walk(called, times, "all-reduce-scatter" in called)

    walk(entry, 1)
    return totals


def output(command):
    """What a command prints."""
    run = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=False)
    if run.returncode:
        raise RuntimeError(run.stderr[:400])
    return run.stdout


def planned(layer, floats):
    """The bytes that a device sends by a plan, by kind; floats of so many bits, or as they are."""
    width = {"f32": 32, "bf16": 16, "f16": 16, "f8": 8, "f4": 4}
    totals = {}
    for instr in layer["instructions"]:
        if wire := instr.get("wire_bytes"):
            own = width.get(instr["dtype"])
            scale = floats / own if floats and own else 1
            count = wire * instr.get("repeat", 1) * scale
            totals[instr["op"]] = totals.get(instr["op"], 0) + count
    return totals


def module_of(text, devices):
    """The module of a text, on devices that need not be there."""
    spec = importlib.util.spec_from_loader("exported", None)
    module = importlib.util.module_from_spec(spec)
    import jax

    make, jax.make_mesh = jax.make_mesh, mesh_on(devices)
    try:
        exec(compile(text, "exported", "exec"), module.__dict__)  # noqa: S102 - our own
    finally:
        jax.make_mesh = make
    return module


def mesh_on(devices):
    """A maker of meshes on given devices, in their order."""
    import numpy as np
    from jax.sharding import Mesh

    def make(sizes, names, axis_types):
        count = int(np.prod(sizes))
        if count > 1 and devices(count) is None:
            raise LookupError(f"no slice of {count} chips")
        return Mesh(devices(count).reshape(sizes), names, axis_types=axis_types)

    return make


def compiled(layer, style, mesh):
    """The HLO of a layer, compiled for its parameters' shapes."""
    import jax
    from jax.sharding import NamedSharding

    def held(name):
        shape, dtype = layer["shapes"][name]
        if style != "specs" and name in layer["terms"]:
            shape = (*filter(None, layer["terms"][name]), *shape)
        away = style != "specs" and name in layer["host"]
        memory = "pinned_host" if away else None
        sharding = NamedSharding(mesh, layer["params"][name], memory_kind=memory)
        return jax.ShapeDtypeStruct(shape, dtype, sharding=sharding)

    function = layer["sharded"]
    if style == "specs":
        if layer["terms"]:
            return None
        results = [NamedSharding(mesh, spec) for spec in layer["results"].values()]
        given = results[0] if len(results) == 1 else tuple(results)
        function = jax.jit(layer["unsharded"], out_shardings=given)
    return function.lower(*[held(name) for name in layer["shapes"]]).compile().as_text()


def hlo(kept, name, style, make):
    """The HLO of a layer in a style, compiled once and kept."""
    path = kept.with_suffix(f".{name}.{style}.hlo.gz")
    if not path.exists():
        text = make()
        if text is None:
            return None
        path.write_bytes(gzip.compress(text.encode()))
    return gzip.decompress(path.read_bytes()).decode()


def count(path, shardc, platform, devices, kept):
    """What is sent for each layer of a file, style by style, on one kind of device."""
    source = str(path)
    dtype = "f32" if platform == "cpu" else "stated"
    plans = json.loads(output([shardc, "lower", "--emit", "json", source]))["layers"]
    layers = {}
    for style in STYLES:
        how = "constraints" if style == "constraints" else "shard-map"
        export = [shardc, "export", "jax", "--dtype", dtype, f"--style={how}", source]
        module = module_of(output(export), devices)
        named = [name for name in module.LAYERS if not name.endswith(".stack")]
        for name, plan in zip(named, plans, strict=True):
            entry = layers.setdefault(name, {"devices": int(module.MESH.size)})
            entry["planned"] = planned(plan, 32 if platform == "cpu" else None)
            started = time.time()
            try:
                layer, mesh = module.LAYERS[name], module.MESH
                make = functools.partial(compiled, layer, style, mesh)
                text = hlo(kept, name, style, make)
                entry[style] = None if text is None else sent(text, module.MESH.size)
            except Exception as error:  # noqa: BLE001 - said on the page
                entry[style] = f"{type(error).__name__}: {str(error)[:200]}"
            print(
                f"{platform} {path.name} {name} {style}: {time.time() - started:.0f} s"
            )
    return layers


def devices_of(platform):
    """What gives so many devices of a kind, or none."""
    import jax
    import numpy as np
    from jax.experimental import topologies

    if platform == "cpu":
        return lambda count: np.array(jax.devices()[:count])
    found = {}

    def of(count):
        if count == 1:
            return np.array(jax.devices()[:1])
        if count in SLICES and count not in found:
            slice_of = topologies.get_topology_desc(f"{CHIP}:{SLICES[count]}", "tpu")
            found[count] = np.array(slice_of.devices)
        return found.get(count)

    return of


def main():
    """Counts what is asked for, and writes the page of all that was counted."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--shardc", required=True, help="the compiler's binary")
    parser.add_argument(
        "--on", default="cpu,tpu", help="or one, or '' for the page alone"
    )
    parser.add_argument("--out", type=Path, default=ROOT / "target" / "engines")
    parser.add_argument("files", nargs="*", type=Path, help="in place of the examples")
    args = parser.parse_args()
    cores = f"--xla_force_host_platform_device_count={DEVICES}"
    # What is sent is decided before any code is made for the CPU.
    quick = (
        "--xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true"
    )
    os.environ |= {"XLA_FLAGS": f"{cores} {quick}", "JAX_PLATFORMS": "cpu"}
    os.environ |= {"TPU_SKIP_MDS_QUERY": "1", "TPU_WORKER_HOSTNAMES": "localhost"}
    sys.argv = sys.argv[:1]
    shardc = str(Path(args.shardc).resolve())
    found = sorted((ROOT / "examples").rglob("*.shard"))
    files = args.files or [path for path in found if "errors" not in path.parts]
    for platform in filter(None, args.on.split(",")):
        devices = devices_of(platform)
        for path in map(Path.resolve, files):
            name = path.relative_to(ROOT / "examples").with_suffix(".json")
            kept = args.out / platform / name
            if kept.exists():
                continue
            kept.parent.mkdir(parents=True, exist_ok=True)
            try:
                layers = count(path, shardc, platform, devices, kept)
            except (LookupError, RuntimeError) as error:
                layers = {"": {"skipped": str(error)[:200]}}
            kept.write_text(json.dumps(layers, indent=1) + "\n")
            import jax

            jax.clear_caches()
    import engines_page

    PAGE.write_text(engines_page.page(args.out))
    return 0


if __name__ == "__main__":
    sys.exit(main())
