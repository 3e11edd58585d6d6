"""Read the processor's name."""

from __future__ import annotations

import platform
from pathlib import Path


def cpu_name() -> str:
    """Return the processor's own name; on most non-x86 machines only the architecture."""
    try:
        with Path("/proc/cpuinfo").open(encoding="utf-8", errors="replace") as lines:
            for line in lines:
                if line.startswith("model name"):
                    return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine() or "cpu"
