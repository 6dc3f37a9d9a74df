"""A function of JAX as a `.shard` file: `to_shard`."""

from __future__ import annotations

import ast
import inspect
import re
import textwrap
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ._commands import is_exported, no_options
from ._jax import specs
from ._jax.loops import STATE
from ._jax.walk import walk
from ._program import known as tables
from ._program.builder import Builder
from ._program.dims import Dims
from ._program.errors import TranslationError
from ._program.lib import module, numpy
from ._program.program import Layer, Parameter, Program, Result, Stack, Tensor, Value
from ._program.translation import Translation, called, finished, shortest_names, whole

HARDWARE = "tpu-v5e"
"""The chip of a file for which none is asked for."""


def to_shard(
    fn: Any,
    *args: Any,
    mesh: Any = None,
    in_specs: Any = None,
    out_specs: Any = None,
    placements: Mapping[str, Any] | None = None,
    out_placements: Sequence[Any] | None = None,
    hardware: str | None = HARDWARE,
    weights: Sequence[str] | None = None,
) -> str:
    """The text of a `.shard` file that does what `fn(*args)` does, or what a program of `torch.export` does.

    `mesh` is a mesh of JAX or the sizes of axes by name. `in_specs` has a `PartitionSpec` for each argument, or a tree
    of them; None leaves a layout to the compiler, and without `in_specs` arguments lie as their shardings say.
    Arguments may be `jax.ShapeDtypeStruct`s. `weights` names the arguments that are parameters and stay in memory; else
    they are those that hold several arrays.

    Of an `ExportedProgram`, which is given alone, `mesh` is a DeviceMesh with names or the sizes of axes by name, and
    `placements` has those of DTensor by the name of a parameter, a buffer or an input; a value may be a DTensor. What is
    not named lies as the program has it distributed, else freely. `out_placements` has those of each result.

    What has no counterpart in the language raises `TranslationError`, with the primitive and its line.
    """
    if is_exported(fn):
        from ._exported import Exported

        no_options("an exported program", in_specs=in_specs, out_specs=out_specs)
        return Exported(fn, args, mesh, placements, out_placements, weights, None).translated(hardware).text
    no_options("a function of JAX", placements=placements, out_placements=out_placements)
    if mesh is None:
        raise TypeError("mesh is missing: a function of JAX is laid out on one")
    return translate(fn, args, mesh, in_specs, out_specs, hardware, weights).text


def translate(
    fn: Callable[..., Any],
    args: Sequence[Any],
    mesh: Any,
    in_specs: Any,
    out_specs: Any,
    hardware: str | None,
    weights: Sequence[str] | None,
) -> Translation:
    """`to_shard`, with how function and file belong together."""
    jax, tree_util = module("jax"), module("jax.tree_util")
    axes = specs.mesh_axes(mesh)
    closed, shape = _traced(jax, fn, args, mesh)
    paths, _ = tree_util.tree_flatten_with_path(tuple(args))
    flat = [leaf for _, leaf in paths]
    name = getattr(inspect.unwrap(fn), "__name__", "main")
    program = Program(Dims(), Layer(name if name.isidentifier() else "main"), axes=tuple(axes.values()))
    builder = Builder(program, program.main)

    leaves = [specs.own_spec(leaf) for leaf in flat] if in_specs is None else specs.spread(in_specs, tuple(args))
    words = [_words(path, _argument_names(fn, len(args))) for path, _ in paths]
    names = shortest_names(words)
    heavy = _weights(paths, _argument_names(fn, len(args)), weights)
    operands: list[Value] = []
    for at, (variable, leaf) in enumerate(zip(closed.jaxpr.invars, leaves)):
        operands.append(_argument(builder, at, variable.aval, names[at], leaf, axes, heavy[at]))
    _tie(builder, words, operands)
    consts = [tables.constant(numpy().asarray(array)) for array in closed.consts]
    made = walk(builder, closed.jaxpr, consts, operands)
    _results(builder, made, shape, out_specs, axes, _returned(fn))
    return finished(builder, axes, hardware, f"{name}, from JAX", flat)


def _traced(jax: Any, fn: Callable[..., Any], args: Sequence[Any], mesh: Any) -> tuple[Any, Any]:
    make = jax.make_jaxpr(fn, return_shape=True)
    with specs.within(mesh):
        closed, shape = make(*args)
    return closed, shape


