"""Products: `@`, `linear`, `einsum` and the like."""

from __future__ import annotations

from .._program.builder import Builder
from .._program.products import Pairs, product
from .._program.program import Tensor, Value
from .._program.shapes import transpose
from .node import Node, aligned, promoted


def linear(b: Builder, node: Node) -> Value:
    """`x @ w.T + bias`."""
    x, w = node.value("input"), node.value("weight")
    pairs = Pairs(((len(x.shape) - 1,), (1,)))
    made = product(b, x, w, pairs, node.shape, node.dtype)
    return plus(b, made, node.value("bias"), node) if node.has("bias") else made


def plus(b: Builder, one: Value, other: Value, node: Node) -> Value:
    """A sum in the dtype of the result."""
    left, right = promoted(b, [one, other], node.dtype, len(node.shape))
    return b.binary("+", left, right)


def matmul(b: Builder, node: Node) -> Value:
    """`a @ b`, of matrices, vectors and stacks of them."""
    names = ("self", "other") if node.has("other") else ("self", "vec") if node.has("vec") else ("self", "mat2")
    return _matmul(b, node, node.value(names[0]), node.value(names[1]))


def _matmul(b: Builder, node: Node, one: Value, other: Value) -> Value:
    left, right = len(one.shape), len(other.shape)
    sums = (max(left - 1, 0),), (max(right - 2, 0),)
    stacks = max(left, right, 2) - 2
    wide_a, wide_c = aligned(one, stacks + 2 if left > 2 else left), aligned(other, stacks + 2 if right > 2 else right)
    if left > 2 and right > 2:
        batch = tuple(range(stacks))
        pairs = Pairs(((stacks + 1,), (stacks,)), (batch, batch))
        return product(b, wide_a, wide_c, pairs, node.shape, node.dtype)
    made_shape = [n for at, n in enumerate(one.shape) if at not in sums[0]]
    made_shape += [n for at, n in enumerate(other.shape) if at not in sums[1]]
    made = product(b, one, other, Pairs(sums), made_shape, node.dtype)
    if right > 2 and left == 2:  # rows of the left side stand behind the stack
        made = transpose(b.tensor(made), [*range(1, right - 1), 0, right - 1])
    return made


def added(b: Builder, node: Node) -> Value:
    """`beta * input + alpha * (a @ b)`: `addmm`, `baddbmm`."""
    left, right = ("mat1", "mat2") if node.has("mat1") else ("batch1", "batch2")
    made = _matmul(b, node, node.value(left), node.value(right))
    base = node.value("self")
    if node.plain("alpha") != 1:
        made = b.binary("*", made, b.number(node.plain("alpha"), made))
    if node.plain("beta") != 1:
        base = b.binary("*", base, b.number(node.plain("beta"), base))
    return plus(b, made, base, node)


def einsum(b: Builder, node: Node) -> Value:
    """Products of two after another, from the left; a letter that no other operand and no result has is summed first."""
    values: list[Value] = node.plain("tensors")
    inputs, output = _letters(b, str(node.plain("equation")), [len(value.shape) for value in values])
    sizes = {letter: n for word, value in zip(inputs, values) for letter, n in zip(word, value.shape) if n != 1}
    made, have = values[0], inputs[0]
    if len(values) == 1:
        made, have = _summed(b, made, have, set(output))
    for at in range(1, len(values)):
        other, word = values[at], inputs[at]
        later = set(output).union(*inputs[at + 1 :])
        made, have = _summed(b, made, have, later | set(word))
        other, word = _summed(b, other, word, later | set(have))
        _vote(b, made, have)
        _vote(b, other, word)
        shared = [letter for letter in have if letter in word]
        sums = [letter for letter in shared if letter not in later]
        batch = [letter for letter in shared if letter in later]
        pairs = Pairs(
            (tuple(map(have.index, sums)), tuple(map(word.index, sums))),
            (tuple(map(have.index, batch)), tuple(map(word.index, batch))),
        )
        rest = [letter for letter in have if letter not in shared] + [letter for letter in word if letter not in shared]
        have = "".join(batch + rest)
        made = product(b, made, other, pairs, [sizes.get(letter, 1) for letter in have], node.dtype)
    return transpose(b.tensor(made), [have.index(letter) for letter in output])


def _letters(b: Builder, equation: str, ranks: list[int]) -> tuple[list[str], str]:
    """The letters of each operand and of the result; dims that stand for `...` have capitals, numbered from behind."""
    text = equation.replace(" ", "")
    left, arrow, right = text.partition("->")
    inputs = left.split(",")
    free = [chr(code) for code in range(0x3B1, 0x3C9)]
    found: list[str] = []
    most = ""
    for word, rank in zip(inputs, ranks):
        more = free[len(free) - (rank - len(word.replace("...", ""))) :] if "..." in word else []
        most = max(most, "".join(more), key=len)
        found.append(word.replace("...", "".join(more)))
    if not arrow:
        letters = left.replace(",", "").replace("...", "")
        right = "..." + "".join(sorted(letter for letter in set(letters) if letters.count(letter) == 1))
    if any(len(set(word)) < len(word) for word in found):
        raise b.fail(f"`.shard` has no counterpart of the diagonal in einsum {equation!r}")
    return found, right.replace("...", most)


def _summed(b: Builder, value: Value, letters: str, kept: set[str]) -> tuple[Value, str]:
    away = [at for at, letter in enumerate(letters) if letter not in kept]
    if not away:
        return value, letters
    rest = [at for at in range(len(letters)) if at not in away]
    tensor = b.tensor(value)
    made = b.reduce("sum", tensor, away, [tensor.shape[at] for at in rest])
    return made, "".join(letters[at] for at in rest)


def _vote(b: Builder, value: Value, letters: str) -> None:
    """Dims are called as the program calls them."""
    if isinstance(value, Tensor):
        for letter, dim in zip(letters, value.positions):
            if dim is not None:
                b.dims.vote(dim, letter)
