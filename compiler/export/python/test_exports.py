"""Exports every example at small sizes, runs it on virtual devices, and audits what it sends.

    python compiler/export/python/test_exports.py --shardc target/debug/shardc

Each module is linted, run beside its unsharded form, and compiled: its collectives are held to
those of the plan, kind by kind and byte by byte. With `--to stablehlo` the functions of the
exported StableHLO stand in place of those of the module: parsed, verified, compiled by jaxlib, run
on the same data, and held to the same.
"""

import argparse
import contextlib
import importlib.util
import io
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
import mutants
import stablehlo

ROOT = Path(__file__).resolve().parents[3]


def examples():
    """Every example that is no error, and the plans beside this file."""
    found = sorted((ROOT / "examples").rglob("*.shard"))
    plans = sorted(Path(__file__).with_name("plans").glob("*.shir"))
    return [path for path in found if "errors" not in path.parts] + plans


def output(command):
    """What a command prints."""
    run = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=False)
    if run.returncode:
        raise RuntimeError(run.stderr)
    return run.stdout


def exported(shardc, source, out, options, style):
    """The module of a source file, and the layers of its plan as JSON."""
    export = [shardc, "export", "jax", "--dtype", "f64", f"--style={style}"]
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(output([*export, "--small", *options, source]))
    if style == "shard-map":
        write_stablehlo(
            [shardc, "export", "stablehlo", "--small", *options, source], out
        )
    lower = [shardc, "lower", "--emit", "json", "--small", *options, source]
    return out, json.loads(output(lower))["layers"]


def write_stablehlo(command, out):
    """The same as StableHLO, beside the module of JAX."""
    out.with_suffix(".mlir").write_text(output([*command, "--dtype", "f64"]))


def random_programs(shardc, folder):
    """The modules that `random-exports` has written, and the layers of their plans as JSON."""
    # Any chip will do that has a way to the host: no time is looked at.
    chip = ["--hardware", "a100-80g"]
    lower = [shardc, "lower", "--emit", "json", *chip]
    for path in sorted(folder.glob("*.py")):
        shir = str(path.with_suffix(".shir"))
        plan = output([*lower, shir])
        write_stablehlo([shardc, "export", "stablehlo", *chip, shir], path)
        yield path, json.loads(plan)["layers"]


