"""Queries about processes by their number."""

from __future__ import annotations

import subprocess
import sys

from trainer.isolation.process_tree import children


def test_one_that_is_gone_has_no_children() -> None:
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    assert children(gone.pid) == []
