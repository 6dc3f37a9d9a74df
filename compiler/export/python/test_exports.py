"""Exports every example at small sizes, runs it on virtual devices, and audits what it sends.

    python compiler/export/python/test_exports.py --shardc target/debug/shardc

Each module is linted, run beside its unsharded form, and compiled: its collectives are held to
those of the plan, kind by kind and byte by byte.
"""

import argparse
import importlib.util
import json
import os
import subprocess
import sys
import time
from pathlib import Path

DEVICES = 256
os.environ["XLA_FLAGS"] = f"--xla_force_host_platform_device_count={DEVICES}"

import audit
import jax

ROOT = Path(__file__).resolve().parents[3]


def examples():
    """Every example that is no error."""
    found = sorted((ROOT / "examples").rglob("*.shard"))
    return [path for path in found if "errors" not in path.parts]


def exported(shardc, source, out, options):
    """The module of a source file, and the layers of its plan as JSON."""
    command = [shardc, "export", "jax", "--small", "--dtype", "f64", *options, source]
    run = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=False)
    if run.returncode:
        raise RuntimeError(run.stderr)
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(run.stdout)
    options = [o for o in options if not o.startswith("--style")]
    command = [shardc, "lower", "--small", "--emit", "json", *options, source]
    run = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=False)
    if run.returncode:
        raise RuntimeError(run.stderr)
    return out, json.loads(run.stdout)["layers"]


def loaded(path):
    """The module of a file."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def judged(path, layers, audited):
    """What is wrong with a module, and what is said of it."""
    module = loaded(path)
    wrong, said, sent = [], [], 0
    for plan, (name, layer) in zip(layers, module.LAYERS.items(), strict=True):
        if not module.check(name, layer):
            wrong.append(f"{name}: differs from its unsharded form")
        if audited:
            _, held = module.inputs(layer, 0)
            text = layer["sharded"].lower(*held).compile().as_text()
            differs, merged, count = audit.compared(plan, text)
            wrong += [f"{name}: {what}" for what in differs]
            said += [f"{name}: {what}" for what in merged]
            sent += count
    return wrong, said, sent


def main():
    """Judges all modules that are asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--shardc", required=True)
    parser.add_argument("--out", type=Path, default=ROOT / "target" / "exports")
    parser.add_argument(
        "--style", choices=["shard-map", "constraints"], default="shard-map"
    )
    parser.add_argument("--fuse", action="store_true")
    parser.add_argument("files", nargs="*", type=Path)
    args = parser.parse_args()
    shardc = str(Path(args.shardc).resolve())
    options = [f"--style={args.style}"] + (["--fuse"] if args.fuse else [])
    failures, sent, started = [], 0, time.time()
    files = args.files or examples()
    for source in files:
        source = source.resolve()
        name = (
            source.relative_to(ROOT / "examples")
            if source.is_relative_to(ROOT / "examples")
            else Path(source.name)
        )
        try:
            path, layers = exported(
                shardc, str(source), (args.out / name).with_suffix(".py"), options
            )
            wrong, said, count = judged(path, layers, args.style == "shard-map")
        except Exception as error:  # noqa: BLE001 - whatever a module raises is its failure
            wrong, said, count = [f"{type(error).__name__}: {str(error)[:1500]}"], [], 0
        sent += count
        for what in said:
            print(f"  {name}: {what}")
        for what in wrong:
            failures.append(f"{name}: {what}")
            print(f"FAILED {failures[-1]}", flush=True)
        jax.clear_caches()
    for command in (["check"], ["format", "--check"]):
        ruff = subprocess.run(
            [Path(sys.executable).parent / "ruff", *command, args.out], check=False
        )
        if ruff.returncode:
            failures.append(f"ruff {command[0]}")
    print(
        f"{len(files)} files, {sent} collectives, {len(failures)} failures, {time.time() - started:.0f} s"
    )
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
