"""Meshes and placements of DTensor."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from .._program.errors import TranslationError
from .._program.program import Spec


def mesh_axes(mesh: Any) -> dict[str, int]:
    """Sizes of axes by name, major to minor, of a DeviceMesh or of a mapping."""
    if isinstance(mesh, Mapping):
        return {str(name): int(size) for name, size in mesh.items()}
    names = getattr(mesh, "mesh_dim_names", None)
    if not names:
        raise TypeError("the mesh has no mesh_dim_names: layouts are said by the names of its axes")
    return {str(name): int(size) for name, size in zip(names, tuple(mesh.shape))}


def mesh_of(values: Sequence[Any]) -> Any:
    """The mesh that tensors are distributed over; None where none is."""
    return next((value.device_mesh for value in values if is_distributed(value)), None)


def is_distributed(value: Any) -> bool:
    """Whether it is a DTensor."""
    return hasattr(value, "device_mesh") and hasattr(value, "placements")


def spec_of(placements: Any, rank: int, axes: Mapping[str, int], what: str) -> Spec | None:
    """The axes of each position: `placements` has one placement for each axis of the mesh, or is a DTensor. None where the
    layout is free."""
    if placements is None:
        return None
    if is_distributed(placements):
        theirs = mesh_axes(placements.device_mesh)
        if any(axes.get(name) != size for name, size in theirs.items()):
            raise TranslationError(f"{what} lies on a mesh {theirs}, which is no part of {dict(axes)}")
        names: Sequence[str] = list(theirs)
        placements = placements.placements
    else:
        names = list(axes)
    if len(placements) != len(names):
        said = f"{what} has {len(placements)} placements, and the mesh {len(names)} axes ({', '.join(names)})"
        raise TranslationError(said)
    spec: dict[int, tuple[str, ...]] = {}
    for name, placement in zip(names, placements):
        kind = type(placement).__name__
        if kind == "Replicate":
            continue
        if kind != "Shard":
            raise TranslationError(f"{what} is placed {placement} over {name!r}: `.shard` reads Shard and Replicate")
        at = placement.dim + rank if placement.dim < 0 else placement.dim
        if not 0 <= at < rank:
            raise TranslationError(f"{what} has {rank} dims, and is placed {placement} over {name!r}")
        spec[at] = (*spec.get(at, ()), name)
    return spec
