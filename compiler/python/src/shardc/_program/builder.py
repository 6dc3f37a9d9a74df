"""Makes the statements of one layer: dims meet, numbers are folded, what is known becomes a parameter."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from . import known as tables
from .dims import Dim, Dims, Positions
from .errors import TranslationError
from .lib import dtype_of, numpy
from .program import (
    Expression,
    Flat,
    Known,
    Layer,
    Operand,
    Parameter,
    Pin,
    Program,
    Stack,
    Statement,
    Tensor,
    Value,
)
from .source import Origin

DTYPES = {
    "float32": "f32",
    "bfloat16": "bf16",
    "float16": "f16",
    "float8_e4m3fn": "f8",
    "float8_e5m2": "f8",
    "float4_e2m1fn": "f4",
    "int8": "int8",
    "int4": "int4",
    "int32": "int32",
    "uint32": "int32",
    "int64": "int32",
    "bool": "bool",
}
"""A dtype of JAX to one of the language."""

MOST_STATEMENTS = 14000
"""The language takes 16384 values in a layer."""


class Builder:
    """One layer, while it is made. That of a loop's body has the builder of the layer around it as `outer`."""

    def __init__(self, program: Program, layer: Layer, outer: Builder | None = None) -> None:
        self.program = program
        self.layer = layer
        self.outer = outer
        self.origin: Origin | None = None
        self.primitive: str | None = None
        self._known: dict[int, tuple[Known, Tensor]] = {}
        self._slices: dict[tuple[str, int], Tensor] = {}
        self.sliced: dict[tuple[str, int], Value] = {}
        self._ones: dict[tuple[Dim, str], Tensor] = {}
        self.backward: dict[Dim, Tensor] = {}
        """Of a dim the positions from the last to the first, along a dim of their own."""
        self.made_of: dict[str, tuple[str, Sequence[Value], Any]] = {}
        """Of a value that one equation makes: its primitive, its operands, the equation."""
        self.negated: dict[str, Tensor] = {}
        """Of a truth that is made as the negation of another: that one."""
        self.caches: set[str] = set()
        """What is appended to."""
        self._count: list[int] = outer._count if outer else [0]

    @property
    def dims(self) -> Dims:
        return self.program.dims

    def fail(self, said: str) -> TranslationError:
        """The error for the equation that is looked at."""
        return TranslationError(said, self.primitive, self.origin)

    def dtype(self, name: Any) -> str:
        """The language's word for a dtype of JAX."""
        word = DTYPES.get(str(name))
        if word is None:
            raise self.fail(f"`.shard` has no dtype {name}")
        return word

    def note(self, said: str) -> None:
        """A difference between the file and the function."""
        place = self.origin.place if self.origin else None
        text = f"{place.file.rsplit('/', 1)[-1]}:{place.line}: {said}" if place else said
        if text not in self.program.notes:
            self.program.notes.append(text)

    def parts_of(self, value: Value) -> Sequence[Value] | None:
        """The parts from which a value was joined."""
        found = self.made_of.get(value.name) if isinstance(value, Tensor) else None
        return found[1] if found is not None and found[0] == "concatenate" else None

    def called(self, value: Value, name: str) -> None:
        """Gives a value the name that the program has for it."""
        if isinstance(value, Tensor):
            self.program.called[value.name] = name

    # Statements

    def _id(self) -> str:
        self._count[0] += 1
        return f"%{self._count[0]}"

    def emit(self, expression: Expression, positions: Positions, shape: Sequence[int], dtype: str) -> Tensor:
        """A statement, and the value that it makes."""
        if len(self.layer.statements) >= MOST_STATEMENTS:
            raise self.fail(
                f"the function has more than {MOST_STATEMENTS} operations; a layer has at most 16384 values"
            )
        value = Tensor(self._id(), tuple(positions), tuple(shape), dtype)
        self.dims.tensor(value.positions)
        self.layer.statements.append(Statement(value, expression, self.origin))
        return value

    def parameter(
        self,
        wanted: str,
        positions: Positions,
        shape: Sequence[int],
        dtype: str,
        data: Callable[[Flat], Any] | None,
        made_up: bool = False,
    ) -> Parameter:
        """A parameter of the layer, laid out freely until something else is said."""
        self.dims.tensor(positions)
        made = Parameter(Tensor(self._id(), tuple(positions), tuple(shape), dtype), wanted, data, None, made_up=made_up)
        self.layer.parameters.append(made)
        return made

    def given(
        self, name: str, shape: Sequence[int], dtype: str, data: Callable[[Flat], Any], spec: Any, is_weight: bool
    ) -> Tensor:
        """A parameter for an argument, laid out as `spec` says: a dim of its own wherever it is longer than 1."""
        positions = tuple(self.dims.fresh(n) if n > 1 else None for n in shape)
        for place, dim in enumerate(positions):
            if dim is not None:
                self.dims.used_by(dim, f"{name}[{place}]")
        kept = tuple(n for n in shape if n > 1)
        made = self.parameter(name, positions, shape, self.dtype(dtype), lambda flat: data(flat).reshape(kept))
        made.spec = spec
        made.kind = "weight" if is_weight and shape else ""
        return made.tensor

    def import_outer(self, value: Value, wanted: str) -> Value:
        """A value of the layer around, as a parameter of this one."""
        if not isinstance(value, Tensor):
            return value
        made = self.parameter(wanted, value.positions, value.shape, value.dtype, None)
        made.label = value.name
        return Tensor(made.tensor.name, value.positions, value.shape, value.dtype)

    # Arguments of the function, and loops over them

    def argument(self, name: str) -> Parameter | None:
        """The argument of the function that a value is."""
        found = (p for p in self.layer.parameters if p.tensor.name == name and p.data is not None and not p.made_up)
        return next(found, None)

    def name_of(self, value: Value) -> str:
        """The name that the program has for a value, or another name."""
        if isinstance(value, Known):
            return self._wanted(value)
        if isinstance(value, Tensor):
            argument = self.argument(value.name)
            if argument is not None:
                return argument.wanted
            for statement in reversed(self.layer.statements):
                if statement.value.name == value.name and statement.origin and statement.origin.variable:
                    return statement.origin.variable[0]
        return "a"

    def forget(self, kept: int) -> None:
        """Takes back all parameters behind the first `kept`."""
        gone = {parameter.tensor.name for parameter in self.layer.parameters[kept:]}
        del self.layer.parameters[kept:]
        self._known = {key: pair for key, pair in self._known.items() if pair[1].name not in gone}
        self._ones = {key: one for key, one in self._ones.items() if one.name not in gone}
        self.backward = {key: one for key, one in self.backward.items() if one.name not in gone}

    def slice_of_argument(self, stack: Tensor, turn: int) -> Tensor | None:
        """One layer of a stack of weights, as a parameter of its own."""
        key = (stack.name, turn)
        if key in self._slices:
            return self._slices[key]
        argument = self.argument(stack.name)
        if argument is None or argument.data is None or (argument.spec and argument.spec.get(0)):
            return None
        whole = argument.data
        one = self.parameter(
            f"{argument.wanted}_{turn}",
            stack.positions[1:],
            stack.shape[1:],
            stack.dtype,
            lambda flat: whole(flat)[turn],
        )
        one.kind = argument.kind
        one.spec = None if argument.spec is None else {at - 1: axes for at, axes in argument.spec.items()}
        self._slices[key] = one.tensor
        return one.tensor

    # What is known

    def tensor(self, value: Value, whole: bool = False) -> Tensor:
        """The value as a tensor of this layer. With `whole` no dim is left out but those of size 1."""
        if isinstance(value, Stack):
            raise self.fail("this takes a whole stack of what a loop makes in its turns")
        if isinstance(value, Tensor):
            if value.name.startswith("@"):
                raise self.fail("a cache that a loop over layers gives back can only be returned")
            return self.materialise(value, range(len(value.shape))) if whole else value
        if whole:
            real = tuple(n > 1 for n in value.shape)
            value = Known(value.shape, value.dtype, real, lambda flat, k=value: tables.full(k, flat), value.constant)  # type: ignore[misc]
        found = self._known.get(id(value))
        if found is not None:
            return found[1]
        if value.base is not None:
            base = self.tensor(value.base)
            return Tensor(
                base.name, (None,) * (len(value.shape) - len(base.shape)) + base.positions, value.shape, base.dtype
            )
        if self.outer is not None:
            outer = self.outer.tensor(value)
            made = self.import_outer(outer, self._wanted(value))
            assert isinstance(made, Tensor)
        else:
            made = self._parameter_of(value)
        self._known[id(value)] = (value, made)
        return made

    def _wanted(self, value: Known) -> str:
        variable = value.origin.variable if value.origin else None
        return value.name or (variable[0] if variable else "constant")

    def _parameter_of(self, value: Known) -> Tensor:
        elements = math.prod(n for n, real in zip(value.shape, value.real) if real)
        if elements > tables.MOST_ELEMENTS:
            raise self.fail(f"a table of {elements} elements is computed of nothing")
        positions = tuple(self.dims.fresh(n) if real else None for n, real in zip(value.shape, value.real))
        dtype = self.dtype(value.dtype)

        def data(flat: Flat) -> Any:
            array = numpy().asarray(value.data(flat))
            kept = tuple(n for n, real in zip(value.shape, value.real) if real)
            array = numpy().broadcast_to(array, tuple(n if r else 1 for n, r in zip(value.shape, value.real)))
            return array.reshape(kept)

        return self.parameter(self._wanted(value), positions, value.shape, dtype, data, made_up=True).tensor

    def ones(self, dim: Dim, dtype: str) -> Tensor:
        """A parameter of ones along one dim, to repeat a value along it."""
        key = (self.dims.root(dim), dtype)
        if key not in self._ones:
            size = self.dims.size(dim)
            data = None if self.outer else (lambda flat: numpy().ones(size))
            made = self.parameter("ones", (dim,), (size,), dtype, data, made_up=True)
            if self.outer:
                made.label = self.outer.ones(dim, dtype).name
            self._ones[key] = made.tensor
        return self._ones[key]

    def table(self, wanted: str, dims: Sequence[Dim], array: Any, dtype: str) -> Tensor:
        """A parameter with data of its own."""
        data = None if self.outer else (lambda flat: array)
        made = self.parameter(wanted, tuple(dims), array.shape, dtype, data, made_up=True)
        if self.outer:
            made.label = self.outer.table(wanted, dims, array, dtype).name
        return made.tensor

    def materialise(self, value: Tensor, at: Sequence[int], even_one: bool = False) -> Tensor:
        """The value with real dims at these positions; of size 1 only with `even_one`."""
        for position in at:
            if value.positions[position] is not None or (value.shape[position] == 1 and not even_one):
                continue
            dim = self.dims.fresh(value.shape[position])
            if value.shape[position] == 1 and value.dims:  # a view, which costs nothing
                last = value.dims[-1]
                made = value.positions[:position] + (dim,) + value.positions[position + 1 :]
                expression = Expression("split", (value.name,), (last,), (last, dim))
                value = self.emit(expression, made, value.shape, value.dtype)
                continue
            if value.dtype == "bool":
                return self.truth(self.materialise(self.tensor(self.numbers(value)), at, even_one))
            ones = self.ones(dim, value.dtype)
            positions = value.positions[:position] + (dim,) + value.positions[position + 1 :]
            expression = Expression("*", (value.name, ones.name))
            value = self.emit(expression, positions, value.shape, value.dtype)
        return value

    # Dims that meet

    def rename(self, value: Tensor, pairs: Sequence[tuple[Dim, Dim]]) -> Tensor:
        """Some dims under other names, all at once."""
        root = self.dims.root
        waiting = [(root(one), root(other)) for one, other in pairs if root(one) != root(other)]
        has = {root(dim) for dim in value.dims}
        froms = {one for one, _ in waiting}
        steps: list[tuple[Dim, Dim]] = []
        for _, other in waiting:
            if other in has and other not in froms:
                steps.append((other, self.dims.fresh(self.dims.size(other), like=other)))
        has -= {one for one, _ in steps}
        while waiting:
            ready = next((pair for pair in waiting if pair[1] not in has), None)
            if ready is None:  # names change places: one of them goes by a third
                one, other = waiting.pop(0)
                between = self.dims.fresh(self.dims.size(one), like=one)
                steps.append((one, between))
                waiting.append((between, other))
                has = (has - {one}) | {between}
                continue
            waiting.remove(ready)
            steps.append(ready)
            has = (has - {ready[0]}) | {ready[1]}
        for one, other in steps:
            positions = tuple(other if p is not None and root(p) == root(one) else p for p in value.positions)
            expression = Expression("rename", (value.name,), (one,), (other,))
            value = self.emit(expression, positions, value.shape, value.dtype)
        return value

    def meet(self, wanted: Positions, value: Tensor) -> Tensor:
        """The value with the dims of `wanted` where both have one: made one, or else renamed."""
        pairs = []
        for ours, theirs in zip(wanted, value.positions):
            if ours is not None and theirs is not None and not self.dims.unify(ours, theirs):
                pairs.append((theirs, ours))
        return self.rename(value, pairs) if pairs else value

    # Arithmetic

    def cast(self, value: Value, dtype: str) -> Value:
        """Another dtype, as JAX calls it."""
        if isinstance(value, Known):
            return self.fold("convert_element_type", [value], dtype)
        value, word = self.tensor(value), self.dtype(dtype)
        if value.dtype == word:
            return value
        return self.emit(Expression("cast", (value.name,), word=word), value.positions, value.shape, word)

    def numbers(self, value: Value) -> Value:
        """A boolean as the numbers 0 and 1; any other value unchanged."""
        return self.cast(value, "int32") if not isinstance(value, Stack) and value.dtype == "bool" else value

    def truth(self, value: Tensor) -> Tensor:
        """For numbers that are not negative: where they are not 0."""
        return self.emit(Expression("less", (0, value.name)), value.positions, value.shape, "bool")

    def fold(self, word: str, operands: Sequence[Known], dtype: str | None = None) -> Known:
        """An operation on known values, computed."""
        np = numpy()
        calls: dict[str, Callable[..., Any]] = {
            "+": np.add,
            "-": np.subtract,
            "*": np.multiply,
            "/": np.divide,
            "maximum": np.maximum,
            "minimum": np.minimum,
            "less": np.less,
            "less_equal": np.less_equal,
            "equal": np.equal,
            "where": np.where,
            "convert_element_type": lambda a: np.asarray(a).astype(dtype_of(str(dtype))),
        }
        call = calls[word]
        shape = tuple(np.broadcast_shapes(*(known.shape for known in operands)))
        real = tuple(any(known.real[at] for known in operands if known.shape) for at in range(len(shape)))
        constant = all(known.constant for known in operands)
        origin = next((known.origin for known in operands if known.origin), self.origin)

        def data(flat: Flat) -> Any:
            with np.errstate(all="ignore"):
                return np.asarray(call(*(np.asarray(known.data(flat)) for known in operands)))

        return tables.once(Known(shape, dtype or operands[0].dtype, real, data, constant, origin))

    def map(self, word: str, value: Value) -> Tensor:
        """An elementwise map."""
        one = self.tensor(value)
        return self.emit(Expression(word, (one.name,)), one.positions, one.shape, one.dtype)

    def binary(self, word: str, a: Value, b: Value, dtype: str | None = None) -> Value:
        """An elementwise combination; with a number where one of them is one everywhere. It has the dtype of its
        operands where none is said."""
        left, right = tables.number(a), tables.number(b)
        if isinstance(a, Known) and isinstance(b, Known):
            return self.fold(word, [a, b], dtype)
        # A number is the same everywhere, and may have more elements than the other operand.
        a, b = _wide(a, b), _wide(b, a)
        if right is not None and _keeps(word, right, right=True):
            return a
        if left is not None and _keeps(word, left, right=False):
            return b
        if word == "*" and (left == 0 or right == 0):
            shape = a.shape if len(a.shape) >= len(b.shape) else b.shape
            dtype = a.dtype if isinstance(a, Known) else b.dtype if isinstance(b, Known) else "float32"
            return tables.filled(shape, 0, dtype)
        if left is not None and math.isfinite(left):
            one = self.tensor(b)
            if word == "-" and left == 0:
                return self.map("neg", one)
            return self._with(word, one, (left, one.name), dtype)
        if right is not None and math.isfinite(right):
            one = self.tensor(a)
            return self._with(word, one, (one.name, right), dtype)
        (one, other), positions, shape = self.together([self.tensor(a), self.tensor(b)])
        return self.emit(Expression(word, (one.name, other.name)), positions, shape, dtype or one.dtype)

    def _with(self, word: str, one: Tensor, operands: tuple[Operand, ...], dtype: str | None) -> Tensor:
        return self.emit(Expression(word, operands), one.positions, one.shape, dtype or one.dtype)

    def together(self, values: Sequence[Tensor]) -> tuple[list[Tensor], Positions, tuple[int, ...]]:
        """Values that are combined element by element, their dims met; then dims and shape of what comes of it."""
        positions: Positions = ()
        shape: tuple[int, ...] = ()
        found: list[Tensor] = []
        for value in values:
            if len(value.shape) == len(shape):
                value = self._apart(positions, self.meet(positions, value))
                shape = tuple(max(n, m) for n, m in zip(shape, value.shape))
                positions = tuple(p if p is not None else q for p, q in zip(positions, value.positions))
            elif not shape:  # a scalar among tensors
                positions, shape = value.positions, value.shape
            elif value.shape:
                raise self.fail(f"shapes {shape} and {value.shape} do not meet")
            found.append(value)
        return found, positions, shape

    def _apart(self, positions: Positions, value: Tensor) -> Tensor:
        """The value with other names for dims that stand where the other has none, and that the other has elsewhere."""
        taken = {self.dims.root(dim) for dim in positions if dim is not None}
        alone = [q for p, q in zip(positions, value.positions) if p is None and q is not None]
        clashing = [dim for dim in alone if self.dims.root(dim) in taken]
        return self.rename(value, [(dim, self.dims.fresh(self.dims.size(dim), like=dim)) for dim in clashing])

    def number(self, value: float, like: Value) -> Known:
        """A number in the dtype of a value, as JAX calls it."""
        dtype = like.dtype if isinstance(like, Known) else "int32"
        if isinstance(like, Tensor):
            dtype = next(name for name, word in DTYPES.items() if word == like.dtype)
        shape = like.shape
        return tables.filled(shape, value, dtype)

    def reduce(self, word: str, value: Tensor, over: Sequence[int], shape: Sequence[int]) -> Tensor:
        """A reduction over positions of a tensor."""
        dims = [value.positions[at] for at in over]
        real = tuple(dim for dim in dims if dim is not None)
        positions = tuple(dim for at, dim in enumerate(value.positions) if at not in set(over))
        made = Tensor(value.name, positions, tuple(shape), value.dtype)
        if real:
            made = self.emit(Expression(word, (value.name,), real), positions, shape, value.dtype)
        times = math.prod(value.shape[at] for at, dim in zip(over, dims) if dim is None)
        if word == "sum" and times != 1:
            scaled = self.binary("*", made, self.number(times, made))
            assert isinstance(scaled, Tensor)
            return scaled
        return made

    def pin(self, value: Tensor, pin: Pin) -> Tensor:
        """A layout that the program asks for."""
        value = self.materialise(value, [at for at, axes in pin.spec.items() if axes])
        self.program.pins.append(pin)
        expression = Expression("pin", (value.name,), number=len(self.program.pins) - 1)
        return self.emit(expression, value.positions, value.shape, value.dtype)


def _wide(value: Value, beside: Value) -> Value:
    """A tensor with the shape that it has together with a number."""
    if not isinstance(value, Tensor) or not isinstance(beside, Known) or len(value.shape) != len(beside.shape):
        return value
    shape = tuple(max(n, m) for n, m in zip(value.shape, beside.shape))
    return Tensor(value.name, value.positions, shape, value.dtype)


def _keeps(word: str, number: float, right: bool) -> bool:
    """Whether the result is the other operand."""
    if word == "+":
        return number == 0
    if word == "-":
        return right and number == 0
    if word == "*":
        return number == 1
    if word == "/":
        return right and number == 1
    if word == "maximum":
        return number == -math.inf
    return word == "minimum" and number == math.inf
