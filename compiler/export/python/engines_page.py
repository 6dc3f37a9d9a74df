"""The page `spec/engines.md`, from what `engines.py` has counted."""

import json
from statistics import median

STYLES = ("specs", "constraints", "plan")
PLATFORMS = ("cpu", "tpu")
# What is the same, in parts of the plan's bytes.
SAME = 0.02

HEAD = """\
# What XLA sends, beside what the plan sends

XLA compiles each layer of `examples/` at its own sizes, in three forms; nothing is run.

* **specs**: the source, with the layouts of its parameters and results and no others;
* **moves**: the same with a constraint on every move of the plan (`export jax --style constraints`);
* **plan**: the plan, with every collective written out.

The bytes that a device sends are counted in the compiled program; a collective in a loop counts as often as it is run. The
table divides them by the bytes that the plan sends: 1 is as many, 2 is twice as many. XLA:CPU compiles for virtual devices.
It has no collectives of 16 bits, so floats have 32 bits there, and the bytes of the plan are counted with 32 bits, too.
XLA:TPU compiles ahead of time for slices of v5p, without a chip, with the dtypes of the plan. The plan of an example is for
the hardware that its file names.

This command writes the page:

```sh
compiler/export/python/run --engines
```

On two cores it takes some ten minutes for the CPU and an hour for the TPU. It needs Python and a network. It does not
count again what is under `target/engines`.

The bytes are those that rings send. For K devices and a larger buffer of D bytes, a gather, a scatter and an all-to-all send
D (K-1)/K, an all-reduce sends twice that, and a permute sends D. XLA:TPU writes a reduce-scatter as a fusion around an
all-reduce and a slice; it is counted as a reduce-scatter.

Where every move is given and twice the bytes are sent, the cause is the same on both platforms: XLA replaces a reduce-scatter
of the plan by an all-reduce and a slice. XLA:CPU does so wherever a constraint asks for the reduce-scatter. XLA:TPU also does
so where the module writes the reduce-scatter along a minor-most dim that is small on each device; this is in its column
*plan*. XLA:TPU also replaces some gathers, mostly those over all chips, by an all-reduce: each device writes its own block
into zeros, and the results are added.
"""

TABLE = """
| example | layer | devices | plan | CPU: specs | moves | plan | TPU: specs | moves | plan |
|---|---|---:|---:|---:|---:|---:|---:|---:|---:|
"""

# Why XLA sends less than the plan, given specs alone: what was read in the compiled modules.
WHY = {
    "book/context_parallel block": (
        "XLA leaves the queries where they are and gathers keys and values. The plan uses four all-to-alls, which take "
        "queries, keys and values from a split of positions to a split of heads, and the result back. The best plan that "
        "gathers the keys is 3.6 % slower (`--why-not all-gather:k`)."
    ),
    "language/models tower": (
        "XLA uses all-reduces where the plan uses a reduce-scatter and an all-gather. Both send the same bytes, but a "
        "norm over a split dim needs a few more sums, which only the plan sends."
    ),
    "language/weights_with_the_host mlp": (
        "In the program of XLA, every device fetches the whole weights from its host. In the plan, each device fetches a "
        "part and gathers the rest over the links between the chips, which are faster."
    ),
    "models/mamba_2 prefill": (
        "XLA keeps the prompt split over its positions: a neighbour sends the three positions in front of each block, "
        "which the convolution reads, and each chunk is on the devices that have its positions. No plan does that: `conv` "
        "needs its dim whole, so all-to-alls take the prompt to a split over groups and back."
    ),
    "llama/llama_3_70b_model llama.decode": (
        "Every device has the whole weights of attention. In the program of XLA, each device multiplies its own rows of "
        "the batch by all of them. In the plan, each device reads a part of the weights and sends the activations, which "
        "are few: decoding spends most of its time on reading weights."
    ),
    "llama/llama_3_70b_phases block.decode": (
        "The reason is the same. Where `h` is not moved, a device reads the whole of `wq`; the best plan that does so is "
        "50.1 us slower (`--why`)."
    ),
    "llama/more_devices_than_kv_heads attention.one": (
        "XLA completes the softmax over split positions by two small all-reduces, one of maxima and one of sums. The plan "
        "moves the scores to split heads and back. This sends more bytes in fewer steps, and each step waits for the "
        "latency of the network."
    ),
    "moe/deepspeed_1_3b_moe_128 experts": (
        "XLA moves the tokens by all-to-alls over all axes of the experts. The plan gathers them over `p` and uses an "
        "all-to-all over `d`. The best plan with all-to-alls over `p` is 1.60 us slower (`explain`)."
    ),
}


def size(count):
    """Bytes to three places."""
    for unit in ("B", "kB", "MB", "GB", "TB"):
        if count < 999.5 or unit == "TB":
            return f"{count:.3g} {unit}" if count else "0"
        count /= 1000
    return None


