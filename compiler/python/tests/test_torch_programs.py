"""Programs of `torch.export` as `.shard` files: each checks, and its plan, executed, gives what the program gives."""

# What a test says of PyTorch is typed by nobody: it may be absent.
# mypy: disable-error-code="misc"

from __future__ import annotations

import math
import re
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

import shardc

torch: Any = pytest.importorskip("torch", reason="PyTorch is not installed: programs of torch.export are not tested")
placements: Any = pytest.importorskip("torch.distributed.tensor", reason="PyTorch has no DTensor")

F: Any = torch.nn.functional
Module: Any = torch.nn.Module
Linear: Any = torch.nn.Linear
Shard, Replicate = placements.Shard, placements.Replicate

MESH = {"data": 2, "model": 2}
ROWS = [Shard(0), Replicate()]
COLUMN, ROW = [Replicate(), Shard(0)], [Replicate(), Shard(1)]
"""Of the weight of a `Linear`, which is [out, in]."""

Case = tuple[Any, "tuple[Any, ...]", Mapping[str, Any]]
CASES: dict[str, Callable[[], Case]] = {}


def case(make: Callable[[], Case]) -> Callable[[], Case]:
    CASES[make.__name__] = make
    return make


def some(*shape: int, seed: int = 0) -> Any:
    """Numbers between -1 and 1."""
    return torch.rand(shape, generator=torch.Generator().manual_seed(seed)) * 2 - 1


class FeedForward(Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm = torch.nn.LayerNorm(16)
        self.up, self.gate, self.down = Linear(16, 32), Linear(16, 32), Linear(32, 16)

    def forward(self, x: Any) -> Any:
        h = self.norm(x)
        a = F.gelu(self.up(h), approximate="tanh") * torch.sigmoid(self.gate(h))
        return x + self.down(a)


@case
def a_feed_forward_layer() -> Case:
    laid = {"x": ROWS, "up.weight": COLUMN, "gate.weight": COLUMN, "up.bias": COLUMN, "down.weight": ROW}
    return FeedForward(), (some(4, 8, 16),), laid


class Attention(Module):
    def __init__(self) -> None:
        super().__init__()
        self.q, self.k, self.v, self.out = (Linear(16, 16, bias=False) for _ in range(4))

    def forward(self, x: Any) -> Any:
        b, length, width = x.shape
        q, k, v = (one(x).view(b, length, 4, 4).transpose(1, 2) for one in (self.q, self.k, self.v))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        y = y.transpose(1, 2).reshape(b, length, width)
        return x + self.out(y)


@case
def attention_of_several_heads() -> Case:
    laid = {"x": ROWS, "out.weight": ROW, **dict.fromkeys(["q.weight", "k.weight", "v.weight"], COLUMN)}
    return Attention(), (some(4, 8, 16),), laid


class Written(Module):
    """The same written out: bmm, masks in a buffer and as positions, a step of softmax."""

    def __init__(self) -> None:
        super().__init__()
        self.qkv = Linear(16, 48)
        self.register_buffer("mask", torch.tril(torch.ones(8, 8, dtype=torch.bool)))

    def forward(self, x: Any, length: Any) -> Any:
        q, k, v = self.qkv(x).chunk(3, dim=-1)
        q, k, v = (one.reshape(4, 8, 4, 4).permute(0, 2, 1, 3).reshape(16, 8, 4) for one in (q, k, v))
        scores = torch.bmm(q, k.transpose(1, 2)) / math.sqrt(4)
        scores = scores.masked_fill(~self.mask, float("-inf")).view(4, 4, 8, 8)
        here = torch.arange(8)[None, None, None, :] < length[:, None, None, None]
        weights = torch.where(here, scores, torch.finfo(scores.dtype).min).softmax(-1).view(16, 8, 8)
        return torch.baddbmm(v, weights, v, alpha=0.5).view(4, 4, 8, 4).transpose(1, 2).flatten(2)


@case
def attention_written_out() -> Case:
    return Written(), (some(4, 8, 16), torch.tensor([8, 7, 6, 5])), {"x": ROWS, "qkv.weight": COLUMN}


class Norm(Module):
    def __init__(self, width: int, epsilon: float = 1e-6) -> None:
        super().__init__()
        self.weight, self.epsilon = torch.nn.Parameter(some(width, seed=7)), epsilon

    def forward(self, x: Any) -> Any:
        wide = x.float()
        return self.weight * (wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + self.epsilon)).type_as(x)


