"""Axes of a mesh as the file calls them."""

from __future__ import annotations

import re
from collections.abc import Mapping


def axis_words(axes: Mapping[str, int]) -> dict[str, str]:
    """What each axis is called in the file: a small letter, then letters and digits."""
    words: dict[str, str] = {}
    for name in axes:
        word = re.sub(r"[^A-Za-z0-9]", "", name)
        word = word[:1].lower() + word[1:] if word[:1].isalpha() else f"m{word}"
        while word in words.values():
            word += "2"
        words[name] = word
    return words
