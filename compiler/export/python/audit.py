"""What a compiled module sends, beside what its plan says.

A collective is told by its kind (and by what it combines with, where that is a maximum), by the
elements of its larger buffer on a device, and by the devices of its group. What is in a loop counts as often as the loop is run.
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
                if combined(line, computations):
                    parts = [(f"{kind} max", *rest) for kind, *rest in parts]
                if len(parts) > 1:
                    merged.append((found.group("kind"), len(parts), source_line(line)))
                for part in parts:
                    counts[part] += times

    walk(entry, 1)
    return counts, merged


def combined(line, computations):
    """Whether what a collective combines with is a maximum."""
    by = re.search(r"to_apply=%?([\w.\-]+)", line)
    return by and any(" maximum(" in line for line in computations.get(by.group(1), []))


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


class Planned:
    """The collectives of a layer of `lower --emit json`."""

    def __init__(self, layer, to="jax", chains=None):
        """Counts them as a system has them, and finds those that send the same value the same way.

        `chains` are the kinds of the moves that the module has in place of each exchange.
        """
        self.of_exchanges = Counter()
        exchanges = [i for i in layer["instructions"] if i["op"] == "exchange"]
        for instr, chain in zip(exchanges, chains or [], strict=True):
            for kind in chain:
                self.of_exchanges[kind] += instr.get("repeat", 1)
        self.counts, self.names, self.exchanges = Counter(), {}, []
        self.sharable, self.to = Counter(), to
        self.by_id = {instr["id"]: instr for instr in layer["instructions"]}
        alike = {}
        for instr in layer["instructions"]:
            if instr["op"] == "exchange":
                self.exchanges.append(called(instr))
            for key in self.keys_of_merge(layer, instr):
                self.counts[key] += instr.get("repeat", 1)
                self.names.setdefault(key, []).append(called(instr))
            if (key := self.key(layer, instr)) is None:
                continue
            runs = instr.get("repeat", 1) * (instr.get("chunks", 2) - 1)
            self.counts[key] += runs
            self.names.setdefault(key, []).append(called(instr))
            sends = instr.get("gathered", instr["operands"][0])
            how = (
                key,
                sends,
                str(instr["axes"]),
                str(instr.get("along", instr.get("dim"))),
            )
            # The chunks of a product are made on the way: no two rings of them are the same.
            if instr.get("fused") != "reduce-scatter" and how in alike:
                self.sharable[key] += runs
            alike[how] = instr

    def keys_of_merge(self, layer, instr):
        """The same of a softmax-merge: the maximum of the statistics, and two sums."""
        if instr["op"] != "softmax-merge":
            return []
        part = self.by_id[instr["operands"][0]]
        dims = [placed["dim"] for placed in part["placed"]["dims"]]
        sizes = dict(zip(dims, part["local_shape"], strict=True))
        result = math.prod(part["local_shape"])
        statistics = math.prod(sizes[dim] for dim in instr["statistics"])
        group = math.prod(layer["mesh"][axis] for axis in instr["axes"])
        along = instr.get("dim")
        of_result = "all-reduce" if along is None else "reduce-scatter"
        of_weights = of_result if along in instr["statistics"] else "all-reduce"
        return [
            ("all-reduce max", statistics, group),
            (of_result, result, group),
            (of_weights, statistics, group),
        ]

    def key(self, layer, instr):
        """How the audit tells a collective, none for what sends nothing."""
        if instr["op"] == "collective-einsum":
            moved = self.by_id[instr["gathered"]] if "gathered" in instr else instr
            return ("collective-permute", math.prod(moved["local_shape"]), None)
        if instr["op"] not in KINDS:
            return None
        shapes = [instr["local_shape"], self.by_id[instr["operands"][0]]["local_shape"]]
        group = math.prod(layer["mesh"][axis] for axis in instr["axes"])
        kind = instr["op"]
        if kind == "reduce-scatter" and instr.get("reduction") == "max":
            # JAX has none.
            kind = "all-to-all" if self.to == "jax" else "reduce-scatter max"
        if kind == "all-reduce" and instr.get("reduction") == "max":
            kind = "all-reduce max"
        if kind == "collective-permute":
            group = None
        return (kind, max(map(math.prod, shapes)), group)


def called(instr):
    """An instruction by its number and its name."""
    return f"%{instr['id']} {instr['name'] or ''}".strip()


def chains_of_exchanges(module, layer):
    """The kinds of the moves that a layer of a module has in place of each exchange.

    Its comments say so, in the order of the plan.
    """
    entry = re.search(
        rf'^    "{re.escape(layer)}": \{{\n.*?"sharded": (\w+)',
        module,
        re.MULTILINE | re.DOTALL,
    )
    body = module.partition(f"\ndef {entry.group(1)}(")[2].partition("\n\n\n")[0]
    chains = re.findall(r"\bexchange, sends .*; as (.*)$", body, re.MULTILINE)
    return [chain.split(", ") for chain in chains]


def compared(layer, text, to="jax", chains=None):
    """What differs between a layer's plan and its compiled module, and what is merged.

    More than the plan has is of an exchange, as far as the module has such moves in its place.
    """
    planned = Planned(layer, to, chains)
    found, merged = sent_by_hlo(text)
    wrong, said = [], []
    of_exchanges = planned.of_exchanges
    for key in sorted(planned.counts | found, key=str):
        short = planned.counts[key] - found[key]
        if short == 0:
            continue
        counts = f"{planned.counts[key]} in the plan, {found[key]} compiled"
        what = (
            f"{describe(key)}: {counts} ({', '.join(planned.names.get(key, ['none']))})"
        )
        if 0 < short == planned.sharable[key]:
            said.append(f"sent once for all that take it: {what}")
        elif 0 < -short <= of_exchanges[key[0]]:
            of_exchanges[key[0]] += short
            said.append(f"of an exchange ({', '.join(planned.exchanges)}): {what}")
        else:
            wrong.append(what)
    said += [f"{count} {kind} merged in line {line}" for kind, count, line in merged]
    return wrong, said, sum(planned.counts.values())


def describe(key):
    """A collective in words."""
    kind, elements, group = key
    among = f" among {group}" if group else ""
    return f"{kind} of {elements} elements{among}"
