"""What the binary prints in JSON as objects, each with the JSON it was read from; in a notebook they are tables."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from . import _html
from ._diagnostics import Diagnostic

Raw = Mapping[str, Any]


@dataclass(frozen=True)
class Place:
    """A line of a program of Python."""

    file: str
    line: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"


@dataclass(frozen=True)
class Instruction:
    """One instruction of a plan, on each device. What it does not have is None: the bytes of an einsum, say."""

    id: int
    op: str
    name: str | None
    operands: Sequence[int]
    layout: str
    dtype: str
    shape: Sequence[int]
    local_shape: Sequence[int]
    axes: Sequence[str] | None
    dim: str | None
    time_s: float | None
    bytes: int | None
    wire_bytes: int | None
    flops: int | None
    rule: str | None
    reason: str | None
    line: int | None
    raw: Raw = field(repr=False, compare=False)
    source: Place | None = None
    """The line of Python that it comes from, where a function of JAX was explained."""

    @classmethod
    def of(cls, raw: Raw) -> Instruction:
        axes = raw.get("axes")
        return cls(
            id=raw["id"],
            op=raw["op"],
            name=raw["name"],
            operands=tuple(raw["operands"]),
            layout=raw["layout"],
            dtype=raw["dtype"],
            shape=tuple(raw["shape"]),
            local_shape=tuple(raw["local_shape"]),
            axes=None if axes is None else tuple(axes),
            dim=raw.get("dim"),
            time_s=raw.get("time_s"),
            bytes=raw.get("bytes"),
            wire_bytes=raw.get("wire_bytes"),
            flops=raw.get("flops"),
            rule=raw.get("rule"),
            reason=raw.get("reason"),
            line=(raw.get("span") or {}).get("line"),
            raw=raw,
        )

    @property
    def placed(self) -> Raw:
        """The layout as a structure: dims with the axes that split them, and the axes it is partial over."""
        placed: Raw = self.raw["placed"]
        return placed


@dataclass(frozen=True)
class Output:
    """A result of a layer."""

    name: str
    id: int
    layout: str
    dtype: str
    shape: Sequence[int]
    local_shape: Sequence[int]

    @classmethod
    def of(cls, raw: Raw) -> Output:
        shapes = tuple(raw["shape"]), tuple(raw["local_shape"])
        return cls(raw["name"], raw["id"], raw["layout"], raw["dtype"], *shapes)


@dataclass(frozen=True)
class Totals:
    """What all steps of a layer take together, on each device."""

    serial_time_s: float
    comm_time_s: float
    compute_time_s: float
    memory_time_s: float
    comm_bytes: int
    flops: int
    peak_hbm_bytes: int
    raw: Raw = field(repr=False, compare=False)

    @classmethod
    def of(cls, raw: Raw) -> Totals:
        times = {key: raw[key] for key in ("serial_time_s", "comm_time_s", "compute_time_s", "memory_time_s")}
        counts = {key: raw[key] for key in ("comm_bytes", "flops", "peak_hbm_bytes")}
        return cls(**times, **counts, raw=raw)


@dataclass(frozen=True)
class Optimality:
    """How far from the best plan: `proven`, or `bounded` with a gap."""

    status: str
    proof: str | None
    cost_s: float
    lower_bound_s: float
    gap: float | None
    stopped_by: str | None

    @classmethod
    def of(cls, raw: Raw | None) -> Optimality | None:
        if raw is None:
            return None
        return cls(*(raw[key] for key in ("status", "proof", "cost_s", "lower_bound_s", "gap", "stopped_by")))


@dataclass(frozen=True)
class Memory:
    """What is in the memory of a device."""

    fits: bool
    capacity_bytes: int
    weight_bytes: int
    cache_bytes: int
    activation_bytes: int
    peak_bytes: int
    raw: Raw = field(repr=False, compare=False)

    @classmethod
    def of(cls, raw: Raw) -> Memory:
        sizes = ("capacity_bytes", "weight_bytes", "cache_bytes", "activation_bytes", "peak_bytes")
        return cls(fits=raw["fits"], **{key: raw[key] for key in sizes}, raw=raw)


@dataclass(frozen=True)
class _Layer:
    name: str
    phase: str | None
    repeat: int
    hardware: str
    mesh: Mapping[str, int]
    objective: str
    strategy: Sequence[str]
    instructions: Sequence[Instruction]
    totals: Totals
    model_totals: Totals
    optimality: Optimality | None
    raw: Raw = field(repr=False, compare=False)

    @staticmethod
    def _shared(raw: Raw, steps: str) -> dict[str, Any]:
        return {
            "name": raw["name"],
            "phase": raw.get("phase"),
            "repeat": raw["repeat"],
            "hardware": raw["hardware"],
            "mesh": dict(raw["mesh"]),
            "objective": raw["objective"],
            "strategy": tuple(raw["strategy"]),
            "instructions": tuple(map(Instruction.of, raw[steps])),
            "totals": Totals.of(raw["totals"]),
            "model_totals": Totals.of(raw["model_totals"]),
            "optimality": Optimality.of(raw["optimality"]),
            "raw": raw,
        }

    @property
    def collectives(self) -> Sequence[Instruction]:
        """The instructions that send."""
        return tuple(step for step in self.instructions if step.wire_bytes)

    def _repr_html_(self) -> str:
        return _html.layer(self)


@dataclass(frozen=True)
class ExplainedLayer(_Layer):
    """A layer's plan, with a reason behind each collective."""

    outputs: Sequence[Output]

    @classmethod
    def of(cls, raw: Raw) -> ExplainedLayer:
        return cls(**cls._shared(raw, "instructions"), outputs=tuple(map(Output.of, raw["outputs"])))

    def __getitem__(self, name: str) -> Instruction:
        """The last instruction that gives the value of this name."""
        for step in reversed(self.instructions):
            if step.name == name:
                return step
        raise KeyError(name)


