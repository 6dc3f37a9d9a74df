"""Runs the binary: any command, and the ones whose results are objects."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Union, overload

from ._binary import binary
from ._diagnostics import Diagnostic, ProgramError, UsageError, read
from ._results import CostReport, Explanation, RunReport

if TYPE_CHECKING:
    from ._exported import Exported
    from ._function import LaidFunction


@dataclass(frozen=True)
class Source:
    """The text of a program, in the place of a path."""

    text: str


Program = Union[str, "os.PathLike[str]", Source]
"""A path to a `.shard` or `.shir` file, or a program as text."""

Axes = Mapping[str, int]
"""Sizes of mesh axes by name, major to minor."""


@dataclass(frozen=True)
class Completed:
    """The output of a command line, and its warnings."""

    out: str
    diagnostics: Sequence[Diagnostic]


def command(*arguments: str | os.PathLike[str], input: str = "", check: bool = True) -> Completed:
    """Runs `shardc ARGUMENTS...` with a text on standard input.

    With `check`, a status of 1 raises ProgramError and any other than 0 UsageError; the exception has the diagnostics.
    """
    words = [str(binary()), *(os.fspath(word) for word in arguments), "--error-format", "json", "--progress", "never"]
    ran = subprocess.run(words, input=input.encode(), capture_output=True, check=False)
    out, err = ran.stdout.decode(), ran.stderr.decode(errors="replace")
    # Results in JSON contain the diagnostics of `check`.
    diagnostics = read(err) or read(out)
    if check and ran.returncode != 0:
        said = "\n".join(map(str, diagnostics)) or err.strip() or f"shardc ended with status {ran.returncode}"
        raise (ProgramError if ran.returncode == 1 else UsageError)(said, ran.returncode, diagnostics)
    return Completed(out, diagnostics)


def version() -> str:
    """The version of the binary."""
    # `--version` stands alone: clap accepts no other argument beside it.
    ran = subprocess.run([str(binary()), "--version"], capture_output=True, check=True)
    return ran.stdout.decode().split()[-1]


def _on(name: str, program: Program, options: Sequence[str]) -> Completed:
    if isinstance(program, Source):
        return command(name, *options, "-", input=program.text)
    path = os.fspath(program)
    # A path may begin with a dash and would be read as an option; `-` alone is standard input.
    return command(name, *options, os.path.join(".", path) if path.startswith("-") else path)


def _options(
    layer: str | None,
    phase: str | None,
    dims: Mapping[str, int | str] | None,
    mesh: Axes | None,
    hardware: None | str | os.PathLike[str],
    objective: str | None,
    memory_limit: None | int | str,
    strict: bool,
    fuse: bool,
    time_limit: float | None,
) -> list[str]:
    options = [f"--dim={name}={size}" for name, size in (dims or {}).items()]
    if mesh:
        options.append("--mesh=" + ",".join(f"{axis}={size}" for axis, size in mesh.items()))
    values = {
        "layer": layer,
        "phase": phase,
        "hardware": None if hardware is None else os.fspath(hardware),
        "objective": objective,
        "memory-limit": memory_limit,
        "time-limit": time_limit,
    }
    options += [f"--{name}={value}" for name, value in values.items() if value is not None]
    return options + [f"--{name}" for name, given in (("strict", strict), ("fuse", fuse)) if given]


@overload
def explain(
    program: Program,
    *,
    layer: str | None = None,
    phase: str | None = None,
    dims: Mapping[str, int | str] | None = None,
    mesh: Axes | None = None,
    hardware: None | str | os.PathLike[str] = None,
    objective: str | None = None,
    memory_limit: None | int | str = None,
    strict: bool = False,
    fuse: bool = False,
    time_limit: float | None = None,
    alternatives: str | None = None,
) -> Explanation: ...


@overload
def explain(
    program: Callable[..., Any],
    *args: Any,
    mesh: Any = None,
    in_specs: Any = None,
    out_specs: Any = None,
    placements: Mapping[str, Any] | None = None,
    out_placements: Sequence[Any] | None = None,
    weights: Sequence[str] | None = None,
    hardware: None | str | os.PathLike[str] = None,
    objective: str | None = None,
    memory_limit: None | int | str = None,
    fuse: bool = False,
    time_limit: float | None = None,
    alternatives: str | None = None,
) -> Explanation: ...


def explain(
    program: Program | Callable[..., Any],
    *args: Any,
    layer: str | None = None,
    phase: str | None = None,
    dims: Mapping[str, int | str] | None = None,
    mesh: Any = None,
    in_specs: Any = None,
    out_specs: Any = None,
    weights: Sequence[str] | None = None,
    placements: Mapping[str, Any] | None = None,
    out_placements: Sequence[Any] | None = None,
    hardware: None | str | os.PathLike[str] = None,
    objective: str | None = None,
    memory_limit: None | int | str = None,
    strict: bool = False,
    fuse: bool = False,
    time_limit: float | None = None,
    alternatives: str | None = None,
) -> Explanation:
    """The plans of a program, with a reason behind each collective: `shardc explain`.

    A function of JAX is explained for its arguments, `explain(fn, *args, mesh=mesh, in_specs=specs)`, as the program that
    `to_shard` makes of it; steps then have the line of Python that they come from, as `source`. So is a program of
    `torch.export`, `explain(exported, mesh=mesh, placements=placements)`.
    """
    if callable(program):
        no_options("a function", layer=layer, phase=phase, dims=dims, strict=strict)
        options = _options(None, None, None, None, None, objective, memory_limit, False, fuse, time_limit)
        if alternatives is not None:
            options.append(f"--alternatives={alternatives}")
        return _laid(program, args, mesh, in_specs, out_specs, placements, out_placements, weights, hardware).explained(
            options
        )
    _no_arguments(args)
    no_options("a program", in_specs=in_specs, out_specs=out_specs, weights=weights)
    no_options("a program", placements=placements, out_placements=out_placements)
    options = _options(layer, phase, dims, mesh, hardware, objective, memory_limit, strict, fuse, time_limit)
    if alternatives is not None:
        options.append(f"--alternatives={alternatives}")
    ran = _on("explain", program, [*options, "--format=json"])
    return Explanation.of(_json(ran), ran.diagnostics)


def cost(
    program: Program,
    *,
    layer: str | None = None,
    phase: str | None = None,
    dims: Mapping[str, int | str] | None = None,
    mesh: Axes | None = None,
    hardware: None | str | os.PathLike[str] = None,
    objective: str | None = None,
    memory_limit: None | int | str = None,
    strict: bool = False,
    fuse: bool = False,
    time_limit: float | None = None,
) -> CostReport:
    """What each step costs, what is in memory and how well the chips are used: `shardc cost`."""
    options = _options(layer, phase, dims, mesh, hardware, objective, memory_limit, strict, fuse, time_limit)
    ran = _on("cost", program, [*options, "--format=json"])
    return CostReport.of(_json(ran), ran.diagnostics)


@overload
def run(
    program: Program,
    *,
    layer: str | None = None,
    phase: str | None = None,
    dims: Mapping[str, int | str] | None = None,
    mesh: Axes | None = None,
    hardware: None | str | os.PathLike[str] = None,
    objective: str | None = None,
    memory_limit: None | int | str = None,
    strict: bool = False,
    fuse: bool = False,
    time_limit: float | None = None,
    seed: int = 0,
    full: bool = False,
) -> RunReport: ...


@overload
def run(
    program: Callable[..., Any],
    *args: Any,
    mesh: Any = None,
    in_specs: Any = None,
    out_specs: Any = None,
    placements: Mapping[str, Any] | None = None,
    out_placements: Sequence[Any] | None = None,
    weights: Sequence[str] | None = None,
    hardware: None | str | os.PathLike[str] = None,
    objective: str | None = None,
    memory_limit: None | int | str = None,
    fuse: bool = False,
    time_limit: float | None = None,
) -> RunReport: ...


def run(
    program: Program | Callable[..., Any],
    *args: Any,
    layer: str | None = None,
    phase: str | None = None,
    dims: Mapping[str, int | str] | None = None,
    mesh: Any = None,
    in_specs: Any = None,
    out_specs: Any = None,
    weights: Sequence[str] | None = None,
    placements: Mapping[str, Any] | None = None,
    out_placements: Sequence[Any] | None = None,
    hardware: None | str | os.PathLike[str] = None,
    objective: str | None = None,
    memory_limit: None | int | str = None,
    strict: bool = False,
    fuse: bool = False,
    time_limit: float | None = None,
    seed: int = 0,
    full: bool = False,
) -> RunReport:
    """Executes the plans on simulated devices, against the unsharded program: `shardc run`.

    A plan that gives other numbers raises ProgramError. Of a function of JAX, `run(fn, *args, mesh=mesh, in_specs=specs)`, the
    plan is executed on the arguments, and has to give what `fn(*args)` gives as well; so of a program of `torch.export`,
    `run(exported, *args, mesh=mesh, placements=placements)`.
    """
    if callable(program):
        no_options("a function", layer=layer, phase=phase, dims=dims, strict=strict, seed=seed, full=full)
        options = _options(None, None, None, None, None, objective, memory_limit, False, fuse, time_limit)
        return _laid(program, args, mesh, in_specs, out_specs, placements, out_placements, weights, hardware).run(
            options
        )
    _no_arguments(args)
    no_options("a program", in_specs=in_specs, out_specs=out_specs, weights=weights)
    no_options("a program", placements=placements, out_placements=out_placements)
    options = _options(layer, phase, dims, mesh, hardware, objective, memory_limit, strict, fuse, time_limit)
    options += [f"--seed={seed}", *(["--full"] if full else [])]
    ran = _on("run", program, [*options, "--format=json"])
    return RunReport.of(_json(ran), ran.diagnostics)


def lower(
    program: Program,
    *,
    layer: str | None = None,
    phase: str | None = None,
    dims: Mapping[str, int | str] | None = None,
    mesh: Axes | None = None,
    hardware: None | str | os.PathLike[str] = None,
    objective: str | None = None,
    memory_limit: None | int | str = None,
    strict: bool = False,
    fuse: bool = False,
    time_limit: float | None = None,
) -> str:
    """The plans as IR text, which all functions here take as a program: `shardc lower`."""
    options = _options(layer, phase, dims, mesh, hardware, objective, memory_limit, strict, fuse, time_limit)
    return _on("lower", program, [*options, "--emit=ir"]).out


def check(program: Program, *, strict: bool = False, quick: bool = False) -> Sequence[Diagnostic]:
    """The warnings of a program; a program with an error raises ProgramError: `shardc check`."""
    options = [f"--{name}" for name, given in (("strict", strict), ("quick", quick)) if given]
    return _on("check", program, [*options, "--format=json"]).diagnostics


def is_exported(program: Any) -> bool:
    """Whether it is a program of `torch.export`; PyTorch is not imported for this test."""
    return type(program).__name__ == "ExportedProgram" and type(program).__module__.startswith("torch.")


def _laid(
    program: Any,
    args: Sequence[Any],
    mesh: Any,
    in_specs: Any,
    out_specs: Any,
    placements: Mapping[str, Any] | None,
    out_placements: Sequence[Any] | None,
    weights: Sequence[str] | None,
    hardware: None | str | os.PathLike[str],
) -> LaidFunction | Exported:
    """A function of JAX or a program of PyTorch, with its layouts."""
    if is_exported(program):
        from ._exported import Exported

        no_options("an exported program", in_specs=in_specs, out_specs=out_specs)
        return Exported(program, args, mesh, placements, out_placements, weights, hardware)
    from ._function import LaidFunction

    no_options("a function of JAX", placements=placements, out_placements=out_placements)
    return LaidFunction(program, args, mesh, in_specs, out_specs, weights, hardware)


def _no_arguments(args: Sequence[Any]) -> None:
    if args:
        raise TypeError("a program has no arguments beside it; a function of JAX has")


def no_options(of: str, **given: Any) -> None:
    """Options that would be ignored are an error; options at their defaults count as not given."""
    for name, value in given.items():
        if value is not None and value is not False and not (name == "seed" and value == 0):
            raise TypeError(f"{name} says nothing of {of}: leave it out")


def _json(ran: Completed) -> Mapping[str, Any]:
    document: Mapping[str, Any] = json.loads(ran.out)
    return document
