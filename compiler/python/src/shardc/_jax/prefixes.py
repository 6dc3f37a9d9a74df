"""`associative_scan`: JAX writes it out as a tree of slices. Where the tree is that of a linear recurrence, of sums or of
products, it is one op.

Which equations belong together is read off their tracebacks; that they are a recurrence is proven, by computing with the
positions that each element is made of.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from .._program import recurrence, shapes
from .._program.builder import Builder
from .._program.lib import numpy
from .._program.program import Value

FACTORS, STATES, SUMS, TERMS = "factors", "states", "sums", "terms"
"""What the elements of a tensor are: the product of the factors of some positions; what a recurrence over them gives,
from zero on; their sum; and a factor times a state."""

ROLES: Mapping[int, Sequence[tuple[str, ...]]] = {
    1: [(SUMS,), (FACTORS,)],
    2: [(FACTORS, STATES), (STATES, FACTORS)],
}
"""What the arguments may be, by their number."""


class _NotOne(Exception):
    """The equations are something else."""


@dataclass(frozen=True)
class Spans:
    """Of each element along an axis the positions that it is made of, from `start` to before `end`; of a term the factors
    begin at `middle`. An element that is zero has a start of -1."""

    kind: str
    along: int
    """The axis, as the arguments have it."""
    order: tuple[int, ...]
    """For each dim the one of the arguments that it is."""
    start: Any
    end: Any
    middle: Any = None

    @property
    def axis(self) -> int:
        """The axis, as this tensor has it."""
        return self.order.index(self.along)

    def chosen(self, which: Any) -> Spans:
        """Some elements, in another order."""
        middle = None if self.middle is None else self.middle[which]
        return replace(self, start=self.start[which], end=self.end[which], middle=middle)


@dataclass(frozen=True)
class Group:
    """Equations that are one call, and the variables from outside and for outside."""

    end: int
    """The first equation behind them."""
    equations: Sequence[Any]
    arguments: Sequence[Any]
    results: Sequence[Any]


def groups(jaxpr: Any) -> Mapping[int, Group]:
    """The calls of `associative_scan`, by their first equation."""
    found: dict[int, Group] = {}
    at = 0
    while at < len(jaxpr.eqns):
        if not _is_halving(jaxpr.eqns[at]) or (call := _call(jaxpr.eqns[at])) is None:
            at += 1
            continue
        end = _end(jaxpr.eqns, at, call)
        found[at] = _group(jaxpr, at, end)
        at = end
    return found


def _end(equations: Sequence[Any], at: int, call: tuple[str, int]) -> int:
    """The first equation behind a call: it has another line, or halves a value from outside anew."""
    made: set[Any] = set()
    are_slices = True
    while at < len(equations):
        equation = equations[at]
        if equation.primitive.name == "rev" or _call(equation) != call:
            return at
        are_slices = are_slices and equation.primitive.name == "slice"
        if not are_slices and _is_halving(equation) and equation.invars[0] not in made:
            params = equation.params
            if params["start_indices"][params["strides"].index(2)] == 0:
                return at
        made.update(equation.outvars)
        at += 1
    return at


def _is_halving(equation: Any) -> bool:
    return equation.primitive.name == "slice" and 2 in (equation.params["strides"] or ())


def _call(equation: Any) -> tuple[str, int] | None:
    """The line that calls `associative_scan`, if an equation stands in it."""
    traceback = equation.source_info.traceback
    frames = list(traceback.frames) if traceback is not None else []
    for inner, outer in zip(frames, frames[1:]):
        path = inner.file_name.replace("\\", "/")
        if inner.function_name == "associative_scan" and path.endswith("/jax/_src/lax/control_flow/loops.py"):
            return outer.file_name, outer.line_num
    return None


def _group(jaxpr: Any, start: int, end: int) -> Group:
    equations = jaxpr.eqns[start:end]
    made = {variable for equation in equations for variable in equation.outvars}
    arguments = [v for equation in equations for v in equation.invars if not hasattr(v, "val") and v not in made]
    used = {v for equation in jaxpr.eqns[end:] for v in equation.invars if not hasattr(v, "val")}
    used.update(v for v in jaxpr.outvars if not hasattr(v, "val"))
    results = [v for equation in equations for v in equation.outvars if v in used]
    return Group(end, equations, list(dict.fromkeys(arguments)), results)


def translate(b: Builder, group: Group, arguments: Mapping[Any, Value]) -> Mapping[Any, Value] | None:
    """The results of a call, or None where it is not a recurrence."""
    for roles in ROLES.get(len(group.arguments), []):
        try:
            spans = _spans(group, roles)
        except _NotOne:
            continue
        by_role = {role: arguments[variable] for role, variable in zip(roles, group.arguments)}
        return {v: _written(b, spans[v], by_role) for v in group.results}
    return None


def _spans(group: Group, roles: Sequence[str]) -> Mapping[Any, Spans]:
    scope: dict[Any, Spans] = {}
    for variable, role in zip(group.arguments, roles):
        axis = _axis(group.equations, variable)
        first = numpy().arange(variable.aval.shape[axis])
        scope[variable] = Spans(role, axis, tuple(range(len(variable.aval.shape))), first, first + 1)
    if len({(spans.along, spans.order) for spans in scope.values()}) != 1:
        raise _NotOne
    _walk(group.equations, scope)
    for variable in group.results:
        spans = scope[variable]
        count = numpy().arange(len(spans.start))
        whole = len(count) == variable.aval.shape[spans.axis] == group.arguments[0].aval.shape[spans.along]
        if not whole or spans.kind == TERMS or (spans.start != 0).any() or (spans.end != count + 1).any():
            raise _NotOne
    return scope


def _axis(equations: Sequence[Any], variable: Any) -> int:
    for equation in equations:
        if _is_halving(equation) and equation.invars[0] is variable:
            return int(equation.params["strides"].index(2))
    raise _NotOne


def _walk(equations: Sequence[Any], scope: dict[Any, Spans]) -> None:
    for equation in equations:
        body = equation.params.get("jaxpr") if equation.primitive.name in ("jit", "pjit") else None
        if body is not None:
            inner = dict(zip(body.jaxpr.invars, (_read(scope, atom) for atom in equation.invars)))
            _walk(body.jaxpr.eqns, inner)
            scope.update(zip(equation.outvars, (_read(inner, atom) for atom in body.jaxpr.outvars)))
            continue
        (out,) = equation.outvars
        scope[out] = _step(equation, [_read(scope, atom) for atom in equation.invars if not hasattr(atom, "val")])


def _read(scope: Mapping[Any, Spans], atom: Any) -> Spans:
    if hasattr(atom, "val") or atom not in scope:
        raise _NotOne
    return scope[atom]


def _step(equation: Any, operands: Sequence[Spans]) -> Spans:
    name, params = equation.primitive.name, equation.params
    if name == "slice":
        return _slice(equation, operands[0])
    if name == "pad":
        return _pad(equation, operands[0])
    if name == "concatenate":
        first = operands[0]
        alike = all((one.kind, one.order) == (first.kind, first.order) for one in operands)
        if not alike or first.kind == TERMS or first.axis != params["dimension"]:
            raise _NotOne
        start, end = (numpy().concatenate([getattr(one, word) for one in operands]) for word in ("start", "end"))
        return replace(first, start=start, end=end)
    if name == "transpose":
        return replace(operands[0], order=tuple(operands[0].order[at] for at in params["permutation"]))
    if name == "broadcast_in_dim":
        (one,), was, out = operands, equation.invars[0].aval.shape, equation.outvars[0].aval.shape
        if params["broadcast_dimensions"] != tuple(range(len(out))) or was[one.axis] != out[one.axis]:
            raise _NotOne
        return one
    if name in ("mul", "add", "add_any") and len(operands) == 2 and operands[0].order == operands[1].order:
        return _product(*operands) if name == "mul" else _sum(*operands)
    raise _NotOne


def _slice(equation: Any, one: Spans) -> Spans:
    params, shape = equation.params, equation.invars[0].aval.shape
    strides = params["strides"] or (1,) * len(shape)
    for at, (start, limit, stride) in enumerate(zip(params["start_indices"], params["limit_indices"], strides)):
        if at != one.axis and (start, limit, stride) != (0, shape[at], 1):
            raise _NotOne
    at = one.axis
    return one.chosen(slice(params["start_indices"][at], params["limit_indices"][at], strides[at]))


def _pad(equation: Any, one: Spans) -> Spans:
    filling = equation.invars[1]
    config = equation.params["padding_config"]
    low, high, inner = config[one.axis]
    others = [counts for at, counts in enumerate(config) if at != one.axis]
    if not hasattr(filling, "val") or filling.val != 0 or min(low, high, inner) < 0 or any(map(any, others)):
        raise _NotOne
    length = low + high + len(one.start) + max(len(one.start) - 1, 0) * inner
    start, end = numpy().full(length, -1), numpy().full(length, -1)
    places = low + numpy().arange(len(one.start)) * (inner + 1)
    start[places], end[places] = one.start, one.end
    if one.kind == TERMS:
        raise _NotOne
    return replace(one, start=start, end=end)


def _product(one: Spans, other: Spans) -> Spans:
    if (one.start < 0).any() or (other.start < 0).any():
        raise _NotOne
    if one.kind == other.kind == FACTORS:
        return _adjacent(one, other)
    if {one.kind, other.kind} == {FACTORS, STATES}:
        states, factors = (one, other) if one.kind == STATES else (other, one)
        if (states.end == factors.start).all():
            return replace(one, kind=TERMS, start=states.start, middle=factors.start, end=factors.end)
    raise _NotOne


def _adjacent(one: Spans, other: Spans) -> Spans:
    np = numpy()
    if not ((one.end == other.start) | (other.end == one.start)).all():
        raise _NotOne
    return replace(one, start=np.minimum(one.start, other.start), end=np.maximum(one.end, other.end))


def _sum(one: Spans, other: Spans) -> Spans:
    np = numpy()
    alone, beside = one.start < 0, other.start < 0
    if one.kind == other.kind and one.kind != TERMS and (alone ^ beside).all():
        return replace(one, start=np.where(alone, other.start, one.start), end=np.where(alone, other.end, one.end))
    if alone.any() or beside.any():
        raise _NotOne
    if one.kind == other.kind == SUMS:
        return _adjacent(one, other)
    if {one.kind, other.kind} == {TERMS, STATES}:
        terms, states = (one, other) if one.kind == TERMS else (other, one)
        if (states.start == terms.middle).all() and (states.end == terms.end).all():
            return replace(states, start=terms.start, end=terms.end)
    raise _NotOne


def _written(b: Builder, spans: Spans, arguments: Mapping[str, Value]) -> Value:
    if spans.kind == STATES:
        made = b.tensor(recurrence.linear(b, arguments[STATES], arguments[FACTORS], spans.along))
    elif spans.kind == FACTORS:
        made = recurrence.products(b, b.tensor(arguments[FACTORS]), spans.along, False)
    else:
        made = shapes.cumulative(b, b.tensor(arguments[SUMS]), spans.along)
    return shapes.transpose(made, spans.order)
