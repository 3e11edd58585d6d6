"""Check that the public Python interface shows what the commands show."""

import csv
import json
import shutil
from io import StringIO
from pathlib import Path
from typing import Any

import pytest

import autoresearch
from autoresearch.errors import SettingsError
from tests.support.campaigns import installed
from tests.support.places import ROOT

NIGHT = ROOT / "docs" / "night"


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
def test_the_notebook_of_the_docs_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    notebook = json.loads((ROOT / "docs" / "notebook.ipynb").read_text("utf-8"))
    scope: dict[str, Any] = {}
    for cell in notebook["cells"]:
        if cell["cell_type"] == "code":
            exec(compile("".join(cell["source"]), "notebook", "exec"), scope)
    assert len(scope["kept"]) == 7
    assert len(scope["runs"]) > 200
