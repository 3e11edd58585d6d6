"""Find out whether this machine can compile what torch and Triton generate, without torch."""

from __future__ import annotations

import shutil
import sys
import sysconfig
from importlib.util import find_spec
from pathlib import Path


def lacking(device_type: str) -> str | None:
    """Return what compiling for "cuda" or "cpu" lacks here; None if nothing is missing.

    Triton, for GPUs, compiles its launchers with a C compiler against Python's headers. Inductor's
    code for a CPU is C++. This checks the compiler names that the two use by default, since a
    trial's environment has no CC or CXX.
    """
    if device_type == "cuda":
        if find_spec("triton") is None:
            return "Triton"
        compilers = ["gcc", "clang"]
    else:
        compilers = ["clang++" if sys.platform == "darwin" else "g++"]
    if not any(shutil.which(name) for name in compilers):
        return f"a compiler ({' or '.join(compilers)})"
    if not Path(sysconfig.get_path("include"), "Python.h").exists():
        return "Python's headers (python3-dev)"
    return None
