"""Write the commands' output for the shipped journals, to compare two versions of the code.

Run ``python -m tests.support.outputs OUT`` in each version, and ``diff -r`` the two folders.
"""

from __future__ import annotations

import re
import shutil
import sys
import tempfile
from pathlib import Path

from typer.testing import CliRunner

from agent.cli import app
from tests.support.places import ROOT

JOURNALS = ("demo", "night")
TARGET = ("--target", "llama3-8b")


def write(out: Path) -> None:
    """Write one file of output per journal and command into ``out``."""
    for name in JOURNALS:
        with tempfile.TemporaryDirectory() as folder:
            campaign = Path(folder, name)
            campaign.mkdir()
            shutil.copy(ROOT / "docs" / name / "trajectory.jsonl", campaign)
            at = ("--campaign", str(campaign))
            written = Path(folder, "out")
            for label, command in {
                "top": ("top", "--k", "20", "--json", *at),
                "cost": ("cost", "--json", *at),
                "export": ("export", "--to", "csv", "--out", f"{written}/runs.csv", *at),
                "report": ("report", "--json", "--out", f"{written}/report", *at),
                "handoff": ("handoff", "--json", *TARGET, "--out", f"{written}/plan", *at),
            }.items():
                ended = CliRunner().invoke(app, command)
                _put(out / name / f"{label}.txt", f"{ended.exit_code}\n{ended.output}", folder)
            for path in sorted(written.rglob("*")):
                if path.is_file() and path.suffix not in {".png", ".bin", ".npy"}:
                    text = path.read_text(errors="replace")
                    _put(out / name / path.relative_to(written), text, folder)


def _put(path: Path, text: str, folder: str) -> None:
    """Write ``text`` without the parts that differ between two runs of one version."""
    path.parent.mkdir(parents=True, exist_ok=True)
    text = re.sub(r"20\d\d-\d\d-\d\d[T ][\d:.]+(\+00:00|Z| UTC)?", "TIME", text.replace(folder, ""))
    path.write_text(text)


if __name__ == "__main__":
    write(Path(sys.argv[1]))
