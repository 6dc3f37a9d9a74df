"""What depends on no array of the caller: masks, positions, tables. It is computed here, and not in the layer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .lib import dtype_of, numpy
from .program import Flat, Known
from .source import Origin

MOST_ELEMENTS = 1 << 26
"""A table of more is not computed."""


def dtype_name(dtype: Any) -> str:
    """The dtype as JAX calls it."""
    return str(dtype)


def constant(array: Any, origin: Origin | None = None) -> Known:
    """An array with its data."""
    shape = tuple(array.shape)
    return Known(shape, dtype_name(array.dtype), tuple(n > 1 for n in shape), lambda _: array, True, origin)


def filled(shape: Sequence[int], value: Any, dtype: str) -> Known:
    """One number everywhere."""
    np = numpy()
    array = np.full([1] * len(shape), value, dtype_of(dtype))
    return Known(tuple(shape), dtype, (False,) * len(shape), lambda _: array, True)


def argument(position: int, shape: Sequence[int], dtype: str) -> Known:
    """An argument that is a whole number."""

    def data(flat: Flat) -> Any:
        # Keys of random numbers are no numbers.
        return flat[position] if dtype.startswith("key") else numpy().asarray(flat[position])

    return Known(tuple(shape), dtype, tuple(n > 1 for n in shape), data, False)


def full(known: Known, flat: Flat) -> Any:
    """All its elements."""
    array = known.data(flat)
    if str(getattr(array, "dtype", "")).startswith("key"):  # keys of random numbers are no numbers
        return array
    return numpy().broadcast_to(numpy().asarray(array), known.shape)


def number(known: object) -> float | int | None:
    """The number, if it is the same number everywhere and has a value."""
    if not isinstance(known, Known) or not known.constant or any(known.real):
        return None
    array = numpy().asarray(known.data(()))
    if array.size != 1:
        return None
    value = array.reshape(()).item()
    return value if isinstance(value, (int, float)) else None


def broadcast(known: Known, shape: Sequence[int], to: Sequence[int], origin: Origin | None) -> Known:
    """With more dims: `to` has the place of each that there was. Along the others all elements are alike."""
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


def memo(compute: Any, is_constant: bool) -> Any:
    """A constant is computed once."""
    if not is_constant:
        return compute
    kept: list[Any] = []

    def kept_one(flat: Flat) -> Any:
        if not kept:
            kept.append(compute(flat))
        return kept[0]

    return kept_one


def once(known: Known) -> Known:
    data = memo(known.data, known.constant)
    found = Known(known.shape, known.dtype, known.real, data, known.constant, known.origin, known.name)
    # A value computed to the same number everywhere is one number: zeros minus zeros, for example.
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


def counts_along(value: object) -> int | None:
    """The dim along which a known tensor is 0, 1, 2 and so on, if it has no other."""
    if not isinstance(value, Known) or not value.constant or sum(value.real) != 1:
        return None
    array = numpy().asarray(value.data(())).reshape(-1)
    counts = bool((array == numpy().arange(array.size)).all())
    return value.real.index(True) if counts and array.size == value.shape[value.real.index(True)] else None
