"""Nodes one after another."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Union

from .._program.builder import Builder
from .._program.errors import TranslationError
from .._program.lib import module
from .._program.program import Known, Tensor, Value
from . import attention, elementwise, indexing, products, reductions, shapes
from .evaluate import evaluated, like
from .node import Node, aligned
from .source import origin

Translate = Callable[[Builder, Node], Union[Value, "list[Value]"]]


def _words(text: str, translate: Translate) -> dict[str, Translate]:
    return dict.fromkeys(text.split(), translate)


def _as_is(b: Builder, node: Node) -> Value:
    """An operation that does not change values."""
    return node.value("input" if node.has("input") else "self")


OPS: dict[str, Translate] = {
    **_words(" ".join(elementwise.MAPS), elementwise.maps),
    **_words("add sub mul div maximum minimum rsub", elementwise.binary),
    **_words("eq ne lt le gt ge", elementwise.compare),
    **_words(" ".join([*elementwise.LOGIC, *elementwise.BITWISE]), elementwise.logic),
    **_words("log1p expm1 exp2 sign", elementwise.unary),
    **_words("clamp clamp_min clamp_max", elementwise.clamp),
    **_words("to _to_copy type_as float", elementwise.cast),
    **_words("tril triu", elementwise.triangle),
    **_words("dropout native_dropout", elementwise.dropout),
    "pow": elementwise.power,
    "reciprocal": elementwise.reciprocal,
    "gelu": elementwise.gelu,
    "softplus": elementwise.softplus,
    "leaky_relu": elementwise.leaky_relu,
    "elu": elementwise.elu,
    "hardtanh": elementwise.hardtanh,
    "where": elementwise.where,
    "masked_fill": elementwise.masked_fill,
    **_words("clone contiguous detach alias lift_fresh_copy", _as_is),
    **_words("matmul mm bmm mv dot", products.matmul),
    **_words("addmm baddbmm", products.added),
    "linear": products.linear,
    "einsum": products.einsum,
    "scaled_dot_product_attention": attention.attention,
    **_words("sum mean amax amin any all", reductions.reduced),
    **_words("max min", reductions.largest),
    **_words("argmax argmin", reductions.argmax),
    **_words("softmax _softmax", reductions.softmax),
    **_words("log_softmax _log_softmax", reductions.log_softmax),
    **_words("layer_norm native_layer_norm rms_norm", reductions.norm),
    "var": reductions.variance,
    "topk": reductions.top_k,
    "cumsum": reductions.cumulative,
    "cumprod": reductions.cumulative_product,
    **_words("sort argsort", reductions.sort),
    **_words("view reshape _unsafe_view flatten unflatten view_as reshape_as", shapes.reshape),
    "permute": shapes.permute,
    **_words("transpose t numpy_T mT", shapes.transpose),
    "unsqueeze": shapes.unsqueeze,
    "squeeze": shapes.squeeze,
    **_words("expand expand_as broadcast_to", shapes.expand),
    "repeat": shapes.repeat,
    "repeat_interleave": shapes.repeat_interleave,
    **_words("cat concat", shapes.cat),
    "stack": shapes.stack,
    "slice": shapes.slices,
    "narrow": shapes.narrow,
    "select": shapes.select,
    "unbind": shapes.unbind,
    **_words("split split_with_sizes chunk", shapes.split),
    **_words("pad constant_pad_nd", shapes.pad),
    "flip": shapes.flip,
    "embedding": indexing.embedding,
    "index_select": indexing.index_select,
    "index": indexing.index,
    "gather": indexing.gather,
    "index_add": indexing.index_add,
    "scatter_add": indexing.scatter_add,
    "index_put": indexing.index_put,
    "embedding_dense_backward": indexing.embedding_gradient,
}

SAYS_NOTHING = frozenset(["_assert_tensor_metadata", "_assert_async", "_assert_scalar", "sym_constrain_range_for_size"])

WHY = {
    "sin": "the sine of a computed value",
    "cos": "the cosine of a computed value",
    "erf": "the error function",
    "copy_": "a tensor that is written into",
    "index_copy": "places that are written",
    "convolution": "a convolution",
}


def known_operators(program: Any) -> Any:
    """The program with all operators that are not known here written in others, as far as PyTorch does."""
    strange = [node for node in program.graph.nodes if node.op == "call_function" and not _is_known(node)]
    if not strange:
        return program
    table = module("torch").export.default_decompositions()
    for target in list(table):
        if str(target._schema.name).startswith("aten::") and _plain(target) in OPS:
            del table[target]
    return program.run_decompositions(table)


def _plain(target: Any) -> str:
    return str(target._schema.name).replace("aten::", "")


def _is_known(node: Any) -> bool:
    if node.target is operator.getitem:
        return True
    return hasattr(node.target, "_schema") and (_plain(node.target) in OPS or _plain(node.target) in SAYS_NOTHING)


def walk(b: Builder, graph: Any, inputs: Mapping[str, Value]) -> list[Value | None]:
    """The results of a graph; `inputs` has the value of each placeholder by its name."""
    scope: dict[Any, Any] = {}

    def read(node: Any) -> Any:
        return scope[node]

    for node in graph.nodes:
        if node.op == "placeholder":
            scope[node] = inputs[node.name]
        elif node.op == "call_function":
            scope[node] = _call(b, node, read)
        elif node.op == "output":
            return [read(one) if hasattr(one, "op") else None for one in node.args[0]]
        else:
            b.origin, b.primitive = origin(node), str(node.target)
            raise b.fail(f"`.shard` has no counterpart of `{node.target}`, a part of the program of its own")
    return []


def _call(b: Builder, node: Any, read: Callable[[Any], Any]) -> Any:
    b.origin = origin(node)
    if node.target is operator.getitem:
        return read(node.args[0])[node.args[1]]
    if not hasattr(node.target, "_schema"):
        b.primitive = getattr(node.target, "__name__", str(node.target))
        raise b.fail(f"`.shard` has no counterpart of `{b.primitive}`: sizes and branches have to be numbers")
    call = Node(b, node, read)
    b.primitive = call.name
    if call.name in SAYS_NOTHING:
        return None
    even = like(b, call)
    if even is not None:
        return even
    if all(isinstance(operand, Known) for operand in call.operands):
        known = evaluated(b, call)
        return known if isinstance(node.meta["val"], (list, tuple)) else known[0]
    translate = OPS.get(call.name)
    if translate is None:
        raise b.fail(
            f"`.shard` has no counterpart of `{call.name}`" + (f": {WHY[call.name]}" if call.name in WHY else "")
        )
    try:
        made = translate(b, call)
    except (AssertionError, KeyError, IndexError, TypeError, ValueError) as wrong:
        raise b.fail(f"`{call.name}` was not understood ({type(wrong).__name__}: {wrong})") from wrong
    if isinstance(made, list):
        return [_shaped(b, one, out) for one, out in zip(made, node.meta["val"])]
    return _shaped(b, made, call.out)


def _shaped(b: Builder, value: Value, out: Any) -> Value:
    """The value, which has the shape that PyTorch gives."""
    shape: Sequence[int] = tuple(out.shape)
    value = aligned(value, len(shape))
    if isinstance(value, Tensor) and value.shape != shape:
        if len(value.shape) != len(shape) or any(n not in (1, m) for n, m in zip(value.shape, shape)):
            raise TranslationError(f"a result of shape {value.shape} is {shape} in PyTorch", b.primitive, b.origin)
        value = Tensor(value.name, value.positions, tuple(shape), value.dtype)
    return value
