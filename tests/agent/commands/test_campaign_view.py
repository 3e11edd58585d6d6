"""Check that the public Python interface shows what the commands show."""

import csv
import json
import os
import re
import shutil
import subprocess
import sys
from io import StringIO
from pathlib import Path

import pytest

import autoresearch
from autoresearch.errors import SettingsError
from tests.support.campaigns import installed
from tests.support.places import NIGHT, ROOT


@pytest.fixture(scope="module")
def campaign(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("runs") / "<b>night"
    directory.mkdir()
    shutil.copy(NIGHT / "trajectory.jsonl", directory)
    return directory


def test_top_is_what_the_command_says(campaign: Path) -> None:
    printed = json.loads(installed("top", "--k=3", "--json", f"--campaign={campaign}").stdout)[
        "configs"
    ]
    best = autoresearch.open_campaign(campaign).top(3)
    for entry, said in zip(best, printed, strict=True):
        assert said.items() >= entry.model_dump(mode="json").items()
    frame = best.frame()
    assert list(frame["config_hash"]) == [said["config_hash"] for said in printed]
    assert "config.lr" in frame.columns


def test_runs_are_the_lines_of_the_exported_table(campaign: Path, tmp_path: Path) -> None:
    out = tmp_path / "table.csv"
    installed("export", "--to=csv", f"--out={out}", f"--campaign={campaign}")
    lines = list(csv.DictReader(StringIO(out.read_text("utf-8"))))
    runs = autoresearch.open_campaign(campaign).runs()
    assert len(runs) == len(lines) > 200
    assert list(runs[0]) == list(lines[0])
    assert [run["trial_id"] or "" for run in runs] == [line["trial_id"] for line in lines]


@pytest.mark.slow
def test_a_notebook_shows_the_campaign_and_its_figures(campaign: Path, tmp_path: Path) -> None:
    night = autoresearch.open_campaign(campaign)
    shown = night._repr_html_()
    assert shown.count("<tr>") == 6
    assert "<b>night" not in shown
    figure = night.figure("progress")
    figure.save(tmp_path / "progress.svg")
    assert "</svg>" in (tmp_path / "progress.svg").read_text("utf-8")
    with pytest.raises(SettingsError):
        night.figure("no-such-figure")


@pytest.mark.slow
def test_the_notebook_of_the_docs_shows_what_a_fresh_execution_shows(tmp_path: Path) -> None:
    shutil.copytree(ROOT / "docs" / "night", tmp_path / "night")
    again = shutil.copy(ROOT / "docs" / "notebook.ipynb", tmp_path)
    jupyter = Path(sys.executable).with_name("jupyter")
    environment = os.environ | {"PYTHONPATH": str(ROOT), "IPYTHONDIR": str(tmp_path / "ipython")}
    subprocess.run([jupyter, "execute", "--inplace", again], check=True, env=environment)
    shown, fresh = (outputs(Path(path)) for path in (ROOT / "docs" / "notebook.ipynb", again))
    assert shown.keys() == fresh.keys()
    assert sum(kind == "image/png" for _, kind in shown) == 2
    assert sum(map(len, shown.values())) < 300_000
    for (cell, kind), text in shown.items():
        if kind == "image/png":
            continue
        words, numbers = zip(*map(split, (text, fresh[cell, kind])), strict=True)
        assert words[0] == words[1], cell
        assert numbers[0] == pytest.approx(numbers[1], abs=2e-4), cell


def outputs(notebook: Path) -> dict[tuple[str, str], str]:
    """Return what each cell of a notebook shows, by cell and type of content."""
    found = {}
    for cell in json.loads(notebook.read_text("utf-8"))["cells"]:
        for output in cell.get("outputs", []):
            for kind, text in output.get("data", {"text": output.get("text")}).items():
                found[cell["id"], kind] = "".join(text)
    return found


def split(text: str) -> tuple[list[str], list[float]]:
    """Return the words of a text and, apart, its numbers."""
    parts = re.split(r"(-?\d+(?:\.\d+)?)", text)
    return parts[::2], [float(number) for number in parts[1::2]]