def loaded(path):
    """The module of a file."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def stacked(plan, layer):
    """The plan of a layer as every application of its stack runs it."""
    of_stack = {result.removeprefix("-> ") for result in layer["stacked"]}
    times = next(
        layer["shapes"][name][0][0] for name in of_stack & set(layer["shapes"])
    )
    each = [{**instr, "repeat": times} for instr in plan["instructions"]]
    return {**plan, "instructions": each}


def judged(path, layers, audited, quiet, to="jax", seed=0):
    """What is wrong with a module on some data, and what is said of it."""
    module = loaded(path)
    if to == "stablehlo":
        text = path.with_suffix(".mlir").read_text()
        module = stablehlo.with_functions(module, text)
    wrong, said, sent = [], [], 0
    named = [n for n in module.LAYERS if not n.endswith(".stack")]
    plans = dict(zip(named, layers, strict=True))
    text_of_module = path.read_text()
    for name, layer in module.LAYERS.items():
        plan = plans[name.removesuffix(".stack")]
        if name != name.removesuffix(".stack"):
            plan = stacked(plan, layer)
        with contextlib.redirect_stdout(io.StringIO() if quiet else sys.stdout):
            right = module.check(name, layer, seed)
        if not right:
            wrong.append(f"{name}: differs from its unsharded form")
        if audited:
            _, held = module.inputs(layer, 0)
            text = layer["sharded"].lower(*held).compile().as_text()
            chains = audit.chains_of_exchanges(text_of_module, name)
            differs, merged, count = audit.compared(plan, text, to, chains)
            wrong += [f"{name}: {what}" for what in differs]
            said += [f"{name}: {what}" for what in merged]
            sent += count
    return wrong, said, sent


def jobs(args):
    """The name of each module that is asked for, and what makes it and its plan."""
    shardc = str(Path(args.shardc).resolve())
    if args.random:
        for path, layers in random_programs(shardc, args.random.resolve()):
            yield path.name, lambda made=(path, layers): made
        return
    for source in args.files or examples():
        path = source.resolve()
        # A plan that is given has its loops, or has none.
        options = ["--fuse"] if args.fuse and path.suffix == ".shard" else []
        inside = path.is_relative_to(ROOT / "examples")
        name = path.relative_to(ROOT / "examples") if inside else Path(path.name)
        out = (args.out / name).with_suffix(".py")
        made = (shardc, str(path), out, options, args.style)
        yield str(name), lambda made=made: exported(*made)


# On how much data a mutant is tried that some of it does not show.
SEEDS = 16


def judge_mutants(args):
    """How many of so many mutants the test does not see."""
    made = [make() for _, make in jobs(args)]
    modules = [(at, path.read_text()) for at, (path, _) in enumerate(made)]
    spoiled = args.out / "spoiled.py"
    unseen = 0
    for at, name, line, text in mutants.chosen(modules, args.mutants):
        path, layers = made[at]
        spoiled.write_text(text)
        seen = "an exception"
        try:
            # Of some data a mask leaves nothing that the mutant would change.
            for seed in range(SEEDS):
                wrong, _, _ = judged(spoiled, layers, seed == 0, args.quiet, seed=seed)
                if wrong:
                    break
            seen = wrong[0][:150] if wrong else None
        except Exception as error:  # noqa: BLE001 - whatever it is, the mutant is seen
            seen = f"{type(error).__name__}"
        unseen += seen is None
        if seen is None or not args.quiet:
            verdict = "seen" if seen else "NOT SEEN"
            print(f"{verdict}: {path.name}:{line} {name}: {seen}")
        jax.clear_caches()
    spoiled.unlink(missing_ok=True)
    print(f"{args.mutants} mutants, {unseen} not seen")
    return 1 if unseen else 0


def main():
    """Judges all modules that are asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--shardc", required=True, help="the compiler's binary")
    parser.add_argument("--out", type=Path, default=ROOT / "target" / "exports")
    parser.add_argument(
        "--to", nargs="+", default=["jax"], choices=["jax", "stablehlo"]
    )
    parser.add_argument(
        "--style", default="shard-map", choices=["shard-map", "constraints"]
    )
    parser.add_argument("--fuse", action="store_true", help="plans with loops")
    parser.add_argument("--random", type=Path, help="what random-exports wrote")
    parser.add_argument("--quiet", action="store_true", help="say what is odd alone")
    parser.add_argument("--mutants", type=int, help="spoil so many modules instead")
    parser.add_argument("files", nargs="*", type=Path, help="in place of the examples")
    args = parser.parse_args()
    if args.mutants:
        return judge_mutants(args)
    failures, sent, files, started = [], 0, 0, time.time()
    for name, make in jobs(args):
        wrong, said, count = [], [], 0
        try:
            made = make()
            audited = args.style == "shard-map"
            for to in args.to:
                found = judged(*made, audited, args.quiet, to)
                wrong, said = wrong + found[0], said + found[1]
                count += found[2]
        except Exception as error:  # noqa: BLE001 - whatever it is, the module fails
            wrong.append(f"{type(error).__name__}: {str(error)[:1500]}")
        files, sent = files + 1, sent + count
        for what in said:
            print(f"  {name}: {what}")
        for what in wrong:
            failures.append(f"{name}: {what}")
            print(f"FAILED {failures[-1]}", flush=True)
        jax.clear_caches()
    for command in (["check"], ["format", "--check"]):
        ruff = [Path(sys.executable).parent / "ruff", *command, args.random or args.out]
        if subprocess.run(ruff, check=False).returncode:
            failures.append(f"ruff {command[0]}")
    took = time.time() - started
    print(
        f"{files} modules, {sent} collectives, {len(failures)} failures, {took:.0f} s"
    )
    return 1 if failures or not files else 0


if __name__ == "__main__":
    sys.exit(main())
