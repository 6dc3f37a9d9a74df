"""Meshes and `PartitionSpec`s of JAX."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from typing import Any

from .._program.errors import TranslationError
from .._program.lib import module
from .._program.program import Spec


def mesh_axes(mesh: Any) -> dict[str, int]:
    """Sizes of axes by name, major to minor, of a mesh of JAX or of a mapping."""
    shape = mesh if isinstance(mesh, Mapping) else mesh.shape
    return {str(name): int(size) for name, size in shape.items()}


def within(mesh: Any) -> Any:
    """A context in which a constraint may be a `PartitionSpec`, as far as `mesh` is one of JAX."""
    if isinstance(mesh, Mapping):
        return contextlib.nullcontext()
    jax = module("jax")
    return jax.set_mesh(mesh) if hasattr(jax, "set_mesh") else mesh


def spread(specs: Any, tree: Any) -> list[Any]:
    """A spec for each leaf: `specs` is a tree like `tree`, or one that ends higher up."""
    tree_util = module("jax.tree_util")

    def is_leaf(node: Any) -> bool:
        return node is None or _is_spec(node)

    if isinstance(specs, list) and isinstance(tree, tuple):
        specs = tuple(specs)
    if isinstance(specs, tuple) and not _is_spec(specs) and isinstance(tree, tuple) and len(specs) != len(tree):
        raise TypeError(f"in_specs has {len(specs)} entries, and the function {len(tree)} arguments")
    leaves, structure = tree_util.tree_flatten(specs, is_leaf=is_leaf)
    found: list[Any] = []
    for leaf, part in zip(leaves, structure.flatten_up_to(tree)):
        found += [leaf] * len(tree_util.tree_leaves(part))
    return found


def _is_spec(node: Any) -> bool:
    sharding = module("jax.sharding")
    return isinstance(node, (sharding.PartitionSpec, sharding.NamedSharding))


def spec_of(leaf: Any, rank: int, axes: Mapping[str, int], what: str) -> Spec | None:
    """The axes of each position; None where the layout is free."""
    if leaf is None:
        return None
    entries: Sequence[Any] = tuple(getattr(leaf, "spec", leaf))
    if len(entries) > rank:
        raise TranslationError(f"{what} has {rank} dims, and its spec {leaf} has {len(entries)}")
    spec: dict[int, tuple[str, ...]] = {}
    for at, entry in enumerate(entries):
        names = () if entry is None else (entry,) if isinstance(entry, str) else tuple(entry)
        for name in names:
            if name not in axes:
                raise TranslationError(f"{what} is split over {name!r}, which the mesh ({', '.join(axes)}) has not")
        if names:
            spec[at] = names
    return spec


def own_spec(leaf: Any) -> Any:
    """The layout that an array itself states; None where it states none."""
    sharding = getattr(leaf, "sharding", None)
    return getattr(sharding, "spec", None)
