"""A loop whose turns add to a multiple of its state is a recurrence along a dim: all else is done for all turns at once."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from .._program import known as tables
from .._program import recurrence
from .._program.builder import Builder
from .._program.lib import module
from .._program.program import Value
from .._program.source import Origin
from .affine import Affine, NotLinear, evaluate

LINEAR = "shardc_linear_recurrence"
"""What a loop is written with: `h[t] = added[t] + factor[t] * h[t - 1]` along the first dim."""


def linear(b: Builder, equation: Any, operands: Sequence[Value]) -> list[Value]:
    """The primitive of that name."""
    return [recurrence.linear(b, operands[0], operands[1], 0)]


@functools.lru_cache(maxsize=1)
def _primitive() -> Any:
    made = module("jax.extend.core").Primitive(LINEAR)
    made.def_abstract_eval(lambda added, factor: added)
    made.def_impl(_of_arrays)
    return made


def _of_arrays(added: Any, factor: Any) -> Any:
    """Known values are computed in front of the layer."""
    states = module("numpy").array(added)
    for at in range(1, len(states)):
        states[at] += factor[at] * states[at - 1]
    return states


@dataclass
class _Loop:
    """A scan, and which elements of its state can be found one after another."""

    body: Any
    consts: int
    carried: int
    length: int
    reverse: bool
    starts_at_zero: Sequence[bool]

    def state(self, at: int) -> Any:
        """An element of the state, in front of a turn."""
        return self.body.invars[self.consts + at]

    def next(self, at: int) -> Any:
        """An element of the state, behind a turn."""
        return self.body.outvars[at]

    @property
    def kept(self) -> list[int]:
        """Elements of the state that no turn changes."""
        return [at for at in range(self.carried) if self.next(at) is self.state(at)]


def scan(
    b: Builder,
    equation: Any,
    consts: Sequence[Value],
    carry: Sequence[Value],
    stacks: Sequence[Value],
    here: Origin,
    walk: Callable[..., list[Value]],
) -> list[Value] | None:
    """The results of a scan that is a recurrence, or None."""
    params = equation.params
    loop = _Loop(
        params["jaxpr"].jaxpr,
        len(consts),
        len(carry),
        params["length"],
        params["reverse"],
        [tables.number(value) == 0 for value in carry],
    )
    order = _order(loop)
    if params["length"] < 2 or not order:
        return None
    jax = module("jax")
    wanted = [at for at, v in enumerate(equation.outvars) if type(v).__name__ != "DropVar"]
    function = _Function(loop, params["jaxpr"].consts, order, wanted)
    shapes = [jax.ShapeDtypeStruct(atom.aval.shape, atom.aval.dtype) for atom in equation.invars]
    try:
        closed = jax.make_jaxpr(function)(*shapes)
    except NotLinear:
        return None
    if not function.is_recurrence:
        return None
    inner = [tables.constant(module("numpy").asarray(array)) for array in closed.consts]
    found = dict(zip(wanted, walk(b, closed.jaxpr, inner, [*consts, *carry, *stacks], here.frames)))
    nothing = [tables.filled(v.aval.shape, 0, "float32") for v in equation.outvars]
    return [found.get(at, nothing[at]) for at in range(len(nothing))]


def _order(loop: _Loop) -> list[int] | None:
    """The elements of the state, each behind those that its next value is made of; None where they hang together."""
    behind = _dependencies(loop.body, {loop.state(at): at for at in range(loop.carried)})
    found = loop.kept
    rest = [at for at in range(loop.carried) if at not in found]
    order: list[int] = []
    while rest:
        ready = [at for at in rest if behind(loop.next(at)) <= {*found, *order, at}]
        if not ready:
            return None
        order.append(ready[0])
        rest.remove(ready[0])
    return order


def _dependencies(jaxpr: Any, named: dict[Any, int]) -> Callable[[Any], frozenset[int]]:
    """Those of some variables from which a value is made."""
    found = {variable: frozenset([at]) for variable, at in named.items()}

    def of(atom: Any) -> frozenset[int]:
        return frozenset() if hasattr(atom, "val") else found.get(atom, frozenset())

    for equation in jaxpr.eqns:
        all_of_it = frozenset().union(*map(of, equation.invars))
        found.update(dict.fromkeys(equation.outvars, all_of_it))
    return of


class _Function:
    """The scan as a function without a loop."""

    def __init__(self, loop: _Loop, constants: Sequence[Any], order: Sequence[int], wanted: Sequence[int]) -> None:
        self.loop = loop
        self.constants = constants
        self.order = order
        self.wanted = wanted
        self.is_recurrence = False
        self.parts: tuple[bool, bool] | None = None
        """Of the value that was computed last: whether there is a factor of the state, and something added to it. None
        where the state is not in it."""

    def __call__(self, *flat: Any) -> list[Any]:
        """The results that are wanted."""
        loop = self.loop
        start, stacks = flat[loop.consts :][: loop.carried], flat[loop.consts + loop.carried :]
        self.outside = dict(zip(loop.body.constvars, self.constants))
        self.outside.update(zip(loop.body.invars, flat[: loop.consts]))
        self.outside.update({loop.state(at): start[at] for at in loop.kept})
        self.inside = dict(zip(loop.body.invars[loop.consts + loop.carried :], stacks))
        """What each turn has a slice of."""
        last: dict[int, Any] = {at: start[at] for at in loop.kept}
        for at in self.order:
            last[at] = self._solve(at, start[at])
        gives = [at for at in self.wanted if at >= loop.carried]
        made = self._turns([loop.body.outvars[at] for at in gives])
        return [last[at] for at in self.wanted if at < loop.carried] + made

    def _turns(self, wanted: Sequence[Any], more: Any = None) -> list[Any]:
        """Variables of the body in all turns, stacked."""
        names = list(self.inside)

        def turn(*slices: Any) -> list[Any]:
            scope = {**self.outside, **dict(zip(names, slices)), **(more or {})}
            made = zip(wanted, evaluate(self.loop.body, scope, wanted))
            return [part for atom, value in made for part in self._parts(value, atom.aval)]

        if not wanted:
            return []
        found: list[Any] = module("jax").vmap(turn, axis_size=self.loop.length)(*self.inside.values())
        return found

    def _parts(self, value: Any, aval: Any) -> list[Any]:
        """A value; of one with the state its two parts, and which of them there are."""
        if not isinstance(value, Affine):
            return [value]
        self.parts = value.factor is not None, value.added is not None
        there = [part for part in (value.factor, value.added) if part is not None]
        return [module("jax.numpy").broadcast_to(part, aval.shape) for part in there]

    def _solve(self, at: int, start: Any) -> Any:
        """Finds one element of the state in all turns. What it is behind the last one."""
        loop, lax, jnp = self.loop, module("jax.lax"), module("jax.numpy")
        shape, dtype = (loop.length, *start.shape), start.dtype
        self.parts = None
        parts = self._turns([loop.next(at)], {loop.state(at): Affine()})
        has = self.parts
        if has is None:  # the state before is not looked at
            states = parts[0]
            self._note(at, is_new=False)
            return self._put(at, states, start)
        has_factor, has_added = has
        factor = parts[0] if has_factor else None
        added = parts[-1] if has_added else jnp.zeros(shape, dtype)
        self._note(at, is_new=factor is not None)
        if factor is None:
            states = self._along(added, jnp.ones(shape, dtype))
            states = states if loop.starts_at_zero[at] else states + start
            self._put(at, states, start)
            total = jnp.sum(added, 0, dtype=dtype)
            return total if loop.starts_at_zero[at] else total + start
        if not loop.starts_at_zero[at]:
            first = lax.broadcasted_iota(jnp.int32, shape, 0) == (loop.length - 1 if loop.reverse else 0)
            added = jnp.where(first, added + factor * start, added)
        return self._put(at, self._along(added, factor), start)

    def _along(self, added: Any, factor: Any) -> Any:
        lax = module("jax.lax")
        if not self.loop.reverse:
            return _primitive().bind(added, factor)
        return lax.rev(_primitive().bind(lax.rev(added, (0,)), lax.rev(factor, (0,))), (0,))

    def _put(self, at: int, states: Any, start: Any) -> Any:
        """Each turn knows what the state was in front of it and is behind it; the last one."""
        loop, lax, jnp = self.loop, module("jax.lax"), module("jax.numpy")
        low, high = (-1, 1) if loop.reverse else (1, -1)
        if loop.starts_at_zero[at]:
            before = lax.pad(states, jnp.zeros((), states.dtype), [(low, high, 0)] + [(0, 0, 0)] * start.ndim)
        elif loop.reverse:
            before = jnp.concatenate([states[1:], start[None]])
        else:
            before = jnp.concatenate([start[None], states[:-1]])
        self.inside[loop.state(at)] = before
        if not hasattr(loop.next(at), "val"):
            self.inside.setdefault(loop.next(at), states)
        return states[0] if loop.reverse else states[-1]

    def _note(self, at: int, is_new: bool) -> None:
        """Whether this element makes the loop a recurrence: it is no counter, and is multiplied or looked at in its turns."""
        loop = self.loop
        sources = {variable: n for n, variable in enumerate(loop.body.invars)}
        behind = _dependencies(loop.body, sources)
        own = loop.consts + at
        others = [loop.body.outvars[n] for n in (*self.order, *self.wanted) if n != at]
        is_used = any(own in behind(atom) or atom is loop.next(at) for atom in others)
        is_counter = behind(loop.next(at)) <= {own}
        self.is_recurrence = self.is_recurrence or (not is_counter and (is_new or is_used))
