"""What depends on no array of the caller: masks, positions, tables. It is computed here, and not in the layer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .lib import module, numpy
from .program import Flat, Known
from .source import Origin

MOST_ELEMENTS = 1 << 26
"""A table of more is not computed."""

_SAME = (
    "add sub mul div max min pow rem neg sign floor ceil round abs exp exp2 log log1p expm1 sqrt rsqrt cbrt square "
    "sin cos tan tanh logistic erf integer_pow eq ne lt le gt ge and or xor not select_n convert_element_type "
    "is_finite shift_left shift_right_logical shift_right_arithmetic stop_gradient copy clamp"
)
ELEMENTWISE = frozenset(_SAME.split())
"""Primitives that do the same to each element: broadcast dims stay as they are."""


def dtype_name(dtype: Any) -> str:
    """The dtype as JAX calls it."""
    return str(dtype)


def constant(array: Any, origin: Origin | None = None) -> Known:
    """An array that is there."""
    shape = tuple(array.shape)
    return Known(shape, dtype_name(array.dtype), tuple(n > 1 for n in shape), lambda _: array, True, origin)


def filled(shape: Sequence[int], value: Any, dtype: str) -> Known:
    """One number everywhere."""
    np = numpy()
    array = np.full([1] * len(shape), value, module("jax.numpy").dtype(dtype))
    return Known(tuple(shape), dtype, (False,) * len(shape), lambda _: array, True)


def argument(position: int, shape: Sequence[int], dtype: str) -> Known:
    """An argument that is a whole number."""
    return Known(tuple(shape), dtype, tuple(n > 1 for n in shape), lambda flat: numpy().asarray(flat[position]), False)


def full(known: Known, flat: Flat) -> Any:
    """All its elements."""
    array = known.data(flat)
    if str(getattr(array, "dtype", "")).startswith("key"):  # keys of random numbers are no numbers
        return array
    return numpy().broadcast_to(numpy().asarray(array), known.shape)


def number(known: object) -> float | int | None:
    """The number that it is everywhere, if it is one and has a value."""
    if not isinstance(known, Known) or not known.constant or any(known.real):
        return None
    array = numpy().asarray(known.data(()))
    if array.size != 1:
        return None
    value = array.reshape(()).item()
    return value if isinstance(value, (int, float)) else None


def evaluate(equation: Any, operands: Sequence[Known], origin: Origin) -> list[Known]:
    """The results of an equation of known operands."""
    primitive, params = equation.primitive, equation.params
    outs = [variable.aval for variable in equation.outvars]
    is_constant = all(known.constant for known in operands)
    rank = len(outs[0].shape)
    if primitive.name == "broadcast_in_dim":
        return [_broadcast(operands[0], outs[0].shape, params["broadcast_dimensions"], origin)]
    if primitive.name == "iota":
        return [_iota(outs[0], params["dimension"], origin)]
    if primitive.name in ELEMENTWISE and len(outs) == 1:
        real = tuple(any(known.real[at] for known in operands if known.shape) for at in range(rank))

        def elementwise(flat: Flat) -> Any:
            arrays = numpy().broadcast_arrays(*(known.data(flat) for known in operands))
            return numpy().asarray(primitive.bind(*arrays, **params))

        return [_once(Known(tuple(outs[0].shape), dtype_name(outs[0].dtype), real, elementwise, is_constant, origin))]

    def whole(flat: Flat) -> Any:
        found = primitive.bind(*(full(known, flat) for known in operands), **params)
        return found if primitive.multiple_results else [found]

    shared = _memo(whole, is_constant)
    return [
        Known(
            tuple(out.shape),
            dtype_name(out.dtype),
            tuple(n > 1 for n in out.shape),
            lambda flat, at=at: shared(flat)[at],  # type: ignore[misc]
            is_constant,
            origin,
        )
        for at, out in enumerate(outs)
    ]


def _broadcast(known: Known, shape: Sequence[int], to: Sequence[int], origin: Origin) -> Known:
    real = [False] * len(shape)
    for at, target in enumerate(to):
        real[target] = known.real[at]

    def data(flat: Flat) -> Any:
        array = numpy().asarray(known.data(flat))
        sizes = [1] * len(shape)
        for at, target in enumerate(to):
            sizes[target] = array.shape[at]
        return array.reshape(sizes)

    return Known(tuple(shape), known.dtype, tuple(real), data, known.constant, known.origin or origin)


def _iota(out: Any, dimension: int, origin: Origin) -> Known:
    sizes = [n if at == dimension else 1 for at, n in enumerate(out.shape)]
    array = numpy().arange(out.shape[dimension], dtype=out.dtype).reshape(sizes)
    real = tuple(at == dimension and n > 1 for at, n in enumerate(out.shape))
    return Known(tuple(out.shape), dtype_name(out.dtype), real, lambda _: array, True, origin)


def _memo(compute: Any, is_constant: bool) -> Any:
    """A constant is computed once."""
    if not is_constant:
        return compute
    kept: list[Any] = []

    def once(flat: Flat) -> Any:
        if not kept:
            kept.append(compute(flat))
        return kept[0]

    return once


def _once(known: Known) -> Known:
    data = _memo(known.data, known.constant)
    found = Known(known.shape, known.dtype, known.real, data, known.constant, known.origin)
    # What is computed to one number everywhere is one: zeros of a shape, say, less zeros.
    if known.constant and any(known.real):
        array = numpy().asarray(data(()))
        if array.size and bool((array == array.flat[0]).all()):
            first = array.flat[0:1].reshape([1] * len(known.shape))
            return Known(known.shape, known.dtype, (False,) * len(known.shape), lambda _: first, True, known.origin)
    return found


def causal(known: Known) -> int | None:
    """How many positions a row shows of a causal mask: a constant truth of two dims (L, S), the rows the last of S.

    Each row shows the positions up to its own: all of them, for which this is S, or the last ones of a window.
    """
    real = [at for at, is_real in enumerate(known.real) if is_real]
    if not known.constant or len(real) != 2:
        return None
    array = numpy().asarray(known.data(())).squeeze()
    rows, columns = array.shape
    if rows > columns or array.dtype != bool:
        return None
    window = int(array.sum(axis=1).max(initial=0))
    shown = numpy().tri(rows, columns, columns - rows, dtype=bool)
    past = numpy().tri(rows, columns, columns - rows - window, dtype=bool)
    return window if window > 0 and (array == (shown & ~past)).all() else None
