"""What the machine calls itself."""

from __future__ import annotations

import platform
from pathlib import Path


def cpu_name() -> str:
    """The processor's own name; on most of those that are not x86 only its architecture."""
    try:
        with Path("/proc/cpuinfo").open(encoding="utf-8", errors="replace") as lines:
            for line in lines:
                if line.startswith("model name"):
                    return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine() or "cpu"
