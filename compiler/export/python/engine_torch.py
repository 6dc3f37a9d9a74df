"""Runs the layer of an exported module of PyTorch on the data that `shardc run` has written.

    python engine.py FOLDER [--process P --processes N --coordinator HOST:PORT]

FOLDER has `module.py`, the number of devices in `devices`, and for each parameter in `in/` the
blocks of all devices, one behind another. The blocks of the results go to `out/`. Each of the N
has a worker of its own for each of its devices, which writes the collectives that it has called to
`sent.DEVICE`, a line each: kind, elements that it sent to others, bytes of an element.
"""

import argparse
import importlib.util
import sys
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from engine_hosts import let_gloo_of_torch


def loaded(path):
    """The module of a file."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def counted(sent):
    """Makes the collectives of PyTorch note in `sent` what this process sends by them."""

    def note(kind, tensor, elements):
        sent.append(f"{kind} {elements} {tensor.element_size()}")

    def wrapped(kind, call, elements):
        def counting(*args, group=None, **rest):
            count, me = dist.get_world_size(group), dist.get_rank(group)
            note(kind(args), args[0], elements(args, count, me))
            return call(*args, group=group, **rest)

        return counting

    def across(args, count, me):
        if len(args) > 3:
            return sum(args[3]) - args[3][me]
        return args[1].numel() * (count - 1) // count

    def split(args):
        return "collective-permute" if len(args) > 3 else "all-to-all"

    calls = {
        "all_gather_into_tensor": (
            "all-gather",
            lambda a, k, _: a[1].numel() * (k - 1),
        ),
        "all_reduce": (
            "all-reduce",
            lambda a, k, _: -(-2 * a[0].numel() * (k - 1) // k),
        ),
        "reduce_scatter_tensor": (
            "reduce-scatter",
            lambda a, k, _: a[0].numel() * (k - 1),
        ),
        "all_to_all_single": (split, across),
    }
    for name, (kind, elements) in calls.items():
        of = kind if callable(kind) else lambda _, kind=kind: kind
        setattr(dist, name, wrapped(of, getattr(dist, name), elements))


def work(worker, first, count, folder, meeting):
    """What one device does; `first` is the number of the first device of this process."""
    number = first + worker
    module = loaded(folder / "module.py")
    if module.DEVICE == "cuda":
        torch.cuda.set_device(worker)
    else:
        torch.set_num_threads(1)
    backend = "nccl" if module.DEVICE == "cuda" else "gloo"
    dist.init_process_group(backend, init_method=meeting, rank=number, world_size=count)
    module.make_groups()
    ((_, layer),) = module.LAYERS.items()
    held = []
    for at, (name, (_, dtype)) in enumerate(layer["shapes"].items()):
        blocks = np.load(folder / "in" / f"{at}.npy", mmap_mode="r")
        block = torch.from_numpy(np.array(blocks[number])).to(dtype)
        held.append(block if name in layer["host"] else block.to(module.DEVICE))
    sent = []
    counted(sent)
    found = layer["sharded"](*held)
    (folder / f"sent.{number}").write_text("\n".join(sent))
    found = found if isinstance(found, tuple) else (found,)
    for at, (_, value) in enumerate(zip(layer["results"], found, strict=True)):
        block = value.to(torch.float64).cpu().numpy()
        np.save(folder / "out" / f"{at}.{number}.npy", block)
    dist.barrier()
    dist.destroy_process_group()


def main():
    """One process of the run."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--process", type=int, default=0)
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--coordinator")
    args = parser.parse_args()
    folder = args.folder.resolve()
    count = int((folder / "devices").read_text())
    each = count // args.processes
    there = torch.cuda.device_count()
    if torch.cuda.is_available() and there < each:
        sys.exit(
            f"this process has {each} devices of the plan, and PyTorch sees {there} of CUDA; "
            f"CUDA_VISIBLE_DEVICES= takes the CPU"
        )
    alone = args.processes == 1
    if not alone:
        let_gloo_of_torch(args.coordinator)
    meeting = f"file://{folder}/store" if alone else f"tcp://{args.coordinator}"
    given = (args.process * each, count, folder, meeting)
    try:
        mp.spawn(work, given, nprocs=each)
    except (mp.ProcessRaisedException, mp.ProcessExitedException) as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
