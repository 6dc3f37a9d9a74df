"""Exports examples to PyTorch and runs them on processes of this machine, over gloo.

    python compiler/export/python/test_torch.py --shardc target/debug/shardc

Each module is linted, and every layer of it is run on 4 and on 8 processes in f64 and compared with
its unsharded function. A file whose plan is for more devices gets a smaller mesh of the same axes.
"""

import argparse
import contextlib
import datetime
import importlib.util
import io
import os
import re
import subprocess
import sys
import tempfile
import time
import traceback
from pathlib import Path

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

ROOT = Path(__file__).resolve().parents[3]


def examples():
    """Every example that is no error, and the plans beside this file."""
    found = sorted((ROOT / "examples").rglob("*.shard"))
    plans = sorted(Path(__file__).with_name("plans").glob("*.shir"))
    return [path for path in found if "errors" not in path.parts] + plans


def smaller(mesh, processes):
    """The same axes with sizes of 2 until there are so many devices, or one larger; as an option."""
    sizes, rest = {axis: 1 for axis in mesh}, processes
    for axis in mesh:
        if rest > 1:
            sizes[axis], rest = 2, rest // 2
    sizes[next(iter(mesh))] *= rest
    return "--mesh=" + ",".join(f"{axis}={size}" for axis, size in sizes.items())


def exported(shardc, source, processes, options):
    """The text of a module for so many processes; none where there is no such plan."""
    export = [shardc, "export", "torch", "--dtype=f64", "--small", *options, source]
    run = subprocess.run(export, capture_output=True, text=True, check=False)
    if run.returncode:
        return None, run.stderr
    mesh = re.search(r"^MESH = \{([^}]*)\}", run.stdout, re.MULTILINE)[1]
    mesh = {axis: int(size) for axis, size in re.findall(r'"([^"]*)": (\d+)', mesh)}
    count = 1
    for size in mesh.values():
        count *= size
    if count == processes:
        return run.stdout, None
    if source.endswith(".shir"):
        return None, f"has {count} devices"
    run = subprocess.run(
        [*export, smaller(mesh, processes)], capture_output=True, text=True, check=False
    )
    return (None, run.stderr) if run.returncode else (run.stdout, None)


def loaded(path):
    """The module of a file."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def work(number, folder, processes):
    """All modules of a folder on one of so many processes; what fails is written down."""
    torch.set_num_threads(1)
    for path in sorted(Path(folder).rglob("*.py")):
        module = loaded(path)
        if number == 0:
            Path(folder, "started").write_text(path.name)
        # Its own world: groups have threads, and would be too many.
        dist.init_process_group(
            "gloo",
            init_method=f"file://{path}.store",
            rank=number,
            world_size=processes,
            timeout=datetime.timedelta(seconds=120),
        )
        said = io.StringIO()
        try:
            module.make_groups()
            with contextlib.redirect_stdout(said):
                for name, layer in module.LAYERS.items():
                    if not module.check(name, layer):
                        raise RuntimeError("differs from its unsharded form")
        except Exception:
            failed = said.getvalue() + traceback.format_exc()
            path.with_suffix(f".failed.{number}").write_text(failed)
            # The others wait for what this process will not send: they are ended.
            raise
        dist.barrier()
        dist.destroy_process_group()


def main():
    """Runs all modules that are asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--shardc", required=True, help="the compiler's binary")
    parser.add_argument("--out", type=Path, default=ROOT / "target" / "exports-torch")
    parser.add_argument("--fuse", action="store_true", help="plans with loops")
    parser.add_argument(
        "--processes", default="4,8", help="how many, one after another"
    )
    parser.add_argument("files", nargs="*", type=Path, help="in place of the examples")
    args = parser.parse_args()
    shardc, failures, modules, started = (
        str(Path(args.shardc).resolve()),
        [],
        0,
        time.time(),
    )
    for processes in map(int, args.processes.split(",")):
        with tempfile.TemporaryDirectory() as folder:
            for source in args.files or examples():
                path = source.resolve()
                options = ["--fuse"] if args.fuse and path.suffix == ".shard" else []
                text, why = exported(shardc, str(path), processes, options)
                name = "_".join(path.relative_to(ROOT).with_suffix(".py").parts)
                if text is None:
                    print(
                        f"  {name}: not on {processes} processes: {why.strip().splitlines()[0]}"
                    )
                    continue
                (Path(folder) / name).write_text(text)
                modules += 1
            for command in (["check"], ["format", "--check"]):
                ruff = [Path(sys.executable).parent / "ruff", *command, folder]
                if subprocess.run(ruff, check=False).returncode:
                    failures.append(f"ruff {command[0]}")
            try:
                mp.spawn(work, (folder, processes), nprocs=processes)
            except (mp.ProcessExitedException, mp.ProcessRaisedException) as error:
                at = Path(folder, "started").read_text()
                failures.append(f"{processes} processes, {at}: {str(error)[:500]}")
            for failed in sorted(Path(folder).rglob("*.failed.*")):
                failures.append(f"{failed.name}: {failed.read_text()[-1500:]}")
    for failure in failures:
        print(f"FAILED {failure}")
    took = time.time() - started
    print(f"{modules} modules, {len(failures)} failures, {took:.0f} s")
    return 1 if failures or not modules else 0


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    sys.exit(main())
