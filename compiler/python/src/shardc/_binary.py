"""Where the binary is."""

from __future__ import annotations

import os
import shutil
import sys
import sysconfig
from pathlib import Path


def binary() -> Path:
    """The binary: the one that the variable SHARDC names, otherwise that of the wheel, otherwise that on the PATH."""
    named = os.environ.get("SHARDC")
    if named:
        return Path(named)
    name = "shardc.exe" if sys.platform == "win32" else "shardc"
    # With `pip install --target` the scripts are beside the package, under bin.
    folders: list[Path | str] = [sysconfig.get_path("scripts"), Path(__file__).parent.parent / "bin"]
    user = sysconfig.get_preferred_scheme("user") if sys.version_info >= (3, 10) else f"{os.name}_user"
    if user in sysconfig.get_scheme_names():
        folders.append(sysconfig.get_path("scripts", scheme=user))
    for folder in folders:
        path = Path(folder) / name
        if path.is_file():
            return path
    found = shutil.which(name)
    if found is None:
        raise FileNotFoundError("there is no shardc: install the wheel again, or set SHARDC to the binary")
    return Path(found)
