"""Softmax, gelu, silu and the like where they are written out; what nobody uses is left out."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from typing import Union

from .dims import Dims
from .program import Expression, Layer, Operand, Program, Statement, Tensor

Pattern = Union[str, float, tuple["Pattern", ...]]
"""A variable, a number, or an op with patterns of its operands."""

_CUBE: Pattern = ("*", ("square", "x"), "x")
_TANH: Pattern = ("+", 1.0, ("tanh", ("*", 0.7978845608, ("+", "x", ("*", 0.044715, _CUBE)))))

MAPS: tuple[tuple[str, Pattern], ...] = (
    ("relu", ("maximum", "x", 0.0)),
    ("square", ("*", "x", "x")),
    ("sigmoid", ("/", 1.0, ("+", 1.0, ("exp", ("neg", "x"))))),
    ("silu", ("*", "x", ("sigmoid", "x"))),
    ("gelu", ("*", "x", ("*", 0.5, _TANH))),
    ("gelu", ("*", ("*", "x", 0.5), _TANH)),
)
"""An elementwise map, and how it is written out."""


def rewrite(program: Program) -> None:
    """Shortens all layers."""
    _what_calls_take(program)
    drop_unused(program.main)
    called = {statement.value.name for statement in program.main.statements}
    program.calls = {name: call for name, call in program.calls.items() if name in called}
    for layer in [*(call.layer for call in program.calls.values()), program.main]:
        if layer is program.main:
            _what_calls_take(program)
        drop_unused(layer)
        _Rewriter(program.dims, layer).run()
        _without_infinity(layer)
        drop_unused(layer)


def _what_calls_take(program: Program) -> None:
    """A call takes what the layer uses of the values around it."""
    for statement in program.main.statements:
        call = program.calls.get(statement.value.name)
        if call is not None:
            _, *others = call.layer.parameters
            labels = tuple(parameter.label for parameter in others if parameter.label)
            operands = (statement.expression.operands[0], *labels)
            statement.expression = Expression("call", operands, word=statement.expression.word)


def drop_unused(layer: Layer) -> None:
    """Leaves out statements whose values nobody uses, and parameters that are no arguments of the function."""
    used = {result.value.name for result in layer.results}
    kept: list[Statement] = []
    for statement in reversed(layer.statements):
        if statement.value.name in used:
            kept.append(statement)
            used.update(o for o in statement.expression.operands if isinstance(o, str))
    layer.statements = kept[::-1]
    layer.parameters = [
        p for n, p in enumerate(layer.parameters) if p.tensor.name in used or (n == 0 and p.data is None)
    ]


HIDDEN = -1e30
"""A score of which a softmax leaves nothing."""

HIDDEN_F16 = -6e4
"""The same where no number is as large."""


def _without_infinity(layer: Layer) -> None:
    """The language has no number for minus infinity: where a value is to be it, log(0) is added."""
    made: list[Statement] = []
    for statement in layer.statements:
        expression, value = statement.expression, statement.value
        if expression.op != "where" or -math.inf not in expression.operands[1:]:
            made.append(statement)
            continue
        holds, yes, no = expression.operands
        kept, other = (yes, no) if no == -math.inf else (no, yes)
        if other != -math.inf or kept == -math.inf:
            raise AssertionError(f"both sides of {expression} are minus infinity")
        truth = next((s.value for s in layer.statements if s.value.name == holds), None)
        truth = truth or next(p.tensor for p in layer.parameters if p.tensor.name == holds)
        steps: list[tuple[str, tuple[Operand, ...]]] = [("cast", (truth.name,))]
        if kept == no:
            steps.append(("-", (1, f"{value.name}.0")))
        steps.append(("log", (f"{value.name}.{len(steps) - 1}",)))
        for at, (op, operands) in enumerate(steps):
            one = Tensor(f"{value.name}.{at}", truth.positions, truth.shape, value.dtype)
            word = value.dtype if op == "cast" else ""
            made.append(Statement(one, Expression(op, operands, word=word), statement.origin))
        statement.expression = Expression("+", (kept, f"{value.name}.{len(steps) - 1}"))
        made.append(statement)
    layer.statements = made


class _Rewriter:
    def __init__(self, dims: Dims, layer: Layer) -> None:
        self.dims = dims
        self.layer = layer
        self.by_name: dict[str, Statement] = {s.value.name: s for s in layer.statements}
        self.uses = Counter(o for s in layer.statements for o in s.expression.operands if isinstance(o, str))
        self.uses.update(result.value.name for result in layer.results)

    def run(self) -> None:
        for statement in self.layer.statements:
            for found in (self._map(statement), self._mean(statement), self._norm(statement), self._softmax(statement)):
                if found is not None:
                    statement.expression = found
                    break

    def _map(self, statement: Statement) -> Expression | None:
        for word, pattern in MAPS:
            bound = self._match(pattern, statement.value.name, {}, top=True)
            if bound is not None and (word != "relu" or statement.expression.op == "maximum"):
                return Expression(word, (bound["x"],))
        return None

    def _match(
        self, pattern: Pattern, operand: Operand, bound: Mapping[str, str], top: bool = False
    ) -> Mapping[str, str] | None:
        """What the variables stand for. A value inside is used nowhere else."""
        if isinstance(pattern, float):
            close = isinstance(operand, (int, float)) and abs(operand - pattern) <= 4e-3 * abs(pattern)
            return bound if close else None
        if not isinstance(operand, str):
            return None
        if isinstance(pattern, str):
            return {**bound, pattern: operand} if bound.get(pattern, operand) == operand else None
        made = self.by_name.get(operand)
        if made is None or made.expression.op != pattern[0] or (not top and self.uses[operand] > 1):
            return None
        operands = made.expression.operands
        orders = [operands]
        if pattern[0] in ("+", "*", "maximum") and len(operands) == 2:
            orders.append(operands[::-1])
        for order in orders:
            found: Mapping[str, str] | None = bound
            for inner, one in zip(pattern[1:], order):
                found = self._match(inner, one, found) if found is not None else None
            if found is not None:
                return found
        return None

    def _expression(self, operand: Operand, op: str) -> Expression | None:
        made = self.by_name.get(operand) if isinstance(operand, str) else None
        return made.expression if made is not None and made.expression.op == op else None

    def _uncast(self, operand: Operand) -> Operand:
        """What is in another dtype here."""
        while (cast := self._expression(operand, "cast")) is not None:
            operand = cast.operands[0]
        return operand

    def _mean(self, statement: Statement) -> Expression | None:
        expression = statement.expression
        if expression.op not in ("/", "*") or not isinstance(expression.operands[1], (int, float)):
            return None
        total = self._expression(expression.operands[0], "sum")
        if total is None or statement.value.dtype not in ("f32", "bf16", "f16"):
            return None
        size = 1
        for dim in total.dims:
            size *= self.dims.size(dim)
        number = expression.operands[1]
        by = number if expression.op == "/" else 1 / number if number else 0.0
        return Expression("mean", total.operands, total.dims) if abs(by - size) <= 1e-6 * size else None

    def _norm(self, statement: Statement) -> Expression | None:
        """`x * rsqrt(mean(x * x) + 1e-6)`."""
        expression = statement.expression
        if expression.op != "*":
            return None
        for x, scale in (expression.operands, expression.operands[::-1]):
            root = self._expression(scale, "rsqrt")
            moved = self._expression(root.operands[0], "+") if root is not None else None
            epsilon = moved.operands[1] if moved is not None else None
            # In bfloat16 it is 9.98e-7.
            if moved is None or not isinstance(epsilon, (int, float)) or abs(epsilon - 1e-6) > 4e-9:
                continue
            mean = self._expression(self._uncast(moved.operands[0]), "mean")
            squared = self._expression(self._uncast(mean.operands[0]), "square") if mean is not None else None
            if mean is not None and squared is not None and squared.operands[0] == x and len(mean.dims) == 1:
                return Expression("rmsnorm", (x,), mean.dims)
        return None

    def _softmax(self, statement: Statement) -> Expression | None:
        """`e / sum(e over S)` with `e = exp(x - max(x over S))`."""
        expression = statement.expression
        if expression.op == "softmax":
            self._hide(expression.operands[0], 1)
        if expression.op != "/":
            return None
        # A sum of a coarse dtype is computed in a finer dtype, also inside a softmax.
        total = self._expression(self._uncast(expression.operands[1]), "sum")
        power = self._expression(expression.operands[0], "exp")
        if total is None or power is None or len(total.dims) != 1:
            return None
        if self._uncast(total.operands[0]) != expression.operands[0]:
            return None
        less = self._expression(power.operands[0], "-")
        most = self._expression(less.operands[1], "max") if less is not None else None
        if less is None or most is None or most.operands[0] != less.operands[0]:
            return None
        over = [self.dims.root(dim) for dim in most.dims]
        if over != [self.dims.root(dim) for dim in total.dims]:
            return None
        self._hide(less.operands[0])
        return Expression("softmax", (less.operands[0],), total.dims)

    def _hide(self, scores: Operand, uses: int = 2) -> None:
        """Of minus infinity in scores a softmax leaves what it leaves of a very negative number. They have the uses of
        a softmax that is written out, and no others."""
        made = self.by_name.get(scores) if isinstance(scores, str) else None
        if made is None or self.uses[made.value.name] > uses:
            return
        expression = made.expression
        if expression.op == "where" and -math.inf in expression.operands[1:]:
            hidden = HIDDEN_F16 if made.value.dtype == "f16" else HIDDEN
            operands = tuple(hidden if operand == -math.inf else operand for operand in expression.operands)
            made.expression = Expression("where", operands)
        elif expression.op in ("+", "cast", "causal"):
            for operand in expression.operands:
                self._hide(operand, 1)
