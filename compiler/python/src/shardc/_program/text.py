"""The program as a `.shard` file."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from .dims import Dim
from .lib import numpy
from .program import Call, Expression, Layer, Operand, Parameter, Pin, Program, Spec, Statement, Tensor
from .source import Frame

_WORDS = (
    "let return layer expect phase host strict model grad einsum gelu relu silu sigmoid tanh exp log sqrt rsqrt square "
    "abs maximum minimum sum mean max softmax rmsnorm layernorm rename split merge concat slice append causal rope take "
    "route cast reshard fetch softplus cumsum shift conv argmax locate sink_softmax where less less_equal equal iota "
    "pad scatter_add topk argtopk scan"
)
RESERVED = frozenset(_WORDS.split())
WIDTH = 100
SIGNS = {"+": 1, "-": 1, "*": 2, "/": 2}
_SHORT = (
    "neg maximum minimum cast sum mean max rename gelu relu silu sigmoid tanh exp log sqrt rsqrt square abs softmax rmsnorm "
    "causal less less_equal equal where"
)
INLINED = frozenset([*SIGNS, *_SHORT.split()])
"""Ops that may stand inside an expression."""


class Names:
    """Names that are taken, in one layer."""

    def __init__(self) -> None:
        self.taken: set[str] = set()

    def take(self, wanted: str) -> str:
        """A free name similar to the wanted one."""
        name = re.sub(r"[^A-Za-z0-9_]", "_", wanted).strip("_")
        name = re.sub(r"_+", "_", name)
        name = re.sub(r"^([A-Z]+)", lambda m: m.group(1).lower(), name)
        if not name or not (name[0].islower()):
            name = f"p_{name}" if name else "a"
        if name in RESERVED:
            name = f"{name}_"
        base, number = name, 2
        while name in self.taken:
            name = f"{base}_{number}" if base[-1:].isdigit() else f"{base}{number}"
            number += 1
        self.taken.add(name)
        return name


class Writer:
    """Writes a program; afterwards `parameters` and `results` have the names that it gave, and `lines` the places."""

    def __init__(
        self, program: Program, axes: Mapping[str, int], words: Mapping[str, str], hardware: str | None
    ) -> None:
        self.program = program
        self.axes = axes
        self.words = words
        self.hardware = hardware
        self.dims = program.dims.names(list(self._used_dims()))
        self.parameters: dict[str, str] = {}
        """Id of a parameter's value to its name."""
        self.results: list[str] = []
        self.states: dict[str, str] = {}
        """Id of a cache that a call owns to the name of what it becomes."""
        self.lines: dict[int, Frame] = {}
        """Line of the file, from 1, to the place that it comes from."""
        self._out: list[str] = []
        self._layer_names: dict[str, str] = {}

    def write(self, title: str) -> str:
        """The file."""
        self._line(f"// {title}")
        for note in self.program.notes:
            self._line(f"// {note}")
        if self.hardware is not None:
            self._line(f"hardware {self.hardware}")
        if self.axes:
            self._line("mesh " + ", ".join(f"{self.words[name]}={size}" for name, size in self.axes.items()))
        self._line("")
        for dim, name in self.dims.items():
            users = self.program.dims.users(dim)
            comment = f"  // {', '.join(users[:3])}" if users else ""
            self._line(f"dim {name} = {self.program.dims.size(dim)}{comment}")
        taken = Names()
        for call in self.program.calls.values():
            self._line("")
            self._layer_names[call.layer.name] = taken.take(call.layer.name)
            self._layer(call.layer, self._layer_names[call.layer.name], call)
        self._line("")
        self._layer(self.program.main, taken.take(self.program.main.name), None)
        return "\n".join(self._out) + "\n"

    def _line(self, text: str, place: Frame | None = None) -> None:
        self._out.append(text.rstrip())
        if place is not None:
            self.lines[len(self._out)] = place

    def _used_dims(self) -> Iterable[Dim]:
        for layer in [self.program.main, *(call.layer for call in self.program.calls.values())]:
            for parameter in layer.parameters:
                yield from parameter.tensor.dims
            for statement in layer.statements:
                yield from statement.value.dims
                yield from statement.expression.dims
                yield from statement.expression.to

    # Layouts

    def _dim(self, dim: Dim) -> str:
        return self.dims[self.program.dims.root(dim)]

    def _list(self, dims: Sequence[Dim]) -> str:
        names = [self._dim(dim) for dim in dims]
        return "".join(names) or "[]"

    def _layout(self, positions: Sequence[Dim | None], spec: Spec | None, is_open: bool, label: str = "") -> str:
        parts = []
        for at, dim in enumerate(positions):
            if dim is None:
                continue
            axes = [self.words[axis] for axis in (spec or {}).get(at, ()) if self.axes.get(axis, 1) > 1]
            split = (
                ""
                if not axes
                else "_" + "".join(axes)
                if all(len(axis) == 1 for axis in axes)
                else f"_{{{','.join(axes)}}}"
            )
            parts.append(self._dim(dim) + split)
        layout = "".join(parts) or "[]"
        return layout + (f"?{label}" if is_open and parts else "")

    def _type(self, tensor: Tensor, spec: Spec | None, kind: str, label: str = "") -> str:
        layout = self._layout(tensor.positions, spec, spec is None or bool(label), label)
        return " ".join(word for word in (kind, tensor.dtype, layout) if word)

    # Layers

    def _layer(self, layer: Layer, name: str, call: Call | None) -> None:
        names = Names()
        values: dict[str, str] = {}
        is_model = call is None and bool(self.program.calls)
        for parameter in layer.parameters:
            values[parameter.tensor.name] = names.take(parameter.wanted)
            if call is None:
                self.parameters[parameter.tensor.name] = values[parameter.tensor.name]
        if call is not None:
            for parameter in layer.parameters:
                # The name that `run` uses for it: `block_2.w` in the second call of a layer; each loop has a layer.
                self.parameters[parameter.tensor.name] = f"{name}.{values[parameter.tensor.name]}"
        self._line(f"{'model' if is_model else 'layer'} {name}(")
        for at, parameter in enumerate(layer.parameters):
            label = "l" if call is not None and at == 0 else ""
            self._line(
                f"  {values[parameter.tensor.name]}: {self._type(parameter.tensor, parameter.spec, self._kind(parameter), label)},"
            )
        types = []
        result_names = Names()
        for at, result in enumerate(layer.results):
            label = "l" if call is not None and at == 0 else ""
            spec = result.spec
            taken = result_names.take(result.wanted)
            if result.state is not None:
                spec = next(p for p in layer.parameters if p.tensor.name == result.state).spec
                self.states[result.state] = f"{name}.{taken}"
            types.append((taken, self._type(result.value, spec, "", label)))
        shown = types[0][1] if len(types) == 1 else "(" + ", ".join(f"{one}: {kind}" for one, kind in types) + ")"
        if len(shown) > WIDTH - 8:
            shown = "(\n" + "".join(f"  {one}: {kind},\n" for one, kind in types) + ")"
        repeat = f" repeat {layer.repeat}" if layer.repeat > 1 else ""
        for line in f") -> {shown}{repeat} {{".split("\n"):
            self._line(line)
        self._statements(layer, names, values)
        returned = [values[result.value.name] for result in layer.results]
        if call is None:
            # A single result has no name, and is called by the name of its value.
            self.results = returned if len(types) == 1 else [taken for taken, _ in types]
        text = returned[0] if len(returned) == 1 else f"({', '.join(returned)})"
        if len(text) <= WIDTH - 10:
            self._line(f"  return {text}")
        else:
            self._line("  return (")
            for one in returned:
                self._line(f"    {one},")
            self._line("  )")
        self._line("}")

    def _kind(self, parameter: Parameter) -> str:
        if parameter.kind or not parameter.label:
            return parameter.kind
        outer = next((p for p in self.program.main.parameters if p.tensor.name == parameter.label), None)
        return outer.kind if outer is not None else ""

    def _statements(self, layer: Layer, names: Names, values: dict[str, str]) -> None:
        uses = Counter(o for s in layer.statements for o in s.expression.operands if isinstance(o, str))
        kept = {result.value.name for result in layer.results}
        called = self._variables(layer.statements)
        inlined: dict[str, tuple[str, int]] = {}
        shown: Frame | None = None
        for at, statement in enumerate(layer.statements):
            name = statement.value.name
            text, strength = self._expression(statement.expression, values, inlined)
            if self._is_inlined(layer.statements, at, uses, kept, called, text):
                inlined[name] = (text, strength)
                continue
            values[name] = names.take(called.get(name, "t"))
            place = statement.origin.place if statement.origin else None
            if place is not None and place != shown and statement.origin is not None:
                source = statement.origin.text()
                self._line(f"  // {place.file.rsplit('/', 1)[-1]}:{place.line}: {source}"[:WIDTH])
                shown = place
            self._line(f"  let {values[name]} = {text}", place)

    def _variables(self, statements: Sequence[Statement]) -> dict[str, str]:
        """The last value of each assignment of the program has the name of its variable."""
        last: dict[object, tuple[str, str]] = {}
        for statement in statements:
            variable = statement.origin.variable if statement.origin else None
            if variable is not None:
                last[variable] = (statement.value.name, variable[0])
        found = {value: name for value, name in last.values()}
        found.update({value: name for value, name in self.program.called.items()})
        return found

    def _is_inlined(
        self,
        statements: Sequence[Statement],
        at: int,
        uses: Mapping[str, int],
        kept: set[str],
        called: Mapping[str, str],
        text: str,
    ) -> bool:
        """Whether a value stands in the expression that uses it: it has no name, and one use on the same line."""
        statement = statements[at]
        name = statement.value.name
        if name in called or name in kept or uses[name] != 1 or len(text) > WIDTH // 2:
            return False
        if statement.expression.op not in INLINED:
            return False
        user = next((s for s in statements[at + 1 :] if name in s.expression.operands), None)
        if user is None or user.expression.op == "call":
            return False
        ours = statement.origin.place if statement.origin else None
        theirs = user.origin.place if user.origin else None
        return ours == theirs

    # Expressions

    def _operand(
        self, operand: Operand, values: Mapping[str, str], inlined: Mapping[str, tuple[str, int]]
    ) -> tuple[str, int]:
        if isinstance(operand, str):
            return inlined[operand] if operand in inlined else (values[operand], 9)
        return number(operand), 9 if operand >= 0 else 3

    def _expression(
        self, expression: Expression, values: Mapping[str, str], inlined: Mapping[str, tuple[str, int]]
    ) -> tuple[str, int]:
        """The text, and how strongly it binds: 1 a sum, 2 a product, 3 a sign, 9 what stands by itself."""
        op = expression.op
        operands = [self._operand(operand, values, inlined) for operand in expression.operands]
        texts = [text for text, _ in operands]
        if op in SIGNS:
            mine = SIGNS[op]
            left = texts[0] if operands[0][1] >= mine else f"({texts[0]})"
            right = texts[1] if operands[1][1] > mine else f"({texts[1]})"
            return f"{left} {op} {right}", mine
        if op == "neg":
            return (f"-{texts[0]}" if operands[0][1] > 3 else f"-({texts[0]})"), 3
        return self._form(op, expression, texts), 9

    def _form(self, op: str, expression: Expression, texts: list[str]) -> str:
        first = texts[0]
        dims, to = expression.dims, expression.to
        if op == "einsum":
            stated = f" : {expression.word}" if expression.word else ""
            return f"einsum({', '.join(texts)} -> {self._list(dims)}{stated})"
        if op in ("sum", "mean", "max", "softmax", "rmsnorm", "layernorm", "take", "cumsum", "argmax", "iota"):
            return f"{op}({', '.join(texts)} over {self._list(dims)})"
        if op == "conv":
            return f"conv({first}, {texts[1]} over {self._dim(dims[0])}, {self._dim(dims[1])})"
        if op == "causal":
            window = f", {expression.number}" if expression.number else ""
            return f"causal({first} over {self._dim(dims[0])}, {self._dim(dims[1])}{window})"
        if op in ("rename", "split", "merge"):
            return f"{op}({first}, {self._list(dims)} -> {self._list(to)})"
        if op == "concat":
            return f"concat({first}, {texts[1]}, {self._dim(dims[0])}, {self._dim(dims[1])} -> {self._dim(to[0])})"
        if op == "append":
            return f"append({first}, {texts[1]}, {self._dim(dims[0])} -> {self._dim(to[0])})"
        if op == "slice":
            return f"slice({first}, {self._dim(dims[0])} -> {self._dim(to[0])}, {expression.number})"
        if op == "pad":
            return f"pad({first}, {self._dim(dims[0])} -> {self._dim(to[0])}, {expression.number})"
        if op == "shift":
            return f"shift({first} over {self._dim(dims[0])}, {expression.number})"
        if op == "scan":
            return f"scan({first}, {texts[1]} over {self._dim(dims[0])})"
        if op == "scatter_add":
            return f"scatter_add({first}, {texts[1]} over {self._list(dims)} -> {self._dim(to[0])})"
        if op in ("topk", "argtopk"):
            parts = f", {expression.number}" if expression.number > 1 else ""
            return f"{op}({first} over {self._dim(dims[0])} -> {self._dim(to[0])}{parts})"
        if op == "cast":
            return f"cast({first}, {expression.word})"
        if op == "pin":
            return self._pin(expression, first)
        if op == "call":
            return self._call(expression, texts)
        return f"{op}({', '.join(texts)})"

    def _pin(self, expression: Expression, first: str) -> str:
        pin: Pin = self.program.pins[expression.number]
        dims = self._pinned[str(expression.operands[0])]
        return f"reshard({first}, {self._layout(dims, pin.spec, pin.is_open)})"

    @property
    def _pinned(self) -> dict[str, Sequence[Dim | None]]:
        """The positions of every value that is pinned."""
        found: dict[str, Sequence[Dim | None]] = {}
        for layer in [self.program.main, *(call.layer for call in self.program.calls.values())]:
            for statement in layer.statements:
                if statement.expression.op == "pin":
                    found[str(statement.expression.operands[0])] = statement.value.positions
        return found

    def _call(self, expression: Expression, texts: list[str]) -> str:
        """A call: activations in order, weights of the model by the name that the layer has for them."""
        call = next(c for c in self.program.calls.values() if c.layer.name == expression.word)
        layer = self._layer_names[expression.word]
        words = []
        outer = dict(zip((str(operand) for operand in expression.operands), texts))
        for at, parameter in enumerate(call.layer.parameters):
            own = self.parameters[parameter.tensor.name].split(".")[1]
            if parameter.tensor.name in call.owned:
                continue
            text = texts[0] if at == 0 else outer[parameter.label]
            words.append(f"{own}: {text}" if self._kind(parameter) else text)
        return f"{layer}({', '.join(words)})"


def number(value: float) -> str:
    """A number as the language writes it."""
    if isinstance(value, bool):
        value = int(value)
    if isinstance(value, int) or not math.isfinite(value):
        return str(value)
    single = numpy().float32(value)
    # The shortest text of the number that JAX has in 32 bits.
    return str(single) if single == value else repr(value)
