"""What a compiled module sends, beside what its plan says.

A collective is told by its kind, by the elements of its larger buffer on a device, and by the
devices of its group. What is in a loop counts as often as the loop is run.
"""

import math
import re
from collections import Counter

KINDS = (
    "all-gather",
    "all-reduce",
    "reduce-scatter",
    "all-to-all",
    "collective-permute",
)
OPERATION = re.compile(
    rf"= (?P<type>.+?) (?P<kind>{'|'.join(KINDS)})(?P<start>-start)?\((?P<rest>.*)"
)
LOOP = re.compile(r" while\(.*condition=%?([\w.\-]+), body=%?([\w.\-]+)")
TRIPS = re.compile(r'"known_trip_count":\{"n":"(\d+)"\}')
CALL = re.compile(r" (?:call|conditional)\(.*")
CALLED = re.compile(r"(?:to_apply|true_computation|false_computation)=%?([\w.\-]+)")
SHAPE = re.compile(r"\w+\[([\d,]*)\]")


def sent_by_hlo(text):
    """Of each collective how often it is run, and of those that are several in one the lines."""
    computations, entry, name = {}, None, None
    for line in text.splitlines():
        opened = re.match(r"(ENTRY )?%?([\w.\-]+) \(.*\{$", line)
        if opened:
            name = opened.group(2)
            computations[name] = []
            entry = name if opened.group(1) else entry
        elif name is not None:
            computations[name].append(line)
    counts, merged = Counter(), []

    def walk(name, times):
        for line in computations.get(name, []):
            if loop := LOOP.search(line):
                trips = TRIPS.search(line)
                if trips is None:
                    raise ValueError(f"a loop of unknown length: {line}")
                walk(loop.group(2), times * int(trips.group(1)))
            elif CALL.search(line):
                for called in CALLED.findall(line):
                    walk(called, times)
            elif found := OPERATION.search(line):
                parts = collectives(found.group("kind"), found.group("type"), line)
                if len(parts) > 1:
                    merged.append((found.group("kind"), len(parts), source_line(line)))
                for part in parts:
                    counts[part] += times

    walk(entry, 1)
    return counts, merged


def source_line(line):
    """The line of the module that an operation comes from."""
    found = re.search(r"source_line=(\d+)", line)
    return int(found.group(1)) if found else None


def collectives(kind, types, line):
    """The collectives in one operation: several where XLA has merged them."""
    shapes = [
        math.prod(map(int, s.split(","))) if s else 1 for s in SHAPE.findall(types)
    ]
    group = group_size(line)
    if kind == "all-to-all":
        # Its parts, or the whole of them.
        return [(kind, sum(shapes), group)]
    if kind == "reduce-scatter":
        shapes = [n * group for n in shapes]
    if kind == "collective-permute":
        group = None
    return [(kind, n, group) for n in shapes]


def group_size(line):
    """How many devices are in a group."""
    if listed := re.search(r"replica_groups=\{\{([\d,]*)\}", line):
        return len(listed.group(1).split(","))
    if counted := re.search(r"replica_groups=\[(\d+),(\d+)\]", line):
        return int(counted.group(2))
    return None


def sent_by_plan(layer):
    """The same of a layer of `lower --emit json`, and what JAX has no collective for."""
    counts, names, others = Counter(), {}, []
    by_id = {instr["id"]: instr for instr in layer["instructions"]}
    for instr in layer["instructions"]:
        times = instr.get("repeat", 1)
        if instr["op"] == "collective-einsum":
            chunks = instr["chunks"]
            moved = by_id[instr["gathered"]] if "gathered" in instr else instr
            key = ("collective-permute", math.prod(moved["local_shape"]), None)
            counts[key] += times * (chunks - 1)
        elif instr["op"] == "exchange":
            others.append(instr)
            continue
        elif instr["op"] in KINDS:
            shapes = [instr["local_shape"], by_id[instr["operands"][0]]["local_shape"]]
            group = math.prod(layer["mesh"][axis] for axis in instr["axes"])
            kind = instr["op"]
            if kind == "reduce-scatter" and instr.get("reduction") == "max":
                kind = "all-to-all"
            if kind == "collective-permute":
                group = None
            key = (kind, max(map(math.prod, shapes)), group)
            counts[key] += times
        else:
            continue
        names.setdefault(key, []).append(
            f"%{instr['id']} {instr['name'] or ''}".strip()
        )
    return counts, names, others


def compared(layer, text):
    """What differs between a layer's plan and its compiled module, and what is merged."""
    planned, names, others = sent_by_plan(layer)
    found, merged = sent_by_hlo(text)
    wrong, said = [], []
    for key in sorted(planned | found, key=str):
        short = planned[key] - found[key]
        if short:
            what = f"{describe(key)}: {planned[key]} in the plan, {found[key]} compiled"
            wrong.append(
                (key, short, f"{what} ({', '.join(names.get(key, ['none']))})")
            )
    for kind, count, line in merged:
        said.append(f"{count} {kind} merged in line {line}")
    if others:
        lowered = ", ".join(f"%{o['id']} {o['name'] or ''}".strip() for o in others)
        said.append(f"exchanges, by what JAX has: {lowered}")
        wrong = [w for w in wrong if w[1] > 0]
    return wrong, said, sum(planned.values())


def describe(key):
    """A collective in words."""
    kind, elements, group = key
    among = f" among {group}" if group else ""
    return f"{kind} of {elements} elements{among}"
