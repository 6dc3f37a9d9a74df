"""Values that depend on no array of the caller, computed by JAX."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .._program import known as tables
from .._program.lib import numpy
from .._program.program import Flat, Known
from .._program.source import Origin

_SAME = (
    "add sub mul div max min pow rem neg sign floor ceil round abs exp exp2 log log1p expm1 sqrt rsqrt cbrt square "
    "sin cos tan tanh logistic erf integer_pow eq ne lt le gt ge and or xor not select_n convert_element_type "
    "is_finite shift_left shift_right_logical shift_right_arithmetic stop_gradient copy clamp"
)
ELEMENTWISE = frozenset(_SAME.split())
"""Primitives that do the same to each element: broadcast dims stay as they are."""


def evaluate(equation: Any, operands: Sequence[Known], origin: Origin) -> list[Known]:
    """The results of an equation of known operands."""
    primitive, params = equation.primitive, equation.params
    outs = [variable.aval for variable in equation.outvars]
    is_constant = all(known.constant for known in operands)
    rank = len(outs[0].shape)
    if primitive.name == "broadcast_in_dim":
        return [tables.broadcast(operands[0], outs[0].shape, params["broadcast_dimensions"], origin)]
    if primitive.name == "iota":
        return [_iota(outs[0], params["dimension"], origin)]
    if primitive.name in ELEMENTWISE and len(outs) == 1:
        real = tuple(any(known.real[at] for known in operands if known.shape) for at in range(rank))

        def elementwise(flat: Flat) -> Any:
            arrays = numpy().broadcast_arrays(*(known.data(flat) for known in operands))
            return numpy().asarray(primitive.bind(*arrays, **params))

        return [
            tables.once(
                Known(tuple(outs[0].shape), tables.dtype_name(outs[0].dtype), real, elementwise, is_constant, origin)
            )
        ]

    def whole(flat: Flat) -> Any:
        found = primitive.bind(*(tables.full(known, flat) for known in operands), **params)
        return found if primitive.multiple_results else [found]

    shared = tables.memo(whole, is_constant)
    return [
        Known(
            tuple(out.shape),
            tables.dtype_name(out.dtype),
            tuple(n > 1 for n in out.shape),
            lambda flat, at=at: shared(flat)[at],  # type: ignore[misc]
            is_constant,
            origin,
        )
        for at, out in enumerate(outs)
    ]


def _iota(out: Any, dimension: int, origin: Origin) -> Known:
    sizes = [n if at == dimension else 1 for at, n in enumerate(out.shape)]
    array = numpy().arange(out.shape[dimension], dtype=out.dtype).reshape(sizes)
    real = tuple(at == dimension and n > 1 for at, n in enumerate(out.shape))
    return Known(tuple(out.shape), tables.dtype_name(out.dtype), real, lambda _: array, True, origin)
