"""Results as tables of a notebook. Every text is escaped: names may come from a stranger's file."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ._diagnostics import Diagnostic
    from ._results import Instruction, RunLayer, _Layer

_PREFIXES = ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"), (1.0, ""), (1e-3, "m"), (1e-6, "µ"), (1e-9, "n"))


def _figure(value: float | None, unit: str) -> str:
    if value is None:
        return ""
    scale, prefix = next(((s, p) for s, p in _PREFIXES if abs(value) >= s), (1.0, ""))
    return f"{value / scale:.3g}".replace("e+03", "000") + f" {prefix}{unit}"


def _row(cells: Iterable[str], tag: str = "td", style: str = "") -> str:
    columns = "".join(f'<{tag} style="text-align:left">{escape(cell)}</{tag}>' for cell in cells)
    return f"<tr{style}>{columns}</tr>"


def _table(head: Sequence[str], rows: Iterable[str]) -> str:
    return f"<table><thead>{_row(head, 'th')}</thead><tbody>{''.join(rows)}</tbody></table>"


def _step(step: Instruction) -> str:
    axes = "".join(step.axes) if step.axes and all(len(axis) == 1 for axis in step.axes) else ",".join(step.axes or ())
    op = " ".join(word for word in (step.op, axes, f"along {step.dim}" if step.dim else "") if word)
    sent = _figure(step.wire_bytes, "B")
    style = ' style="font-weight:bold"' if step.wire_bytes else ""
    cells = (str(step.id), step.name or "", op, step.layout, sent, _figure(step.time_s, "s"), step.reason or "")
    return _row(cells, style=style)


def layer(layer: _Layer) -> str:
    """A layer as a table with one row for each instruction; instructions that send are in bold."""
    mesh = ", ".join(f"{axis}={size}" for axis, size in layer.mesh.items())
    phase = f", phase {layer.phase}" if layer.phase else ""
    judged = f", {layer.optimality.status}" if layer.optimality else ""
    caption = f"{layer.name}{phase}: {_figure(layer.totals.serial_time_s, 's')} on {mesh} of {layer.hardware}{judged}"
    head = ("", "value", "op", "layout", "sent", "time", "why")
    return f"<p>{escape(caption)}</p>{_table(head, map(_step, layer.instructions))}"


def _said(diagnostics: Sequence[Diagnostic]) -> str:
    return "".join(f"<pre>{escape(str(diagnostic))}</pre>" for diagnostic in diagnostics)


def report(layers: Sequence[_Layer], diagnostics: Sequence[Diagnostic]) -> str:
    """All layers, then the warnings."""
    return "".join(map(layer, layers)) + _said(diagnostics)


def executed(layers: Sequence[RunLayer], diagnostics: Sequence[Diagnostic]) -> str:
    """The executed layers: one row for each layer."""
    rows = (
        _row(
            (
                ran.name + (f", phase {ran.phase}" if ran.phase else ""),
                "equal" if ran.equal else "NOT EQUAL",
                "not finite" if ran.max_abs_err is None else f"{ran.max_abs_err:.3g}",
                str(ran.devices),
                _figure(sum(sent.wire_bytes for sent in ran.collectives), "B"),
            )
        )
        for ran in layers
    )
    return _table(("layer", "against the unsharded program", "largest error", "devices", "sent"), rows) + _said(
        diagnostics
    )
