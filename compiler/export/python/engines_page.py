"""The page `spec/engines.md`, from what `engines.py` has counted."""

import json
from statistics import median

STYLES = ("specs", "constraints", "plan")
PLATFORMS = ("cpu", "tpu")
# What is the same, in parts of the plan's bytes.
SAME = 0.02

HEAD = """\
# What XLA sends, beside what the plan sends

Each layer of `examples/` is compiled by XLA at its own sizes, without being run, in three forms: as the source has it, given
where its parameters and results lie and nothing else (**specs**); with a constraint on every move of the plan (**moves**,
`export jax --style constraints`); and as the plan, every collective written out (**plan**). The bytes that a device sends are
counted in what comes out, loops as often as they are run, and stand here in parts of what the plan says that it sends: 1 is as
much, 2 twice as much. XLA:CPU compiles for virtual devices, with floats of 32 bits (it has no collectives of 16), and the
plan's bytes are counted so beside it; XLA:TPU compiles ahead of time for slices of v5p, without a chip, with the plan's
dtypes. The plan of an example is that of the hardware its file names.

The page is written by

```sh
compiler/export/python/run --engines
```

which takes some ten minutes for the CPU and an hour for the TPU on two cores, needs Python and a network, and counts anew what
is not under `target/engines`.

Bytes are those of rings, of K devices and the larger buffer D: a gather, a scatter and an all-to-all send D (K-1)/K, an
all-reduce twice that, a permute D. What XLA:TPU spells as a fusion around an all-reduce and a slice is a reduce-scatter.

That every move is given and twice the bytes are sent has one cause on both: XLA makes an all-reduce and a slice of what the plan
scatters, on the CPU wherever a constraint asks for it, on the TPU also where the module writes the scatter along a minor-most dim that
is small on each device (the column of the plan there). XLA:TPU also makes of some gathers, most of those over all chips, an all-reduce
of zeros with each device's own block written in.
"""

TABLE = """
| example | layer | devices | plan | CPU: specs | moves | plan | TPU: specs | moves | plan |
|---|---|---:|---:|---:|---:|---:|---:|---:|---:|
"""

# Why XLA sends less than the plan, given specs alone: what was read in the compiled modules.
WHY = {
    "book/context_parallel block": (
        "XLA leaves the queries where they lie and gathers keys and values; the plan changes queries, keys, values and the result "
        "from positions to heads and back by four all-to-alls. The best plan that gathers the keys is 3.6 % slower "
        "(`--why-not all-gather:k`)."
    ),
    "language/models tower": (
        "XLA reduces on every device where the plan scatters and gathers: the same bytes, less the few sums that a norm over "
        "a split dim takes."
    ),
    "language/weights_with_the_host mlp": (
        "XLA gives every device the whole weights from its host. The plan has each device fetch a part, and gathers the rest "
        "over the chips' own links, which are faster."
    ),
    "models/mamba_2 prefill": (
        "XLA keeps the prompt split over its positions: a neighbour sends the three in front of each block for the "
        "convolution, and chunks are on the devices that have their positions. No plan has that: `conv` takes its dim whole, so "
        "that all-to-alls bring the prompt to a split over groups and back."
    ),
    "llama/llama_3_70b_model llama.decode": (
        "The weights of attention lie whole on every device. XLA has each device multiply its own rows of the batch by all of "
        "them; the plan has it read a part of the weights and sends the few activations: in decoding, reading weights is what "
        "takes time."
    ),
    "llama/llama_3_70b_phases block.decode": (
        "The same: with `h` left where it lies a device reads the whole of `wq`, and the best plan with that is 50.1 us "
        "slower (`--why`)."
    ),
    "llama/more_devices_than_kv_heads attention.one": (
        "XLA completes the softmax over positions that are split by two small all-reduces, of maxima and of sums. The plan "
        "moves the scores to split heads and back: more bytes, and fewer steps, each of which waits for the network's "
        "latency."
    ),
    "moe/deepspeed_1_3b_moe_128 experts": (
        "XLA moves the tokens by all-to-alls over all axes of the experts; the plan gathers them over `p` and goes by all-to-all "
        "over `d`. The best plan with all-to-alls over `p` is 1.60 us slower (`explain`)."
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
            f"* {platform.upper()}, {said[style]}: of {len(parts)} layers less in {less}, as much in "
            f"{len(parts) - less - more}, more in {more}; {median(parts):.3g} times the plan's bytes in the median, "
            f"{max(parts):.3g} at most."
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
        "`-`: a value at the boundary is partial, which the source alone cannot say. `?`: see the end of the page. Where the "
        "plan sends nothing, bytes stand in place of parts.\n"
    )
    out.append("## In all\n")
    for platform in PLATFORMS:
        out += summary(counted[platform][0], platform)
    out += ["", "## Where XLA sends less, given specs alone\n"]
    out.append(
        "A plan is the fastest of its space by the cost model, not the one that sends least. What XLA does instead was read in "
        "the compiled modules and what it would cost in `explain`; where no time is named, the reason is ours.\n"
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
