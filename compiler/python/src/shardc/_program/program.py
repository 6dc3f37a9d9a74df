"""The result of the walk, which is written as text: values, statements, layers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Union

from .dims import Dim, Dims, Positions
from .source import Origin

Flat = Sequence[Any]
"""The arrays of a call, in the order of JAX's flattened arguments."""

Spec = Mapping[int, tuple[str, ...]]
"""Position of a tensor of JAX to the axes that split it, major to minor. What is not there is not split."""


@dataclass(frozen=True)
class Tensor:
    """A value of the layer."""

    name: str
    positions: Positions
    shape: tuple[int, ...]
    dtype: str

    @property
    def dims(self) -> tuple[Dim, ...]:
        return tuple(dim for dim in self.positions if dim is not None)


@dataclass(frozen=True)
class Known:
    """What depends on no array of the caller.

    `data` gives it with the shape `shape`, where a dim along which all elements are alike may have size 1. Where
    `constant` is set it depends on nothing at all; else on whole numbers among the arguments, which may have no
    value yet.
    """

    shape: tuple[int, ...]
    dtype: str
    real: tuple[bool, ...]
    data: Callable[[Flat], Any] = field(compare=False)
    constant: bool
    origin: Origin | None = None
    name: str = ""
    """What the program calls it."""
    base: Known | None = field(default=None, compare=False)
    """The same without dims of size 1 in front: the two are one parameter."""


@dataclass(frozen=True)
class Stack:
    """Values one above the other along a first dim: what a loop takes one of in each turn."""

    parts: tuple[Value, ...]
    shape: tuple[int, ...]


Value = Union[Tensor, Known, Stack]

Operand = Union[str, float, int]
"""The name of a value, or a number."""


@dataclass(frozen=True)
class Expression:
    """What a statement computes: an op of the language, its operands, and what else it says."""

    op: str
    operands: tuple[Operand, ...]
    dims: tuple[Dim, ...] = ()
    to: tuple[Dim, ...] = ()
    word: str = ""
    number: int = 0


@dataclass
class Statement:
    """`let value = expression`."""

    value: Tensor
    expression: Expression
    origin: Origin | None
    name: str | None = None
    """What the program calls it."""


@dataclass(frozen=True)
class Pin:
    """A layout that the program asks for, of a value: what it names, and the positions that it leaves open."""

    spec: Spec
    is_open: bool


@dataclass
class Parameter:
    """A parameter of a layer: its tensor, where its data comes from, and how it lies."""

    tensor: Tensor
    wanted: str
    """The name that it should have."""
    data: Callable[[Flat], Any] | None
    """Its data, of the arguments of the call; None in a layer that is called."""
    spec: Spec | None
    kind: str = ""
    """`weight`, `cache` or nothing."""
    made_up: bool = False
    """Whether it is computed in front of the layer, and is no argument of the function."""
    label: str = ""


@dataclass(frozen=True)
class Result:
    """A result of the function: what it is, and which output of JAX it is (or which slice of one)."""

    value: Tensor
    wanted: str
    spec: Spec | None
    output: int
    part: int | None = None
    state: str | None = None
    """In a layer that is called: the id of the cache that it becomes."""


@dataclass
class Layer:
    """A layer: of the function itself, or of the body of a loop."""

    name: str
    repeat: int = 1
    parameters: list[Parameter] = field(default_factory=list)
    statements: list[Statement] = field(default_factory=list)
    results: list[Result] = field(default_factory=list)


@dataclass
class Call:
    """A call of a layer with `repeat`, and what its weights and caches are in each turn."""

    layer: Layer
    owned: dict[str, Sequence[Callable[[Flat], Any]]]
    """Of each parameter that the call owns, by the id of its value: the data of each turn."""
    states: dict[int, str] = field(default_factory=dict)
    """Outputs of JAX that are what a cache becomes: the number of the output, and the id of the cache's value."""


@dataclass
class Program:
    """A whole file."""

    dims: Dims
    main: Layer
    calls: dict[str, Call] = field(default_factory=dict)
    """By the name of the value that the call gives."""
    pins: list[Pin] = field(default_factory=list)
    called: dict[str, str] = field(default_factory=dict)
    """Names that `shardc.named` gives, by the id of the value."""
    notes: list[str] = field(default_factory=list)
    """What the file does otherwise than the function, a sentence each."""
    axes: tuple[int, ...] = ()
    """The sizes of the axes of the mesh."""