class Block(Module):
    """A block of a Llama: rotary positions, heads that share keys, a gated layer."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = Norm(16), torch.nn.RMSNorm(16, eps=1e-5)
        self.wq, self.wo = Linear(16, 32, bias=False), Linear(32, 16, bias=False)
        self.wk, self.wv = Linear(16, 8, bias=False), Linear(16, 8, bias=False)
        self.w1, self.w2, self.w3 = Linear(16, 48, bias=False), Linear(48, 16, bias=False), Linear(16, 48, bias=False)

    def rotated(self, x: Any, cos: Any, sin: Any) -> Any:
        left, right = x.chunk(2, dim=-1)
        return x * cos + torch.cat((-right, left), dim=-1) * sin

    def forward(self, x: Any, cos: Any, sin: Any) -> Any:
        h = self.first(x)
        q = self.wq(h).view(4, 8, 8, 4).transpose(1, 2)
        k = self.wk(h).view(4, 8, 2, 4).transpose(1, 2)
        v = self.wv(h).view(4, 8, 2, 4).transpose(1, 2)
        q, k = self.rotated(q, cos, sin), self.rotated(k, cos, sin)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        x = x + self.wo(y.transpose(1, 2).flatten(2))
        h = self.second(x)
        return x + self.w2(F.silu(self.w1(h)) * self.w3(h))


class Llama(Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed = torch.nn.Embedding(32, 16)
        self.layers = torch.nn.ModuleList(Block() for _ in range(2))
        self.norm = Norm(16)
        angles = torch.outer(torch.arange(8.0), 10000.0 ** (-torch.arange(0, 4, 2) / 4))
        self.register_buffer("cos", torch.cat((angles, angles), -1).cos())
        self.register_buffer("sin", torch.cat((angles, angles), -1).sin())

    def forward(self, ids: Any) -> Any:
        x = self.embed(ids)
        for layer in self.layers:
            x = layer(x, self.cos, self.sin)
        return self.norm(x) @ self.embed.weight.T


def llama_laid() -> dict[str, Any]:
    laid: dict[str, Any] = {"ids": ROWS, "embed.weight": COLUMN}
    for layer in range(2):
        columns = dict.fromkeys([f"layers.{layer}.{name}.weight" for name in ("wq", "wk", "wv", "w1", "w3")], COLUMN)
        laid |= {**columns, f"layers.{layer}.wo.weight": ROW, f"layers.{layer}.w2.weight": ROW}
    return laid


@case
def two_blocks_of_a_llama_with_grouped_heads() -> Case:
    return Llama(), (torch.arange(32).reshape(4, 8) * 5 % 32,), llama_laid()


class Loss(Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed, self.head = torch.nn.Embedding(32, 16), Linear(16, 32, bias=False)

    def forward(self, ids: Any, labels: Any) -> Any:
        x = self.embed(ids)
        logits = torch.einsum("ble,ve->blv", torch.relu(x), self.head.weight)
        picked = F.log_softmax(logits, dim=-1).gather(-1, labels.unsqueeze(-1)).squeeze(-1)
        return -picked.mean(), (logits.argmax(-1) == labels).float().sum(1), logits.amax((1, 2))


@case
def an_embedding_a_head_and_its_loss() -> Case:
    ids = torch.arange(32).reshape(4, 8) * 7 % 32
    return Loss(), (ids, (ids + 3) % 32), {"ids": ROWS, "labels": ROWS, "embed.weight": COLUMN, "head.weight": COLUMN}


class Shapes(Module):
    def forward(self, x: Any, y: Any, ids: Any, scale: Any) -> Any:
        a = torch.cat([x[:, :4], y, 2 * x[:, 4:]], dim=1)
        b = torch.stack([x, y]).sum(0) + F.pad(x[:, 2:], (1, 1)) + x.flip(1) + y.cumsum(1) + x.t() * x[3]
        c = x.reshape(2, 4, 2, 4).permute(0, 2, 1, 3).reshape(8, 8).unflatten(1, (2, 4)).select(1, 1)
        d = torch.einsum("i,j,jk->ik", x[0], y[1], x) + torch.einsum("...i,i->...", y, x[0])[:, None]
        e = x.repeat_interleave(2, dim=1)[:, ::2] + y.repeat(1, 2)[:, 8:] + x[:, None, :].expand(8, 2, 8).mean(1)
        f = torch.where(x > y, x, y).masked_fill((x < -0.5) | (y == x[0]), 3).clamp(-0.9, 2.5)
        top, places = x.topk(2, dim=1)
        most, at = y.max(dim=1)
        g = x[:, ids] + x.index_select(1, ids) + torch.outer(x[0], x[0])
        h = x.tril() + x.triu(1) + torch.addmm(x, y, y, beta=2) + (x @ y[0])[:, None] + x.pow(3) - y / 2**x
        split = x.split([2, 6], dim=1)
        return a, b, c, d, e, f, top, places, most, at, g, h, split[1].unbind(1)[5], x.var(1), x.all(), scale * x


@case
def cuts_joins_and_choices() -> Case:
    args = some(8, 8), some(8, 8, seed=1), torch.arange(8) * 3 % 8, torch.tensor(0.5)
    return Shapes(), args, {"x": ROWS, "y": [Replicate(), Shard(1)]}


class Sequences(Module):
    def forward(self, x: Any, y: Any, ids: Any) -> Any:
        zeros = torch.zeros(9, 8)
        a = zeros.index_add(0, ids, x) + zeros.index_add(0, ids, y, alpha=2), x.index_add(1, ids, y)
        b = zeros.scatter_add(0, ids[:, None].expand(8, 8), x), torch.zeros(8, 9).scatter_add(1, ids.repeat(8, 1), y)
        c = (
            torch.index_put(zeros, (ids,), x, accumulate=True),
            torch.index_put(y, (ids[None],), x[None], accumulate=True),
        )
        d = (
            torch.ops.aten.embedding_dense_backward(x, ids, 9, -1, False),
            F.pad(x, (3, 0))[:, :-3],
            F.pad(y, (2, 1, -1, 4)),
        )
        e = torch.sort(x, 1), torch.sort(y, 0, descending=True), torch.argsort(x, 0), x.cumprod(1), x[:, 1::3]
        f = x.topk(7, 1), x.topk(3, 0, largest=False), x.topk(1, 1), F.pad(x, (1, 1), value=2.0)
        return a, b, c, d, e, f


@case
def rows_by_ids_paddings_and_orders() -> Case:
    args = some(8, 8), some(8, 8, seed=1), torch.tensor([1, 3, 3, 7, 0, 1, 1, 6])
    return Sequences(), args, {"x": ROWS, "y": [Replicate(), Shard(1)]}


class Mixture(Module):
    """Two of eight experts for each token, their gates renormalised."""

    def __init__(self) -> None:
        super().__init__()
        self.router = Linear(8, 8, bias=False)
        self.up = torch.nn.Parameter(some(8, 8, 16, seed=1))
        self.down = torch.nn.Parameter(some(8, 16, 8, seed=2))

    def forward(self, x: Any) -> Any:
        gates, which = self.router(x).softmax(-1).topk(2, dim=-1)
        gates = gates / gates.sum(-1, keepdim=True)
        weights = torch.zeros(x.shape[0], 8).scatter_add(1, which, gates)
        h = torch.einsum("td,xdf->xtf", x, self.up).relu()
        return torch.einsum("xtf,xfd,tx->td", h, self.down, weights), which


@case
def experts_by_their_gates() -> Case:
    return Mixture(), (some(12, 8),), {"x": ROWS, "up": COLUMN, "down": COLUMN}


class Maps(Module):
    def forward(self, x: Any) -> Any:
        y = torch.exp(x) + torch.log(x * x + 1) - torch.tanh(x) * torch.sigmoid(x) + torch.abs(x).sqrt() / 3
        y = y + torch.rsqrt(x * x + 0.5) - F.relu(x) + F.silu(x) + x.reciprocal() + F.softplus(x) + F.leaky_relu(x)
        y = y + torch.log1p(x.square()) + torch.expm1(x) + torch.sign(x) + 1 - x
        y = y + F.elu(x) + F.hardswish(x) + F.relu6(x)
        return torch.maximum(y, torch.minimum(x, y)) + F.softmax(y, 0) + (x > 2).to(x.dtype) + torch.rsub(x, y, alpha=2)


@case
def every_map() -> Case:
    return Maps(), (some(8, 16) + 1.5,), {"x": ROWS}


class Halves(Module):
    def __init__(self) -> None:
        super().__init__()
        self.up = Linear(16, 32, bias=False, dtype=torch.bfloat16)
        self.norm = torch.nn.LayerNorm(32, dtype=torch.bfloat16)

    def forward(self, x: Any) -> Any:
        return F.gelu(self.norm(self.up(x)).float()).bfloat16() + 1


@case
def halves_of_precision() -> Case:
    return Halves(), (some(8, 16).bfloat16(),), {"x": ROWS, "up.weight": COLUMN}


def exported(name: str) -> tuple[Any, Any, Mapping[str, Any]]:
    torch.manual_seed(0)
    module, args, laid = CASES[name]()
    return torch.export.export(module.eval(), args), args, laid


@pytest.mark.parametrize("name", CASES)
def test_a_program_checks_and_its_plan_gives_the_same(name: str) -> None:
    program, args, laid = exported(name)
    text = shardc.to_shard(program, mesh=MESH, placements=laid)
    shardc.check(shardc.Source(text))
    assert all(layer.equal for layer in shardc.run(program, *args, mesh=MESH, placements=laid)), text


def text_of(name: str) -> str:
    program, _, laid = exported(name)
    return shardc.to_shard(program, mesh=MESH, placements=laid)


def test_the_file_has_the_names_of_the_program() -> None:
    text = text_of("a_feed_forward_layer")
    assert "layer feed_forward(" in text and "  up: weight f32 B_{model}A," in text and "x: f32 C_{data}DA," in text
    assert "let h = " in text and "let a = gelu(" in text and ": h = self.norm(x)" in text
    labels = text_of("an_embedding_a_head_and_its_loss")
    assert "let logits = einsum(relu(x), head -> BLV)" in labels and "dim E = 16  // embed[1], head[1]" in labels


def test_what_is_written_out_is_one_op() -> None:
    for name in ("attention_of_several_heads", "attention_written_out"):
        text = "".join(line for line in text_of(name).splitlines() if "//" not in line)
        assert text.count("causal(") == text.count("softmax(") == 1, text
        assert "exp(" not in text and "log(" not in text
    llama = text_of("two_blocks_of_a_llama_with_grouped_heads")
    # Heads that share a key are a dim of their own: no key is copied.
    assert llama.count("causal(") == 2 and llama.count("rmsnorm(") == 3 and "ones" not in llama
    assert (
        "layers_1_wq: weight f32" in llama
        and llama.count("  cos: f32") == llama.count("  sin: f32") == 1
        and "constant" not in llama
    )


def test_steps_have_the_line_of_python() -> None:
    program, _, laid = exported("a_feed_forward_layer")
    plan = shardc.explain(program, mesh=MESH, placements=laid, out_placements=[ROWS], hardware="tpu-v5p")
    (layer,) = plan
    assert layer.hardware == "tpu-v5p" and layer.optimality is not None and layer.optimality.status == "proven"
    line = FeedForward.forward.__code__.co_firstlineno
    sources = {step.name: step.source for step in layer.instructions if step.name}
    assert sources["h"] == shardc.Place(__file__, line + 1) and sources["a"] == shardc.Place(__file__, line + 2)


@pytest.fixture
def distributed() -> Iterator[Any]:
    """A mesh of four devices of which there is one."""
    store = pytest.importorskip("torch.testing._internal.distributed.fake_pg").FakeStore()
    torch.distributed.init_process_group("fake", store=store, rank=0, world_size=4)
    yield torch.distributed.device_mesh.init_device_mesh("cpu", (2, 2), mesh_dim_names=("data", "model"))
    torch.distributed.destroy_process_group()


def test_parameters_that_are_distributed_lie_as_they_are(distributed: Any) -> None:
    module, (x,), laid = CASES["a_feed_forward_layer"]()
    plain = torch.export.export(module, (x,))
    laid = {**dict.fromkeys([name for name, _ in module.named_parameters()], [Replicate()] * 2), **laid}
    by_hand = shardc.to_shard(plain, mesh=MESH, placements=laid)
    for name, parameter in list(module.named_parameters()):
        owner, word = module.get_submodule(name.rpartition(".")[0]), name.rpartition(".")[2]
        spread = placements.distribute_tensor(parameter.data, distributed, laid[name])
        setattr(owner, word, torch.nn.Parameter(spread))
    parameters = {**dict(module.named_parameters()), "x": ROWS}
    assert shardc.to_shard(plain, mesh=distributed, placements=parameters) == by_hand
    assert shardc.to_shard(plain, placements=parameters) == by_hand
    spread = placements.distribute_tensor(x, distributed, ROWS)
    assert shardc.to_shard(torch.export.export(module, (spread,))) == by_hand


class Unknown(Module):
    def __init__(self, does: Callable[..., Any]) -> None:
        super().__init__()
        self.does = does
        self.register_buffer("kept", torch.zeros(8, 16))

    def forward(self, x: Any) -> Any:
        return self.does(self, x)


def _writes(self: Any, x: Any) -> Any:
    self.kept.add_(x)
    return x + self.kept


@pytest.mark.parametrize(
    ("does", "said", "operator"),
    [
        (lambda self, x: torch.cummax(x, 1)[0], "no counterpart of `cummax`", "cummax"),
        (lambda self, x: torch.sin(x), "the sine of a computed value", "sin"),
        (lambda self, x: torch.index_put(x, (x[0, :2].int(),), x[:2]), "places that are written", "index_put"),
        (lambda self, x: F.dropout(x, 0.5, True), "after `.eval\\(\\)`", "dropout"),
        (lambda self, x: torch.div(x, 3, rounding_mode="floor"), "that is rounded", "div"),
        (lambda self, x: torch.einsum("ii->i", x[:, :8]), "diagonal", "einsum"),
    ],
)
def test_what_has_no_counterpart_is_named_with_its_line(does: Any, said: str, operator: str) -> None:
    program = torch.export.export(Unknown(does), (some(8, 16),))
    with pytest.raises(shardc.TranslationError, match=said) as raised:
        shardc.to_shard(program, mesh=MESH)
    wrong = raised.value
    # PyTorch keeps the lines of `forward` alone.
    assert (wrong.primitive, wrong.file, wrong.line) == (
        operator,
        __file__,
        Unknown.forward.__code__.co_firstlineno + 1,
    )
    assert f"{__file__}:{wrong.line}: " in str(wrong) and "return self.does(self, x)" in str(wrong)


def test_wrong_placements_are_said_as_such() -> None:
    program, args, _ = exported("attention_of_several_heads")
    with pytest.raises(shardc.TranslationError, match=r"q has 1 placements, and the mesh 2 axes \(data, model\)"):
        shardc.to_shard(program, mesh=MESH, placements={"q.weight": [Shard(0)]})
    with pytest.raises(shardc.TranslationError, match="q has 2 dims, and is placed S"):
        shardc.to_shard(program, mesh=MESH, placements={"q.weight": [Replicate(), Shard(2)]})
    with pytest.raises(shardc.TranslationError, match="reads Shard and Replicate"):
        shardc.to_shard(program, mesh=MESH, placements={"q.weight": [Replicate(), placements.Partial()]})
    with pytest.raises(TypeError, match="placements names 'q', and the program has q.weight, k.weight"):
        shardc.to_shard(program, mesh=MESH, placements={"q": COLUMN})
    with pytest.raises(TypeError, match="mesh is missing"):
        shardc.explain(program)
    with pytest.raises(TypeError, match="in_specs says nothing of an exported program"):
        shardc.run(program, *args, mesh=MESH, in_specs=())
    with pytest.raises(TypeError, match="out_placements has 2 entries, and the program 1 results"):
        shardc.to_shard(program, mesh=MESH, out_placements=[ROWS, ROWS])
    batch = torch.export.Dim("batch")
    loose = torch.export.export(Attention(), (some(4, 8, 16),), dynamic_shapes={"x": {0: batch}})
    with pytest.raises(shardc.TranslationError, match="without dynamic shapes"):
        shardc.to_shard(loose, mesh=MESH)
    with pytest.raises(shardc.TranslationError, match="writes into kept"):
        shardc.to_shard(torch.export.export(Unknown(_writes), (some(8, 16),)), mesh=MESH)


def test_the_page_prints_what_it_says(tmp_path: Path) -> None:
    page = (Path(__file__).parents[3] / "spec" / "from-torch.md").read_text()
    code, prints = (page.split(f"```{kind}\n")[1].split("```")[0] for kind in ("python", "text"))
    (tmp_path / "mlp.py").write_text(code)
    ran = subprocess.run([sys.executable, "mlp.py"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stdout.replace(f"{tmp_path}/", "")) == (0, prints), ran.stderr


def test_the_page_has_each_operator() -> None:
    from shardc._torch.walk import OPS

    page = (Path(__file__).parents[3] / "spec" / "from-torch.md").read_text()
    words = set(re.findall(r"\w+", page))
    missing = [name for name in OPS if name not in words and name.strip("_") not in words]
    assert not missing
