"""Values that depend on no tensor of the caller, computed by PyTorch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .._program import known as tables
from .._program.builder import Builder
from .._program.lib import module, numpy
from .._program.program import Flat, Known
from .node import Node, aligned, dtype_name

_SAME = (
    "add sub mul div rsub maximum minimum pow remainder neg sign floor ceil round abs exp exp2 log log1p expm1 sqrt rsqrt "
    "square reciprocal sin cos tan tanh sigmoid erf eq ne lt le gt ge logical_and logical_or logical_xor logical_not "
    "bitwise_and bitwise_or bitwise_xor bitwise_not where to _to_copy clone contiguous detach alias lift_fresh_copy "
    "masked_fill clamp clamp_min clamp_max"
)
ELEMENTWISE = frozenset(_SAME.split())
"""Operators that do the same to each element: broadcast dims stay as they are."""


def array_of(tensor: Any) -> Any:
    """The numbers of a tensor for NumPy, which has no bfloat16."""
    torch = module("torch")
    plain = tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor
    plain = plain.detach().cpu()
    coarse = plain.is_floating_point() and plain.dtype not in (torch.float16, torch.float32, torch.float64)
    return (plain.float() if coarse else plain).numpy()


def constant(tensor: Any, name: str = "") -> Known:
    """A tensor with its data."""
    shape = tuple(tensor.shape)
    kept = tables.memo(lambda flat: array_of(tensor), True)
    return tables.once(Known(shape, dtype_name(tensor.dtype), tuple(n > 1 for n in shape), kept, True, name=name))


def like(b: Builder, node: Node) -> Known | None:
    """A tensor of one number that has but the shape of another."""
    numbers = {"zeros_like": 0, "ones_like": 1, "full_like": node.plain("fill_value")}
    numbers |= {"new_zeros": 0, "new_ones": 1, "new_full": node.plain("fill_value")}
    if node.name not in numbers or not isinstance(numbers[node.name], (bool, int, float)):
        return None
    return tables.filled(node.shape, numbers[node.name], node.dtype)


def evaluated(b: Builder, node: Node) -> list[Known]:
    """The results of a call whose operands are all known."""
    torch = module("torch")
    outs = node.node.meta["val"]
    outs = outs if isinstance(outs, (list, tuple)) else [outs]
    operands = [operand for operand in node.operands if isinstance(operand, Known)]
    is_constant = all(operand.constant for operand in operands)
    if node.name in ("expand", "expand_as", "broadcast_to"):
        rank = len(node.shape)
        wide = aligned(operands[0], rank)
        assert isinstance(wide, Known)
        return [tables.broadcast(wide, node.shape, range(rank), b.origin)]
    same = node.name in ELEMENTWISE and len(outs) == 1
    rank = len(node.shape)

    def given(argument: Any, flat: Flat) -> Any:
        if isinstance(argument, list):
            return [given(one, flat) for one in argument]
        if not isinstance(argument, Known):
            return argument
        wide = aligned(argument, rank) if same else argument
        assert isinstance(wide, Known)
        array = wide.data(flat) if same else tables.full(wide, flat)
        tensor = torch.from_numpy(numpy().array(numpy().asarray(array), order="C"))
        return tensor.to(getattr(torch, argument.dtype))

    def compute(flat: Flat) -> Any:
        arguments = {name: given(argument, flat) for name, argument in node.arguments.items()}
        if "device" in arguments:
            arguments["device"] = torch.device("cpu")
        made = _called(node, arguments)
        return [array_of(one) for one in (made if isinstance(made, (list, tuple)) else [made])]

    shared = tables.memo(compute, is_constant)
    return [_known(b, node, out, at, shared, operands, same, is_constant) for at, out in enumerate(outs)]


def _called(node: Node, arguments: dict[str, Any]) -> Any:
    schema = node.node.target._schema.arguments
    first = [arguments[argument.name] for argument in schema if not argument.kwarg_only]
    rest = {argument.name: arguments[argument.name] for argument in schema if argument.kwarg_only}
    return node.node.target(*first, **rest)


def _known(
    b: Builder, node: Node, out: Any, at: int, shared: Any, operands: Sequence[Known], same: bool, is_constant: bool
) -> Known:
    shape = tuple(out.shape)
    real = tuple(n > 1 for n in shape)
    if same:
        wide = [one for one in (aligned(operand, len(shape)) for operand in operands) if isinstance(one, Known)]
        real = tuple(any(one.real[place] for one in wide if one.shape) for place in range(len(shape)))
    elements = 1
    for n, is_real in zip(shape, real):
        elements *= n if is_real else 1
    if elements > tables.MOST_ELEMENTS:
        raise b.fail(f"a table of {elements} elements is computed of nothing")
    return tables.once(Known(shape, dtype_name(out.dtype), real, lambda flat: shared(flat)[at], is_constant, b.origin))