def _argument_names(fn: Callable[..., Any], count: int) -> list[str]:
    try:
        parameters = list(inspect.signature(fn).parameters.values())
    except (TypeError, ValueError):
        parameters = []
    names = [p.name for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    return (names + [f"a{n}" for n in range(len(names), count)])[:count]


def _words(path: Sequence[Any], arguments: Sequence[str]) -> list[str]:
    """A path of JAX as words, the name of the argument first."""
    first, *rest = path
    words = [arguments[first.idx]]
    for key in rest:
        words.append(str(getattr(key, "key", getattr(key, "name", getattr(key, "idx", key)))))
    return words


def _weights(paths: Sequence[Any], arguments: Sequence[str], asked: Sequence[str] | None) -> list[bool]:
    first = [path[0].idx for path, _ in paths]
    if asked is not None:
        unknown = [name for name in asked if name not in arguments]
        if unknown:
            raise TypeError(f"weights names {unknown[0]!r}, and the arguments are {', '.join(arguments)}")
        return [arguments[at] in asked for at in first]
    floats = ["float" in str(getattr(leaf, "dtype", "float")) for _, leaf in paths]
    return [len(path) > 1 and is_float for (path, _), is_float in zip(paths, floats)]


def _tie(b: Builder, words: Sequence[Sequence[str]], operands: Sequence[Value]) -> None:
    """Parameters and what an optimiser keeps of them are trees alike: their dims are one, until something else is seen."""
    first: dict[tuple[object, ...], Tensor] = {}
    for path, value in zip(words, operands):
        if not isinstance(value, Tensor) or len(path) < 2:
            continue
        key = (*path[1:], value.shape)
        other = first.setdefault(key, value)
        for one, two in zip(other.positions, value.positions):
            if one is not None and two is not None:
                b.dims.unify(one, two)


def _argument(b: Builder, at: int, aval: Any, name: str, leaf: Any, axes: dict[str, int], is_weight: bool) -> Value:
    dtype, shape = str(aval.dtype), tuple(aval.shape)
    if (not shape and dtype.startswith(("int", "uint", "bool"))) or dtype.startswith(("key", "uint32")):
        return tables.argument(at, shape, dtype)
    spec = specs.spec_of(leaf, len(shape), axes, name)
    return b.given(name, shape, dtype, lambda flat: numpy().asarray(flat[at]), spec, is_weight)


def _returned(fn: Callable[..., Any]) -> list[str | None]:
    """What the last `return` of a function calls its values."""
    try:
        (function,) = ast.parse(textwrap.dedent(inspect.getsource(inspect.unwrap(fn)))).body
    except (OSError, TypeError, SyntaxError, ValueError):
        return []
    last = function.body[-1] if isinstance(function, ast.FunctionDef) else None
    if not isinstance(last, ast.Return) or last.value is None:
        return []
    values = last.value.elts if isinstance(last.value, ast.Tuple) else [last.value]
    return [value.id if isinstance(value, ast.Name) else None for value in values]


def _results(
    b: Builder, made: Sequence[Value], shape: Any, out_specs: Any, axes: dict[str, int], returned: Sequence[str | None]
) -> None:
    tree_util = module("jax.tree_util")
    paths, _ = tree_util.tree_flatten_with_path(shape)
    leaves = [None] * len(paths) if out_specs is None else specs.spread(out_specs, shape)
    for at, ((path, _), value, leaf) in enumerate(zip(paths, made, leaves)):
        if isinstance(value, Tensor) and value.name.startswith(STATE):
            cache = value.name[len(STATE) :]
            call = next(c for c in b.program.calls.values() if cache in c.owned)
            call.states[at] = cache
            continue
        wanted = _wanted(path, returned)
        parts: list[tuple[int | None, Value]] = (
            [(n, part) for n, part in enumerate(value.parts)] if isinstance(value, Stack) else [(None, value)]
        )
        for part, one in parts:
            tensor = whole(b, one)
            name = wanted or called(b, tensor) or f"y{at}"
            spec = specs.spec_of(leaf, len(tensor.shape) + (part is not None), axes, f"output {at}")
            if part is not None:
                name = f"{name}_{part}"
                spec = None if spec is None else {place - 1: names for place, names in spec.items() if place}
            b.layer.results.append(Result(tensor, name, spec, at, part))


def _wanted(path: Sequence[Any], returned: Sequence[str | None]) -> str | None:
    """The name of a result: that of what is returned there, then the keys inside."""
    words = [str(getattr(key, "key", getattr(key, "name", getattr(key, "idx", "")))) for key in path]
    first = None
    if len(returned) == 1:
        first = returned[0]
    elif len(returned) > 1 and words:
        first = returned[int(words.pop(0))]
    named = [word for word in [first, *words] if word]
    return "_".join(named) if any(not word.isdigit() for word in named) else None


def named(value: Any, name: str) -> Any:
    """The value itself, called so by `to_shard`; it may stand in a function that is compiled or differentiated."""
    if not re.fullmatch(r"[a-z][a-z0-9_]*", name):
        raise ValueError(f"{name!r} is no name of a value: a small letter, then small letters, digits and _")
    return module("jax.ad_checkpoint").checkpoint_name(value, name)


__all__ = ["HARDWARE", "Parameter", "Translation", "TranslationError", "named", "to_shard", "translate"]
