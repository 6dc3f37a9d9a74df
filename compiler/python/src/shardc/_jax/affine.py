"""The result of a turn of a loop, as a factor times an element of its state, plus a term."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from .._program.lib import module

CALLS = ("jaxpr", "call_jaxpr", "fun_jaxpr")
"""The parameters of an equation that have the body of a call."""

SAME = frozenset(["copy", "copy_p", "stop_gradient", "optimization_barrier", "name"])


class NotLinear(Exception):
    """A turn computes its state in another way."""


@dataclass(frozen=True)
class Affine:
    """`factor * state + added`, element by element. None stands for the factor 1, and for no term."""

    factor: Any = None
    added: Any = None


def evaluate(jaxpr: Any, scope: dict[Any, Any], wanted: Sequence[Any]) -> list[Any]:
    """Variables of a jaxpr. `scope` has what is given: arrays, and `Affine`s; what is not needed is not computed."""
    needed = {atom for atom in wanted if not hasattr(atom, "val")} - scope.keys()
    equations: list[tuple[Any, list[Any]]] = []
    for equation in reversed(jaxpr.eqns):
        if needed.isdisjoint(equation.outvars):
            continue
        equations.append((equation, [variable for variable in equation.outvars if variable in needed]))
        needed.update(atom for atom in equation.invars if not hasattr(atom, "val") and atom not in scope)
    for equation, asked in reversed(equations):
        operands = [_read(scope, atom) for atom in equation.invars]
        for variable, value in zip(asked, _equation(equation, operands, asked)):
            scope.setdefault(variable, value)
    return [_read(scope, atom) for atom in wanted]


def _read(scope: Mapping[Any, Any], atom: Any) -> Any:
    return atom.val if hasattr(atom, "val") else scope[atom]


def _equation(equation: Any, operands: Sequence[Any], asked: Sequence[Any]) -> Sequence[Any]:
    """The results that are needed."""
    if any(isinstance(operand, Affine) for operand in operands):
        body = next((equation.params[name] for name in CALLS if name in equation.params), None)
        if body is None or equation.primitive.name in ("scan", "while", "cond", "shard_map"):
            return [_affine(equation, operands)]
        inner = getattr(body, "jaxpr", body)
        scope = dict(zip(inner.constvars, getattr(body, "consts", ())))
        scope.update(zip(inner.invars, operands))
        return evaluate(inner, scope, [atom for atom, out in zip(inner.outvars, equation.outvars) if out in asked])
    subfuns, params = equation.primitive.get_bind_params(equation.params)
    with _place_of(equation):
        made = equation.primitive.bind(*subfuns, *operands, **params)
    every = made if equation.primitive.multiple_results else [made]
    return [value for value, variable in zip(every, equation.outvars) if variable in asked]


def _place_of(equation: Any) -> Any:
    """Statements made here have the line of the equation."""
    util, info = module("jax._src.source_info_util"), equation.source_info
    if not hasattr(util, "user_context"):
        return contextlib.nullcontext()
    return util.user_context(info.traceback, name_stack=util.current_name_stack() + info.name_stack)


def _affine(equation: Any, operands: Sequence[Any]) -> Any:
    name, out = equation.primitive.name, equation.outvars[0].aval
    lax, jnp = module("jax.lax"), module("jax.numpy")
    is_same = name == "convert_element_type" and equation.invars[0].aval.dtype == out.dtype
    if any(isinstance(o, Affine) and v.aval.shape != out.shape for v, o in zip(equation.invars, operands)):
        raise NotLinear
    with _place_of(equation):
        if (name in SAME or is_same) and len(operands) == 1:
            return operands[0]
        if name == "neg":
            return _times(lax, operands[0], jnp.asarray(-1, out.dtype))
        if name in ("add", "add_any", "sub"):
            return _sum(lax, jnp, operands, -1 if name == "sub" else 1, out)
        one, other = (*operands, None, None)[:2]
        if name == "mul" and isinstance(one, Affine) != isinstance(other, Affine):
            return _times(lax, one, other) if isinstance(one, Affine) else _times(lax, other, one)
        if name == "div" and isinstance(one, Affine) and not isinstance(other, Affine):
            return _times(lax, one, lax.div(jnp.asarray(1, out.dtype), jnp.asarray(other, out.dtype)))
        if name == "select_n" and not isinstance(one, Affine):
            parts = [_parts(jnp, operand, out) for operand in operands[1:]]
            return Affine(*(lax.select_n(one, *column) for column in zip(*parts)))
    raise NotLinear


def _times(lax: Any, value: Affine, by: Any) -> Affine:
    factor = by if value.factor is None else value.factor * by
    return Affine(factor, None if value.added is None else value.added * by)


def _sum(lax: Any, jnp: Any, operands: Sequence[Any], sign: int, out: Any) -> Affine:
    one, other = operands
    if isinstance(one, Affine) and isinstance(other, Affine):
        (f, a), (g, c) = _parts(jnp, one, out), _parts(jnp, other, out)
        return Affine(f + sign * g, a + sign * c)
    if isinstance(one, Affine):
        added = other if sign == 1 else lax.neg(jnp.asarray(other, out.dtype))
        return Affine(one.factor, added if one.added is None else one.added + added)
    turned = other if sign == 1 else _times(lax, other, jnp.asarray(-1, out.dtype))
    return Affine(turned.factor, one if turned.added is None else one + turned.added)


def _parts(jnp: Any, value: Any, out: Any) -> tuple[Any, Any]:
    """The factor and the term, both as values."""
    if not isinstance(value, Affine):
        return jnp.zeros(out.shape, out.dtype), jnp.broadcast_to(value, out.shape)
    factor = 1 if value.factor is None else value.factor
    added = 0 if value.added is None else value.added
    return tuple(jnp.broadcast_to(jnp.asarray(part, out.dtype), out.shape) for part in (factor, added))
