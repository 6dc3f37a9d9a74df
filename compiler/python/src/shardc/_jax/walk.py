"""Equations one after another, calls written out."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from .._program import known as tables
from .._program.builder import Builder
from .._program.errors import TranslationError
from .._program.lib import numpy
from .._program.program import Known, Pin, Stack, Tensor, Value
from .._program.source import Frame
from . import convolutions, indexing, loops, prefixes, primitives, recurrences
from .evaluate import evaluate
from .source import origin

Translate = Callable[[Builder, Any, Sequence[Value]], "list[Value]"]

OPS: dict[str, Translate] = {
    **dict.fromkeys([*primitives.MAPS, *primitives.BINARIES], primitives.elementwise),
    **dict.fromkeys(["eq", "ne", "lt", "le", "gt", "ge"], primitives.compare),
    **dict.fromkeys(["and", "or", "not", "xor"], primitives.logic),
    **dict.fromkeys(
        ["reduce_sum", "reduce_max", "reduce_min", "reduce_and", "reduce_or", "reduce_prod"], primitives.reduction
    ),
    **dict.fromkeys(
        ["stop_gradient", "copy", "copy_p", "reduce_precision", "optimization_barrier", "device_put", "name"],
        primitives.as_is,
    ),
    "integer_pow": primitives.integer_pow,
    "pow": primitives.power,
    "log1p": primitives.log1p,
    "expm1": primitives.expm1,
    "exp2": primitives.exp2,
    "convert_element_type": primitives.convert,
    "select_n": primitives.select,
    "clamp": primitives.clamp,
    "sign": primitives.sign,
    "is_finite": primitives.finite,
    "broadcast_in_dim": primitives.broadcast,
    "transpose": primitives.transpose,
    "squeeze": primitives.squeeze,
    "expand_dims": primitives.reshape,
    "reshape": primitives.reshape,
    "slice": primitives.slices,
    "concatenate": primitives.concatenate,
    "split": primitives.split,
    "pad": primitives.pad,
    "rev": primitives.reverse,
    "cumsum": primitives.cumulative,
    "cumprod": primitives.cumulative_product,
    "sort": indexing.sort,
    recurrences.LINEAR: recurrences.linear,
    "dot_general": primitives.dot_general,
    "conv_general_dilated": convolutions.convolution,
    "gather": indexing.gather,
    "scatter-add": indexing.scatter_add,
    "scatter_add": indexing.scatter_add,
    "scatter": indexing.scatter,
    "dynamic_slice": indexing.dynamic_slice,
    "dynamic_update_slice": indexing.dynamic_update_slice,
    "argmax": indexing.argmax,
    "argmin": indexing.argmax,
    "top_k": indexing.top_k,
}

BODIES = {
    "jit": "jaxpr",
    "pjit": "jaxpr",
    "closed_call": "call_jaxpr",
    "core_call": "call_jaxpr",
    "remat": "jaxpr",
    "checkpoint": "jaxpr",
    "remat2": "jaxpr",
    "custom_jvp_call": "call_jaxpr",
    "custom_vjp_call": "call_jaxpr",
    "custom_vjp_call_jaxpr": "fun_jaxpr",
    "custom_lin": "",
}
"""Primitives that are calls, and the parameter that has the body."""

TAKES_STACKS = frozenset(["slice", "dynamic_slice", "squeeze", "scan"])

WHY = {
    "while": "a loop whose number of turns is not known",
    "cond": "a branch",
    "shard_map": "collectives that are written by hand",
    "erf": "the error function: gelu with approximate=True has one",
    "sin": "the sine of a computed value",
    "cos": "the cosine of a computed value",
    "custom_call": "a call of something outside",
    "pallas_call": "a kernel",
}


def walk(
    b: Builder, jaxpr: Any, consts: Sequence[Value], operands: Sequence[Value], outer: Sequence[Frame] = ()
) -> list[Value]:
    """The results of a jaxpr for these operands."""
    scope: dict[Any, Value] = {}

    def read(atom: Any) -> Value:
        if hasattr(atom, "val"):
            array = numpy().asarray(atom.val)
            return tables.filled(array.shape, array.reshape(-1)[0] if array.size else 0, str(atom.aval.dtype))
        return scope[atom]

    scope.update(zip(jaxpr.constvars, consts))
    scope.update(zip(jaxpr.invars, operands))
    calls = prefixes.groups(jaxpr)
    at = 0
    while at < len(jaxpr.eqns):
        equation = jaxpr.eqns[at]
        found = _prefixes(b, equation, calls[at], read, outer) if at in calls else None
        if found is not None:
            scope.update(found)
            at = calls[at].end
            continue
        results = _equation(b, equation, [read(atom) for atom in equation.invars], outer)
        scope.update(zip(equation.outvars, results))
        at += 1
    return [read(atom) for atom in jaxpr.outvars]


def _prefixes(
    b: Builder, equation: Any, call: prefixes.Group, read: Callable[[Any], Value], outer: Sequence[Frame]
) -> Mapping[Any, Value] | None:
    """The results of a call of `associative_scan`, if it is a recurrence of computed values."""
    arguments = {variable: loops.whole(b, read(variable)) for variable in call.arguments}
    if all(isinstance(value, Known) for value in arguments.values()):
        return None
    b.origin, b.primitive = origin(equation, outer), "associative_scan"
    return prefixes.translate(b, call, arguments)


def _equation(b: Builder, equation: Any, operands: list[Value], outer: Sequence[Frame]) -> list[Value]:
    name = equation.primitive.name
    here = origin(equation, outer)
    b.origin, b.primitive = here, name
    if name in BODIES:
        if _is_softplus(equation, operands):
            return [b.map("softplus", b.tensor(operands[0]))]
        # A call inside a function of JAX has no line of its own in the user's program: it gets the line of the outer
        # call.
        return _call(b, equation, operands, here.frames)
    if name == "cond" and (which := tables.number(operands[0])) is not None:
        branches = equation.params["branches"]
        branch = branches[min(max(int(which), 0), len(branches) - 1)]
        return walk(b, branch.jaxpr, _constants(branch), operands[1:], here.frames)
    if name == "scan":
        return loops.scan(b, equation, operands, here, walk)
    if all(isinstance(operand, Known) for operand in operands) and name not in ("sharding_constraint", "while", "cond"):
        return list(evaluate(equation, [o for o in operands if isinstance(o, Known)], here))
    if name == "sharding_constraint":
        return [_constraint(b, equation, b.tensor(operands[0]))]
    translate = OPS.get(name)
    if translate is None:
        raise b.fail(f"`.shard` has no counterpart of `{name}`" + (f": {WHY[name]}" if name in WHY else ""))
    if name in loops.BY_TURNS and any(isinstance(operand, Stack) for operand in operands):
        return loops.by_turns(b, equation, operands)
    if name not in TAKES_STACKS:
        operands = [loops.whole(b, operand) for operand in operands]
    found = _ids(b, equation, operands) or primitives.added_mask(b, equation, operands)
    try:
        results = found or translate(b, equation, operands)
    except (AssertionError, KeyError, IndexError, TypeError, ValueError) as wrong:
        raise b.fail(f"`{name}` was not understood ({type(wrong).__name__}: {wrong})") from wrong
    results = [_typed(b, value, variable.aval) for value, variable in zip(results, equation.outvars)]
    if len(results) == 1 and isinstance(results[0], Tensor):
        b.made_of.setdefault(results[0].name, (name, operands, equation))
    if name == "name":
        b.called(results[0], equation.params["name"])
    return results


def _typed(b: Builder, value: Value, aval: Any) -> Value:
    """The value, which has the shape that JAX gives it."""
    if isinstance(value, Tensor) and value.shape != tuple(aval.shape):
        raise TranslationError(f"a result of shape {value.shape} is {tuple(aval.shape)} in JAX", b.primitive, b.origin)
    return value


def _call(b: Builder, equation: Any, operands: Sequence[Value], frames: Sequence[Frame]) -> list[Value]:
    body = equation.params[BODIES[equation.primitive.name]]
    inner = getattr(body, "jaxpr", body)
    return walk(b, inner, _constants(body), operands, frames)


def _is_softplus(equation: Any, operands: Sequence[Value]) -> bool:
    """Whether it is JAX's own `logaddexp` of a tensor and 0."""
    if equation.primitive.name != "custom_jvp_call" or len(operands) != 2 or not isinstance(operands[0], Tensor):
        return False
    info = getattr(equation.params["call_jaxpr"].jaxpr, "debug_info", None)
    source = str(getattr(info, "func_src_info", "")).replace("\\", "/")
    return source.startswith("logaddexp at ") and "/jax/_src/" in source and tables.number(operands[1]) == 0


