"""Whether the plan of a program of JAX or PyTorch gives what the program gives."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ._commands import Source, _json, _on
from ._diagnostics import ProgramError
from ._program.lib import numpy
from ._program.translation import Translation
from ._results import RunReport

MOST_OF = {"bfloat16": 3e-2, "float16": 4e-3}
"""How far a result may be off, in parts of the largest element, where results or arguments have a coarser dtype."""


def run_on(
    translation: Translation, flat: Sequence[Any], wanted: Sequence[Any], options: Sequence[str], typed: Sequence[Any]
) -> RunReport:
    """Executes the plan on simulated devices with the arrays of the call as they are, at their own sizes, and compares its
    results with those of the program. A result that is another raises ProgramError. `typed` has all arguments and
    results as the program has them."""
    np = numpy()
    with tempfile.TemporaryDirectory(prefix="shardc") as folder:
        # Results are files with the names of the results, which may also be names of inputs.
        given, made = Path(folder, "given"), Path(folder, "made")
        given.mkdir()
        made.mkdir()
        words = [*options, "--full", f"--output={made}"]
        for at, (name, data) in enumerate(translation.inputs.items()):
            path = given / f"in{at}.npy"
            np.save(path, np.asarray(np.asarray(data(flat)), dtype="float64"))
            words.append(f"--input={name}={path}")
        ran = _on("run", Source(translation.text), [*words, "--format=json"])
        report = RunReport.of(_json(ran), ran.diagnostics)
        found = {path.stem: np.load(path) for path in sorted(made.glob("*.npy"))}
    coarse = [str(leaf.dtype).replace("torch.", "") for leaf in typed if hasattr(leaf, "dtype")]
    most = max([MOST_OF.get(dtype, 0.0) for dtype in coarse], default=0.0)
    most = max(most, translation.most)
    for name, output, part in translation.outputs:
        right = np.asarray(wanted[output]).astype("float64")
        right = right if part is None else right[part]
        ours = found[name].reshape(right.shape)
        scale = max(1e-30, float(np.abs(right[np.isfinite(right)]).max(initial=0.0)))
        off = float(np.abs(np.where(ours == right, 0.0, ours - right)).max(initial=0.0))
        if not off <= most * max(scale, 1e-6):
            said = f"{name} is not what the function gives: {off:.3g} off where the largest element is {scale:.3g}"
            raise ProgramError(said, 1, ())
    return report
