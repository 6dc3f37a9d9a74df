"""Which dims of which tensors are the same, and their names."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Optional

Dim = int
"""A class of dims that are one; `Dims.root` says which."""

Positions = tuple[Optional[Dim], ...]
"""For each dim of a tensor of JAX the dim here; None for one of size 1, or along which all elements are alike."""

LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"


class Dims:
    """Classes of dims. Two become one where an equation asks for it and no tensor has both."""

    def __init__(self) -> None:
        self._sizes: list[int] = []
        self._parents: list[Dim] = []
        self._tensors: list[tuple[Dim, ...]] = []
        self._votes: dict[Dim, Counter[str]] = {}
        self._used_by: dict[Dim, list[str]] = {}

    def fresh(self, size: int, like: Dim | None = None) -> Dim:
        """A new dim. It has the name of `like`, where nothing else names it."""
        self._sizes.append(size)
        self._parents.append(len(self._parents))
        made = len(self._parents) - 1
        if like is not None:
            self._votes[made] = Counter({name: 1 for name, _ in self._votes_of(like).most_common(1)})
        return made

    def root(self, dim: Dim) -> Dim:
        """The class that a dim is in."""
        while self._parents[dim] != dim:
            dim = self._parents[dim]
        return dim

    def size(self, dim: Dim) -> int:
        """How many elements a dim has."""
        return self._sizes[self.root(dim)]

    def tensor(self, positions: Iterable[Dim | None]) -> None:
        """Says that one tensor has all these dims, so that no two of them may become one."""
        self._tensors.append(tuple(dim for dim in positions if dim is not None))

    def apart(self, one: Dim, other: Dim) -> None:
        """Says that two dims of one size are never one: an op has the one and gives the other."""
        self.tensor((one, other))

    def unify(self, one: Dim, other: Dim) -> bool:
        """Makes two dims one; False, and nothing is done, where a tensor has both or their sizes differ."""
        one, other = self.root(one), self.root(other)
        if one == other:
            return True
        if self._sizes[one] != self._sizes[other]:
            return False
        for dims in self._tensors:
            roots = {self.root(dim) for dim in dims}
            if one in roots and other in roots:
                return False
        self._parents[other] = one
        votes = self._votes_of(one) + self._votes.pop(other, Counter())
        self._votes[one] = votes
        self._used_by.setdefault(one, []).extend(self._used_by.pop(other, []))
        return True

    def vote(self, dim: Dim, letter: str) -> None:
        """Notes the name that an einsum of the program has for this dim."""
        if letter.isascii() and letter.isalpha():
            root = self.root(dim)
            self._votes[root] = self._votes_of(root) + Counter({letter.upper(): 2})

    def used_by(self, dim: Dim, what: str) -> None:
        """A parameter that has this dim, for a comment."""
        self._used_by.setdefault(self.root(dim), []).append(what)

    def users(self, dim: Dim) -> Sequence[str]:
        """Which parameters have this dim, and where."""
        return self._used_by.get(self.root(dim), [])

    def names(self, used: Sequence[Dim]) -> dict[Dim, str]:
        """A name for each of these classes: a capital, and a digit where several want the same one."""
        names: dict[Dim, str] = {}
        taken: set[str] = set()
        roots = list(dict.fromkeys(self.root(dim) for dim in used))
        wanted = [(root, self._votes_of(root).most_common(1)) for root in roots]
        strongest = sorted((w for w in wanted if w[1]), key=lambda w: -w[1][0][1])
        for root, [(letter, _)] in strongest:
            names[root] = next(name for name in _numbered(letter) if name not in taken)
            taken.add(names[root])
        rest = [root for root in roots if root not in names]
        free = [letter for letter in LETTERS if letter not in taken]
        free += [f"{letter}{n}" for n in range(2, 100) for letter in LETTERS if f"{letter}{n}" not in taken]
        names.update(zip(rest, free))
        return {root: names[root] for root in roots}

    def _votes_of(self, dim: Dim) -> Counter[str]:
        return self._votes.get(self.root(dim), Counter())


def _numbered(letter: str) -> Iterable[str]:
    yield letter
    number = 2
    while True:
        yield f"{letter}{number}"
        number += 1