def part(entry, style):
    """What is sent in a style, in parts of the plan's bytes; none where it cannot be said."""
    found, planned = entry.get(style), sum(entry.get("planned", {}).values())
    if not isinstance(found, dict) or not planned:
        return None
    return sum(found.values()) / planned


def cell(entry, style):
    """A part as the table has it; bytes where the plan sends none."""
    if entry is None or style not in entry:
        return ""
    found = entry[style]
    if found is None:
        return "-"
    if not isinstance(found, dict):
        return "?"
    ratio = part(entry, style)
    if ratio is None:
        sent = sum(found.values())
        return size(sent) if sent else "0"
    return f"{ratio:.3g}" if ratio >= 0.995 else f"{ratio:.2f}"


def layers_of(folder, platform):
    """Every layer that was counted on a platform, and the examples that were skipped."""
    layers, skipped = {}, {}
    for path in sorted((folder / platform).rglob("*.json")):
        example = path.relative_to(folder / platform).with_suffix("")
        for name, entry in json.loads(path.read_text()).items():
            if "skipped" in entry:
                skipped[str(example)] = entry["skipped"]
            else:
                layers[str(example), name] = entry
    return layers, skipped


def summary(layers, platform):
    """How often XLA sends less, as much, and more."""
    lines = []
    said = {
        "specs": "given specs alone",
        "constraints": "given every move",
        "plan": "given the plan",
    }
    for style in STYLES:
        parts = [part(entry, style) for entry in layers.values()]
        parts = [p for p in parts if p is not None]
        if not parts:
            continue
        less = sum(p < 1 - SAME for p in parts)
        more = sum(p > 1 + SAME for p in parts)
        lines.append(
            f"* {platform.upper()}, {said[style]}: of {len(parts)} layers, {less} send less than the plan, "
            f"{len(parts) - less - more} as much and {more} more. The median is {median(parts):.3g} times the plan's "
            f"bytes, the maximum {max(parts):.3g} times."
        )
    return lines


def refused(layers, platform):
    """What was not compiled or not counted, and why."""
    lines = []
    for (example, name), entry in layers.items():
        for style in STYLES:
            if isinstance(entry.get(style), str):
                why = entry[style].splitlines()[0][:110].replace("`", "'")
                lines.append(
                    f"* {platform.upper()}, {example} {name}, {style}: `{why}`"
                )
    return lines


def page(folder):
    """The text of the page."""
    counted = {platform: layers_of(folder, platform) for platform in PLATFORMS}
    everything = sorted({key for layers, _ in counted.values() for key in layers})
    rows = []
    for key in everything:
        entries = [counted[platform][0].get(key) for platform in PLATFORMS]
        first = entries[1] or entries[0]
        cells = [cell(entry, style) for entry in entries for style in STYLES]
        planned = size(sum(first["planned"].values()))
        rows.append(
            f"| {key[0]} | {key[1]} | {first['devices']} | {planned} | {' | '.join(cells)} |"
        )
    out = [HEAD, TABLE.rstrip("\n"), *rows, ""]
    out.append(
        "`-`: a value at the boundary is partial, which specs cannot say. `?`: nothing was counted; the end of the page says "
        "why. Where the plan sends nothing, the table has the bytes themselves.\n"
    )
    out.append("## In all\n")
    for platform in PLATFORMS:
        out += summary(counted[platform][0], platform)
    out += ["", "## Where XLA sends less, given specs alone\n"]
    out.append(
        "A plan is the fastest plan of the plan space by the cost model, and not the plan that sends least. What XLA does was "
        "read in the compiled modules, and `explain` says what that would cost. Where no time is given, the reason is an "
        "opinion.\n"
    )
    for key in everything:
        parts = {p: part(counted[p][0].get(key, {}), "specs") for p in PLATFORMS}
        less = [p for p in PLATFORMS if parts[p] is not None and parts[p] < 1 - SAME]
        name = " ".join(key)
        if less:
            where = " and ".join(f"{parts[p]:.2f} on {p.upper()}" for p in less)
            why = WHY.get(name, "Not looked into.")
            out.append(f"* **{name}** ({where}). {why}")
    out.append("")
    wrong = [line for p in PLATFORMS for line in refused(counted[p][0], p)]
    for platform in PLATFORMS:
        wrong += [
            f"* {platform.upper()}, {example}: {why}"
            for example, why in counted[platform][1].items()
        ]
        lacking = {key[0] for key in everything} - {
            key[0] for key in counted[platform][0]
        }
        lacking -= set(counted[platform][1])
        if lacking and counted[platform][0]:
            wrong.append(
                f"* {platform.upper()}, not compiled yet: {', '.join(sorted(lacking))}."
            )
    if not counted["tpu"][0]:
        wrong.append("* TPU: nothing was counted; libtpu was not to be had.")
    if wrong:
        out += ["## What was not counted\n", *wrong, ""]
    return "\n".join(out).rstrip("\n") + "\n"
