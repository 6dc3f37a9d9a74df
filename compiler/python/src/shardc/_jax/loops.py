"""`scan`: a layer with `repeat` where the language can express it, otherwise its turns one after another."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from .._program import known as tables
from .._program import shapes
from .._program.builder import Builder
from .._program.lib import numpy
from .._program.program import Call, Expression, Flat, Known, Layer, Parameter, Result, Stack, Tensor, Value
from .._program.source import Origin
from . import primitives, recurrences

Walk = Callable[..., "list[Value]"]

_ELEMENTWISE = {
    **dict.fromkeys([*primitives.MAPS, *primitives.BINARIES], primitives.elementwise),
    **dict.fromkeys(["eq", "ne", "lt", "le", "gt", "ge"], primitives.compare),
    **dict.fromkeys(["name", "copy", "stop_gradient"], primitives.as_is),
    "integer_pow": primitives.integer_pow,
    "pow": primitives.power,
    "convert_element_type": primitives.convert,
    "select_n": primitives.select,
    "clamp": primitives.clamp,
    "sign": primitives.sign,
}
BY_TURNS = frozenset([*_ELEMENTWISE, "reduce_sum"])
"""What may be done to a stack one part after another."""


class _NotRepeated(Exception):
    """The loop does something that a repeated layer does not."""


def scan(b: Builder, equation: Any, operands: Sequence[Value], here: Origin, walk: Walk) -> list[Value]:
    """A loop with a known number of turns."""
    params = equation.params
    consts = list(operands[: params["num_consts"]])
    carry = list(operands[params["num_consts"] :][: params["num_carry"]])
    stacks = list(operands[params["num_consts"] + params["num_carry"] :])
    found = recurrences.scan(b, equation, consts, carry, [whole(b, stack) for stack in stacks], here, walk)
    if found is not None:
        return found
    kept = len(b.layer.statements), len(b.layer.parameters)
    if b.outer is None and params["length"] > 1 and not params["reverse"]:
        try:
            return _repeated(b, equation, consts, carry, stacks, here, walk)
        except _NotRepeated:
            # The statements begun here are removed; dims that became one stay one.
            del b.layer.statements[kept[0] :]
            b.forget(kept[1])
    return _unrolled(b, equation, consts, carry, stacks, here, walk)


def _unrolled(
    b: Builder,
    equation: Any,
    consts: Sequence[Value],
    carry: Sequence[Value],
    stacks: Sequence[Value],
    here: Origin,
    walk: Walk,
) -> list[Value]:
    params = equation.params
    length, body = params["length"], params["jaxpr"]
    turns = range(length - 1, -1, -1) if params["reverse"] else range(length)
    made: list[list[Value]] = []
    state = list(carry)
    inner = [tables.constant(numpy().asarray(array)) for array in body.consts]
    for turn in turns:
        slices = [_slice(b, stack, turn) for stack in stacks]
        results = walk(b, body.jaxpr, inner, [*consts, *state, *slices], here.frames)
        state = results[: params["num_carry"]]
        made.append(results[params["num_carry"] :])
    if params["reverse"]:
        made.reverse()
    columns = [Stack(parts, (length, *parts[0].shape)) for parts in zip(*made)]
    return [*state, *(_known_stack(column) for column in columns)]


def _known_stack(stack: Stack) -> Value:
    """A stack of tables is a table."""
    np = numpy()
    parts = [part for part in stack.parts if isinstance(part, Known)]
    if len(parts) < len(stack.parts):
        return stack
    numbers = {tables.number(part) for part in parts}
    if len(numbers) == 1 and None not in numbers:
        return tables.filled(stack.shape, numbers.pop(), parts[0].dtype)
    real = tuple(n > 1 for n in stack.shape)
    constant = all(part.constant for part in parts)
    return Known(
        stack.shape, parts[0].dtype, real, lambda flat: np.stack([tables.full(part, flat) for part in parts]), constant
    )


def _slice(b: Builder, stack: Value, turn: int) -> Value:
    """The part of a stack that one turn takes."""
    if isinstance(stack, Stack):
        return stack.parts[turn]
    if isinstance(stack, Known):
        return _known_slice(stack, turn)
    found = b.slice_of_argument(stack, turn)
    if found is not None:
        return found
    if _is_of_arguments(b, stack):
        # An op on a whole stack of weights is done on the weight that this turn takes.
        key = (stack.name, turn)
        if key not in b.sliced:
            name, operands, equation = b.made_of[stack.name]
            rank = len(stack.shape)
            slices = [_slice(b, operand, turn) if len(operand.shape) == rank else operand for operand in operands]
            (b.sliced[key],) = _ELEMENTWISE[name](b, equation, slices)
        return b.sliced[key]
    cut = shapes.window(b, stack, 0, turn, 1)
    return Tensor(cut.name, cut.positions[1:], cut.shape[1:], cut.dtype)


def _is_of_arguments(b: Builder, value: Value) -> bool:
    """Whether a stack is computed element by element of stacks that are arguments."""
    if not isinstance(value, Tensor):
        return True
    if value.name not in b.made_of:
        argument = b.argument(value.name)
        return argument is not None and not (argument.spec and argument.spec.get(0))
    name, operands, _ = b.made_of[value.name]
    alike = [operand for operand in operands if len(operand.shape) == len(value.shape)]
    return name in _ELEMENTWISE and all(_is_of_arguments(b, operand) for operand in alike)


def _known_slice(stack: Known, turn: int) -> Known:
    at = turn if stack.real[0] else 0

    def data(flat: Flat) -> Any:
        return numpy().asarray(stack.data(flat))[at]

    return tables.once(Known(stack.shape[1:], stack.dtype, stack.real[1:], data, stack.constant, stack.origin))


def by_turns(b: Builder, equation: Any, operands: Sequence[Value]) -> list[Value]:
    """An elementwise operation, or a sum, of stacks: of each part."""
    stack = next(operand for operand in operands if isinstance(operand, Stack))
    rank = len(stack.shape)
    name = equation.primitive.name
    axes = equation.params["axes"] if name == "reduce_sum" else ()
    parts: list[Value] = []
    for turn in range(len(stack.parts)):
        slices = [_slice(b, operand, turn) if len(operand.shape) == rank else operand for operand in operands]
        if name == "reduce_sum":
            tensor = b.tensor(slices[0])
            over = [at - 1 for at in axes if at]
            shape = [n for at, n in enumerate(tensor.shape) if at not in over]
            parts.append(b.reduce("sum", tensor, over, shape))
        else:
            parts += _ELEMENTWISE[name](b, equation, slices)
    if name != "reduce_sum" or 0 not in axes:
        return [Stack(tuple(parts), (len(parts), *parts[0].shape))]
    total = parts[0]
    for part in parts[1:]:
        total = b.binary("+", total, part)
    return [total]


def whole(b: Builder, value: Value) -> Value:
    """A stack as one tensor, its parts joined along the first dim."""
    if not isinstance(value, Stack):
        return value
    made: Tensor | None = None
    for part in value.parts:
        one = b.tensor(whole(b, part))
        tall = Tensor(one.name, (None, *one.positions), (1, *one.shape), one.dtype)
        tall = b.materialise(tall, range(len(tall.shape)))
        made = tall if made is None else shapes.join(b, made, tall, 0)
    assert made is not None
    return made


def _repeated(
    b: Builder,
    equation: Any,
    consts: Sequence[Value],
    carry: Sequence[Value],
    stacks: Sequence[Value],
    here: Origin,
    walk: Walk,
) -> list[Value]:
    params = equation.params
    body, length = params["jaxpr"].jaxpr, params["length"]
    n_consts, n_carry = params["num_consts"], params["num_carry"]
    handed = _handed_on(equation, body, n_consts, n_carry)
    if not isinstance(carry[handed], Tensor):
        raise _NotRepeated
    name, taken_names = _layer_name(params["jaxpr"]), {call.layer.name for call in b.program.calls.values()}
    layer = Layer(name if name not in taken_names else f"{name}{len(taken_names) + 1}", repeat=length)
    inner = Builder(b.program, layer, b)
    inner.origin = here
    first = b.materialise(b.tensor(carry[handed]), range(len(carry[handed].shape)))
    taken = inner.import_outer(first, "x")
    assert isinstance(taken, Tensor)
    call = Call(layer, {})
    operands: list[Value] = [inner.import_outer(value, b.name_of(value)) for value in consts]
    for at, value in enumerate(carry):
        # Counters are not the same in all turns.
        operands.append(taken if at == handed else inner.import_outer(value, b.name_of(value)))
    owned = [_owned(b, inner, call, stack, length) for stack in stacks]
    operands += owned
    inner_consts = [tables.constant(numpy().asarray(array)) for array in params["jaxpr"].consts]
    results = walk(inner, body, inner_consts, operands, here.frames)
    given = inner.materialise(inner.tensor(results[handed]), range(len(first.shape)))
    given = inner.meet(taken.positions, given)
    if given.name == taken.name:
        raise _NotRepeated
    layer.results.append(Result(given, "y", None, 0))
    made: list[Value] = list(carry)
    value = b.emit(Expression("call", (first.name,), word=layer.name), first.positions, first.shape, first.dtype)
    b.program.calls[value.name] = call
    made[handed] = value
    return [*made, *(_states(equation, inner, call, results[n_carry:], owned, n_carry))]


def _layer_name(body: Any) -> str:
    """The name of the function that a loop runs."""
    info = getattr(body.jaxpr, "debug_info", None)
    name = getattr(info, "func_name", None) or "block"
    return name if name.isidentifier() and name != "_" else "block"


def _handed_on(equation: Any, body: Any, n_consts: int, n_carry: int) -> int:
    """The one element of the state that a turn changes."""
    changed = [at for at in range(n_carry) if body.outvars[at] is not body.invars[n_consts + at]]
    if len(changed) != 1:
        raise _NotRepeated
    return changed[0]


def _owned(b: Builder, inner: Builder, call: Call, stack: Value, length: int) -> Value:
    """The part of a stack that a turn takes, as a weight that the call owns."""
    if isinstance(stack, Known):
        if not stack.real[0]:
            return _known_slice(stack, 0)
        dtype = inner.dtype(stack.dtype)
        positions = tuple(b.dims.fresh(n) if real else None for n, real in zip(stack.shape[1:], stack.real[1:]))
        slices = [_known_slice(stack, turn) for turn in range(length)]
        datas = [_squeezed(one) for one in slices]
        made = inner.parameter("table", positions, stack.shape[1:], dtype, None)
        made.kind = "weight"
        call.owned[made.tensor.name] = datas
        return made.tensor
    if isinstance(stack, Stack):
        raise _NotRepeated
    name, casts = stack.name, []
    while name in b.made_of and b.made_of[name][0] == "convert_element_type":
        source = b.made_of[name][1][0]
        assert isinstance(source, Tensor)
        casts.append(name)
        name = source.name
    argument = b.argument(name)
    if argument is None or argument.data is None:
        raise _NotRepeated
    if argument.spec and argument.spec.get(0):
        raise b.fail(
            f"`{argument.wanted}` is split along its stack, over {', '.join(argument.spec[0])}: one layer is one weight"
        )
    tensor = argument.tensor
    made = inner.parameter(argument.wanted, tensor.positions[1:], tensor.shape[1:], tensor.dtype, None)
    made.kind = "weight"
    made.spec = None if argument.spec is None else {at - 1: axes for at, axes in argument.spec.items()}
    call.owned[made.tensor.name] = [_part(argument, turn) for turn in range(length)]
    if casts:
        return inner.emit(
            Expression("cast", (made.tensor.name,), word=stack.dtype), stack.positions[1:], stack.shape[1:], stack.dtype
        )
    return made.tensor


def _part(argument: Parameter, turn: int) -> Callable[[Flat], Any]:
    data = argument.data
    assert data is not None
    return lambda flat: data(flat)[turn]


def _squeezed(known: Known) -> Callable[[Flat], Any]:
    def data(flat: Flat) -> Any:
        kept = tuple(n for n, real in zip(known.shape, known.real) if real)
        return (
            numpy()
            .broadcast_to(known.data(flat), tuple(n if real else 1 for n, real in zip(known.shape, known.real)))
            .reshape(kept)
        )

    return data


STATE = "@"
"""A value so named is what a cache of a call becomes in all turns: it can only be returned."""


def _states(
    equation: Any, inner: Builder, call: Call, made: Sequence[Value], owned: Sequence[Value], n_carry: int
) -> list[Value]:
    """The other results of the turns: caches that were appended to, or results that nothing uses."""
    found: list[Value] = []
    for value, variable in zip(made, equation.outvars[n_carry:]):
        if type(variable).__name__ == "DropVar":
            found.append(tables.filled(variable.aval.shape, 0, "float32"))
            continue
        cache = _cache_behind(inner, value)
        parameter = next((p for p in inner.layer.parameters if p.tensor.name == cache), None)
        if parameter is None or parameter.tensor.name not in call.owned or not isinstance(value, Tensor):
            raise _NotRepeated
        parameter.kind = "cache"
        inner.layer.results.append(Result(value, f"{parameter.wanted}_new", None, 0, state=cache))
        length = equation.params["length"]
        name = f"{STATE}{parameter.tensor.name}"
        found.append(Tensor(name, (None, *value.positions), (length, *value.shape), value.dtype))
    return found


def _cache_behind(inner: Builder, value: Value) -> str | None:
    """The cache that a value is, with new positions."""
    if not isinstance(value, Tensor):
        return None
    for statement in inner.layer.statements:
        if statement.value.name == value.name and statement.expression.op == "append":
            return str(statement.expression.operands[0])
    return None