def _constants(body: Any) -> list[Value]:
    """The constants of a closed jaxpr."""
    return [tables.constant(numpy().asarray(array)) for array in getattr(body, "consts", ())]


def _ids(b: Builder, equation: Any, operands: Sequence[Value]) -> list[Value] | None:
    """`where(i < 0, i + n, i)`, which JAX writes in front of every look-up, is i."""
    if equation.primitive.name != "select_n" or len(operands) != 3:
        return None
    which, no, yes = operands
    if not isinstance(which, Tensor) or not isinstance(no, Tensor) or not isinstance(yes, Tensor):
        return None
    compared, added = b.made_of.get(which.name), b.made_of.get(yes.name)
    if compared is None or added is None or compared[0] != "lt" or added[0] != "add":
        return None
    is_zero = tables.number(compared[1][1]) == 0
    same = [isinstance(side[1][0], Tensor) and side[1][0].name == no.name for side in (compared, added)]
    return [no] if is_zero and all(same) and no.dtype == "int32" else None


def _constraint(b: Builder, equation: Any, value: Tensor) -> Value:
    sharding = equation.params["sharding"]
    spec = getattr(sharding, "spec", None)
    if spec is None:
        raise b.fail("a constraint whose sharding has no PartitionSpec")
    axes: dict[int, tuple[str, ...]] = {}
    is_open = bool(equation.params.get("unconstrained_dims"))
    for at, entry in enumerate(spec):
        if entry is None or not isinstance(entry, (str, tuple)):
            is_open = is_open or entry is not None
            continue
        axes[at] = (entry,) if isinstance(entry, str) else tuple(entry)
    return b.pin(value, Pin(axes, is_open))
