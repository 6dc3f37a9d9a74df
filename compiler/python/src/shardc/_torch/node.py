"""One call of an operator: its arguments by name, as values."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from .._program import known as tables
from .._program.builder import DTYPES, Builder
from .._program.lib import numpy
from .._program.program import Flat, Known, Tensor, Value


def dtype_name(dtype: Any) -> str:
    """A dtype without the name of the library."""
    return str(dtype).replace("torch.", "")


class Node:
    """A call: what the schema of its operator says of its arguments, and what is known of its result."""

    def __init__(self, b: Builder, node: Any, read: Callable[[Any], Value]) -> None:
        self.b = b
        self.node = node
        self._given: dict[str, Any] = {}
        for at, argument in enumerate(node.target._schema.arguments):
            default = argument.default_value if argument.has_default_value() else None
            given = node.args[at] if at < len(node.args) else node.kwargs.get(argument.name, default)
            self._given[argument.name] = self._read(given, read)

    def _read(self, given: Any, read: Callable[[Any], Value]) -> Any:
        if hasattr(given, "op") and hasattr(given, "target"):
            return read(given)
        if isinstance(given, (list, tuple)):
            return [self._read(one, read) for one in given]
        return given

    @property
    def name(self) -> str:
        """The operator, without its overload."""
        return str(self.node.target._schema.name).replace("aten::", "")

    @property
    def out(self) -> Any:
        """PyTorch's metadata of the result: of the first one, where there are several."""
        found = self.node.meta["val"]
        return found[0] if isinstance(found, (list, tuple)) else found

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.out.shape)

    @property
    def dtype(self) -> str:
        return dtype_name(self.out.dtype)

    @property
    def operands(self) -> list[Value]:
        """All arguments that are tensors."""
        found: list[Value] = []
        for given in self._given.values():
            found += [
                one for one in (given if isinstance(given, list) else [given]) if isinstance(one, (Tensor, Known))
            ]
        return found

    @property
    def arguments(self) -> Mapping[str, Any]:
        return self._given

    def has(self, name: str) -> bool:
        """Whether an argument is there, and is not None."""
        return self._given.get(name) is not None

    def value(self, name: str) -> Value:
        """An argument that is a tensor; a number is one in the dtype of the result."""
        given = self._given[name]
        if isinstance(given, (bool, int, float)):
            dtype = "bool" if isinstance(given, bool) else self.dtype
            if dtype == "bool" and not isinstance(given, bool):  # of a comparison
                dtype = "float32" if isinstance(given, float) else "int32"
            return tables.filled((), given, dtype)
        assert isinstance(given, (Tensor, Known)), f"{name} is {given!r}"
        return given

    def tensor(self, name: str) -> Tensor:
        """An argument as a tensor of the layer."""
        return self.b.tensor(self.value(name))

    def plain(self, name: str) -> Any:
        """An argument that is not a tensor."""
        return self._given.get(name)

    def at(self, name: str, rank: int) -> int:
        """An argument that is a dim of a tensor, from 0."""
        return at(self._given[name], rank)

    def many(self, name: str, rank: int) -> list[int]:
        """An argument that is some dims, or all where it is nothing."""
        given = self._given.get(name)
        if given is None or given == []:
            return list(range(rank))
        return [at(one, rank) for one in (given if isinstance(given, list) else [given])]


def at(dim: int, rank: int) -> int:
    """A dim from 0: it may be counted from behind."""
    return dim % rank if rank else 0


def aligned(value: Value, rank: int) -> Value:
    """The value with dims of size 1 in front, as PyTorch broadcasts it; a scalar stays one."""
    if not isinstance(value, (Tensor, Known)):
        return value
    lacking = rank - len(value.shape)
    if lacking <= 0 or not value.shape:
        return value
    shape = (1,) * lacking + value.shape
    if isinstance(value, Tensor):
        return Tensor(value.name, (None,) * lacking + value.positions, shape, value.dtype)
    inner = value

    def data(flat: Flat) -> Any:
        array = numpy().asarray(inner.data(flat))
        return array.reshape((1,) * lacking + array.shape)

    return Known(shape, value.dtype, (False,) * lacking + value.real, data, value.constant, value.origin, base=value)


def promoted(b: Builder, values: Sequence[Value], dtype: str, rank: int) -> list[Value]:
    """Operands that are combined element by element, in the dtype that they meet in."""
    found: list[Value] = []
    for value in values:
        wide = aligned(value, rank)
        word = wide.dtype if isinstance(wide, Tensor) else DTYPES.get(getattr(wide, "dtype", ""), "")
        found.append(wide if word == b.dtype(dtype) else b.cast(wide, dtype))
    return found


__all__ = ["Node", "aligned", "at", "dtype_name", "promoted"]
