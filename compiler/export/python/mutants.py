"""Spoils exported modules, one line each, and asks whether the test sees it.

A mutant changes a value or a collective of what the devices do, and nothing else. One that sends
what it should not, and computes the same, counts as well: the audit has to see it.
"""

import random
import re

AXES = r"\"\w+\"|\((?:\"\w+\", )+\"\w+\"\)"


def reversed_axes(found):
    """The axes of a collective in the other order."""
    names = re.findall(r"\"\w+\"", found.group(0))
    return f"({', '.join(reversed(names))})"


# The name of each mutation, what it is done to, and what comes in its place.
MUTATIONS = [
    ("a sum left out", rf"lax\.psum\((\w+), (?:{AXES})\)", r"\1"),
    ("a maximum for a sum", r"lax\.psum\(", "lax.pmax("),
    ("a sum for a maximum", r"lax\.pmax\(", "lax.psum("),
    ("axes in the other order", r"\((?:\"\w+\", )+\"\w+\"\)", reversed_axes),
    (
        "a scatter as a sum and a slice",
        rf"lax\.psum_scatter\((\w+), ({AXES}), scatter_dimension=(\d), tiled=True\)",
        (
            r"(lambda s: lax.dynamic_slice_in_dim(s, lax.axis_index(\2) * (s.shape[\3] "
            r"// lax.axis_size(\2)), s.shape[\3] // lax.axis_size(\2), \3))"
            r"(lax.psum(\1, \2))"
        ),
    ),
    (
        "a scatter to the wrong devices",
        rf"(lax\.psum_scatter\(\w+, ({AXES}), scatter_dimension=\d, tiled=True\))",
        (
            r"lax.ppermute(\1, \2, [(i, (i + 1) % lax.axis_size(\2)) "
            r"for i in range(lax.axis_size(\2))])"
        ),
    ),
    (
        "a gather from rotated devices",
        rf"lax\.all_gather\((\w+), ({AXES})",
        (
            r"lax.all_gather(lax.ppermute(\1, \2, [(i, (i + 1) % lax.axis_size(\2)) "
            r"for i in range(lax.axis_size(\2))]), \2"
        ),
    ),
    (
        "a gather of what is gathered",
        rf"(lax\.all_gather\(\w+, ({AXES}), axis=(\d), tiled=True\))",
        (
            r"lax.dynamic_slice_in_dim(lax.all_gather(\1, \2, axis=\3, tiled=True), 0, "
            r"\1.shape[\3], \3)"
        ),
    ),
    (
        "parts sent the other way",
        r"split_axis=(\d), concat_axis=(\d)",
        r"split_axis=\2, concat_axis=\1",
    ),
    (
        "a block of the next device",
        r"(lax\.axis_index\([^()]*(?:\([^()]*\))?\)) \*",
        r"(\1 ^ 1) *",
    ),
    ("a difference for a sum", r"= (\w+) \+ ", r"= \1 - "),
    ("a sum for a product", r"= (\w+) \* ", r"= \1 + "),
    ("another map", r"jax\.nn\.gelu\((\w+), approximate=True\)", r"jax.nn.silu(\1)"),
    ("another map", r"jax\.nn\.(silu|relu)\(", "jnp.tanh("),
    (
        "a softmax along another dim",
        r"(jax\.nn\.softmax\(\w+), axis=\d\)",
        r"\1, axis=0)",
    ),
    ("a norm of another kind", r"= rmsnorm\(", "= layernorm_("),
    (
        "a product a little too large",
        r"(= )(jnp\.einsum\(.*\))(  #.*)?$",
        r"\1 1.00001 * \2",
    ),
    ("a mask that sees one less", r"later=(\d+)", r"later=\1 - 1"),
    ("a position too far", r"(rope\(.*, origin=)(\d+)", r"\1\2 + 1"),
    ("a position too far", r"(rope\((?!.*origin).*)\)(  #.*)?$", r"\1, origin=1)"),
    ("a mean over too few", r"(jnp\.sum\(.*\)) / (\d+)", r"\1 / (\2 - 1)"),
]


def sharded_lines(text):
    """The numbers of the lines of what the devices do, as bodies of functions have them."""
    numbers, inside, mapped = [], False, False
    for number, line in enumerate(text.splitlines()):
        mapped |= "jax.shard_map" in line
        if re.match(r"def \w+\(", line):
            inside, mapped = mapped, False
        elif line and not line.startswith((" ", ")")):
            inside = False
        if inside and line.startswith("    "):
            numbers.append(number)
    return numbers


def sites(text):
    """Every mutant of a module: the mutation, the line, and the module with it."""
    lines = text.splitlines()
    for number in sharded_lines(text):
        for name, pattern, instead in MUTATIONS:
            changed, count = re.subn(pattern, instead, lines[number], count=1)
            if count and changed != lines[number]:
                changed = changed.replace("layernorm_(", "0.5 * rmsnorm(")
                spoiled = [*lines[:number], changed, *lines[number + 1 :]]
                yield name, number + 1, "\n".join(spoiled) + "\n"


def chosen(modules, count, seed=0):
    """So many mutants of modules, of every kind about as many, each of another line."""
    by_kind = {}
    for key, text in modules:
        for name, line, spoiled in sites(text):
            by_kind.setdefault(name, []).append((key, name, line, spoiled))
    draw = random.Random(seed)
    for mutants in by_kind.values():
        draw.shuffle(mutants)
    out = []
    while len(out) < count and any(by_kind.values()):
        for name in sorted(by_kind):
            if by_kind[name] and len(out) < count:
                out.append(by_kind[name].pop())
    return out
