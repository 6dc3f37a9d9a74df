"""The diagnostics of a program, as the binary writes them in JSON, and the exceptions that carry them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Span:
    """A place in the source: line and column from 1 (columns count characters), bytes from 0."""

    line: int
    column: int
    byte_start: int
    byte_end: int

    @classmethod
    def of(cls, raw: Mapping[str, Any]) -> Span:
        return cls(raw["line"], raw["column"], raw["byte_start"], raw["byte_end"])


@dataclass(frozen=True)
class Label:
    """A place that matters, and why."""

    span: Span
    text: str
    primary: bool


@dataclass(frozen=True)
class Help:
    """A way to fix it: the text, and the replacements that do it, if there are any."""

    text: str
    edits: Sequence[tuple[Span, str]]


@dataclass(frozen=True)
class Diagnostic:
    """One thing that is wrong, or probably not meant."""

    severity: str
    code: str | None
    message: str
    file: str | None
    span: Span | None
    labels: Sequence[Label]
    notes: Sequence[str]
    helps: Sequence[Help]
    raw: Mapping[str, Any] = field(repr=False, compare=False)

    @classmethod
    def of(cls, raw: Mapping[str, Any]) -> Diagnostic:
        return cls(
            severity=raw["severity"],
            code=raw["code"],
            message=raw["message"],
            file=raw["file"],
            span=Span.of(raw["span"]) if raw["span"] else None,
            labels=tuple(Label(Span.of(label["span"]), label["text"], label["primary"]) for label in raw["labels"]),
            notes=tuple(raw["notes"]),
            helps=tuple(
                Help(help["text"], tuple((Span.of(edit["span"]), edit["replacement"]) for edit in help["edits"]))
                for help in raw["helps"]
            ),
            raw=raw,
        )

    def __str__(self) -> str:
        place = f"{self.file or ''}:{self.span.line}:{self.span.column}: " if self.span else ""
        code = f"[{self.code}]" if self.code else ""
        lines = [f"{place}{self.severity}{code}: {self.message}"]
        lines += [
            f"  {label.span.line}:{label.span.column}: {label.text}"
            for label in self.labels
            if label.text and label.text != self.message
        ]
        lines += [f"  note: {note}" for note in self.notes]
        lines += [f"  help: {help.text}" for help in self.helps]
        return "\n".join(lines)


def read(text: str) -> tuple[Diagnostic, ...]:
    """The diagnostics of a document, or none where the text is no such document."""
    try:
        document = json.loads(text)
    except ValueError:
        return ()
    if not isinstance(document, dict) or not str(document.get("schema", "")).startswith("shardc.diagnostics/"):
        return ()
    return tuple(Diagnostic.of(raw) for raw in document["diagnostics"])


class ShardcError(Exception):
    """The binary ended with an error; `diagnostics` says which, as far as it was said in JSON."""

    def __init__(self, message: str, status: int, diagnostics: Sequence[Diagnostic]) -> None:
        super().__init__(message)
        self.status = status
        self.diagnostics = tuple(diagnostics)


class ProgramError(ShardcError):
    """The program is wrong, or a check of it failed (exit status 1)."""


class UsageError(ShardcError):
    """The command line is wrong, or a file cannot be read or written (exit status 2)."""