@dataclass(frozen=True)
class CostLayer(_Layer):
    """What a layer costs: its steps, its memory, and how well the chips are used."""

    memory: Memory
    mfu: float | None
    tokens_per_second: float | None

    @classmethod
    def of(cls, raw: Raw) -> CostLayer:
        return cls(
            **cls._shared(raw, "steps"),
            memory=Memory.of(raw["memory"]),
            mfu=raw.get("mfu"),
            tokens_per_second=raw.get("tokens_per_second"),
        )


@dataclass(frozen=True)
class _Report:
    raw: Raw = field(repr=False, compare=False)
    diagnostics: Sequence[Diagnostic]


@dataclass(frozen=True)
class Explanation(_Report):
    """The plans of a program."""

    layers: Sequence[ExplainedLayer]
    program: str | None = None
    """The text of the `.shard` file, where a function of JAX was explained."""

    @classmethod
    def of(cls, raw: Raw, diagnostics: Sequence[Diagnostic]) -> Explanation:
        return cls(raw, diagnostics, tuple(map(ExplainedLayer.of, raw["layers"])))

    def __iter__(self) -> Iterator[ExplainedLayer]:
        return iter(self.layers)

    def _repr_html_(self) -> str:
        return _html.report(self.layers, self.diagnostics)


@dataclass(frozen=True)
class CostReport(_Report):
    """What the layers of a program cost."""

    layers: Sequence[CostLayer]

    @classmethod
    def of(cls, raw: Raw, diagnostics: Sequence[Diagnostic]) -> CostReport:
        return cls(raw, diagnostics, tuple(map(CostLayer.of, raw["layers"])))

    def __iter__(self) -> Iterator[CostLayer]:
        return iter(self.layers)

    def _repr_html_(self) -> str:
        return _html.report(self.layers, self.diagnostics)


@dataclass(frozen=True)
class RunLayer:
    """An executed layer: whether it equals the unsharded program, and what its collectives sent."""

    name: str
    phase: str | None
    equal: bool
    max_abs_err: float | None
    devices: int
    dims: Mapping[str, int]
    collectives: Sequence[Comparison]
    raw: Raw = field(repr=False, compare=False)

    @classmethod
    def of(cls, raw: Raw) -> RunLayer:
        return cls(
            name=raw["name"],
            phase=raw.get("phase"),
            equal=raw["equal"],
            max_abs_err=raw["max_abs_err"],
            devices=raw["devices"],
            dims=dict(raw["dims"]),
            collectives=tuple(
                Comparison(sent["id"], sent["wire_bytes"], sent["model_wire_bytes"]) for sent in raw["collectives"]
            ),
            raw=raw,
        )


@dataclass(frozen=True)
class Comparison:
    """What a collective sent from the busiest device, and what the cost model says that it sends."""

    id: int
    wire_bytes: int
    model_wire_bytes: int


@dataclass(frozen=True)
class RunReport(_Report):
    """The layers of a program, executed on simulated devices."""

    layers: Sequence[RunLayer]

    @classmethod
    def of(cls, raw: Raw, diagnostics: Sequence[Diagnostic]) -> RunReport:
        return cls(raw, diagnostics, tuple(map(RunLayer.of, raw["layers"])))

    def __iter__(self) -> Iterator[RunLayer]:
        return iter(self.layers)

    def _repr_html_(self) -> str:
        return _html.executed(self.layers, self.diagnostics)
