"""Test the case that a plan makes and the files that go with it."""

import json
import os
from pathlib import Path

import pytest

from agent.menu.files import load_menu
from autoresearch.errors import HandoffError, MachineryError
from funnel.plan.bundle import MANIFEST, write_bundle
from funnel.plan.case import read_case
from tests.support.configs import config
from tests.support.confirmed import confirmation
from tests.support.present import known
from tests.support.rows import at
from tests.support.stressed import stressed_campaign
from trainer.schema import Config
from trajectory.rows import FinalistsRow, dump_row

FILES = {"README.md": b"one\n", "run.sh": b"#!/bin/sh\n"}


def names(directory: Path) -> set[str]:
    return {path.name for path in directory.iterdir()}


def test_it_is_written_whole_and_nothing_is_left_beside_it(tmp_path: Path) -> None:
    out = tmp_path / "deep" / "handoff"
    out.mkdir(parents=True)  # an empty directory may be filled
    write_bundle(out, FILES)
    assert names(out) == {*FILES, MANIFEST}
    assert names(out.parent) == {"handoff"}
    assert os.access(out / "run.sh", os.X_OK)
    assert not os.access(out / "README.md", os.X_OK)
    assert out.stat().st_mode & 0o077 == (tmp_path / "deep").stat().st_mode & 0o077


def test_its_own_is_replaced_unless_the_disk_refuses(tmp_path: Path) -> None:
    out = tmp_path / "handoff"
    write_bundle(out, FILES)
    with pytest.raises(MachineryError, match="--out"):
        write_bundle(out, {"a/b": b"no such directory"})
    assert (out / "README.md").read_bytes() == b"one\n"
    write_bundle(out, {"README.md": b"two\n"})
    assert names(out) == {"README.md", MANIFEST}
    assert (out / "README.md").read_bytes() == b"two\n"
    assert names(tmp_path) == {"handoff"}


HARMS = ["changed", "added", "removed", "manifest", "foreign", "file", "link", "unreadable"]


@pytest.mark.parametrize("harm", HARMS)
def test_what_somebody_made_is_not_replaced(tmp_path: Path, harm: str) -> None:
    out = tmp_path / ("x" * 300 if harm == "unreadable" else "handoff")
    if harm == "file":
        out.write_text("mine")
    elif harm == "foreign":
        out.mkdir()
        (out / "thesis.tex").write_text("mine")
    elif harm == "link":
        write_bundle(tmp_path / "real", FILES)
        out.symlink_to("real")
    elif harm != "unreadable":
        write_bundle(out, FILES)
        {
            "changed": lambda: (out / "run.sh").write_text("export DATA_PATH=mine"),
            "added": lambda: (out / "notes.md").write_text("mine"),
            "removed": (out / "README.md").unlink,
            "manifest": lambda: (out / MANIFEST).write_text("{}"),
        }[harm]()
    before = {p: p.read_bytes() for p in tmp_path.rglob("*") if p.is_file()}
    with pytest.raises(HandoffError, match="--out"):
        write_bundle(out, {"README.md": b"two\n"})
    assert {p: p.read_bytes() for p in tmp_path.rglob("*") if p.is_file()} == before


CONFIGS = [config(lr=lr) for lr in (2e-3, 5e-4)]


def test_it_counts_what_the_campaign_did(stressed: Path) -> None:
    case = read_case(stressed)
    assert (case.search.iterations, case.search.configs, case.search.trials) == (3, 4, 5)
    assert case.search.kept == 1
    assert (case.search.stressed, case.search.survived) == (3, 3)
    assert [candidate.config.lr for candidate in case.candidates] == [2e-3, 1.5e-3, 8e-4]
    assert case.candidates[0].horizon_steps == 1000
    assert case.ranking_test is None


def test_the_latest_stress_test_counts(tmp_path: Path) -> None:
    journal = stressed_campaign(tmp_path, CONFIGS) / "trajectory.jsonl"
    last = json.loads(journal.read_text().splitlines()[-1])
    later = FinalistsRow.model_validate(last | {"finalists": last["finalists"][1:]})
    with journal.open("a") as file:
        file.write(dump_row(later) + "\n")
    assert [c.config.lr for c in read_case(tmp_path).candidates] == [5e-4]


@pytest.mark.parametrize("is_finished", [False, True])
def test_without_a_finalist_there_is_nothing_to_launch(tmp_path: Path, is_finished: bool) -> None:
    journal = stressed_campaign(tmp_path, CONFIGS) / "trajectory.jsonl"
    lines = journal.read_text().splitlines(keepends=True)[:-1]
    none = FinalistsRow(at=at(2000), steps=1000, finalists=())
    journal.write_text("".join(lines) + (dump_row(none) + "\n") * is_finished)
    with pytest.raises(HandoffError, match=r"--(campaign|top)"):
        read_case(tmp_path)


def confirm(directory: Path, of: Config, *, gain: float = 0.3) -> None:
    """Append a confirmation of ``of`` to the journal."""
    runs, end = confirmation(500, load_menu("cpu-tiny").baseline, {1: of}, gain=gain)
    with (directory / "trajectory.jsonl").open("a") as file:
        file.writelines(dump_row(row) + "\n" for row in (*runs, end))


def test_the_latest_confirmation_that_had_the_winner_counts(tmp_path: Path) -> None:
    stressed_campaign(tmp_path, CONFIGS)
    confirm(tmp_path, CONFIGS[1])
    assert read_case(tmp_path).confirmed is None
    confirm(tmp_path, CONFIGS[0], gain=0.1)
    confirm(tmp_path, CONFIGS[0], gain=0.3)
    confirm(tmp_path, CONFIGS[1])
    _, found = known(read_case(tmp_path).confirmed)
    assert found.config_hash == CONFIGS[0].config_hash
    assert found.claimed == pytest.approx(-0.36)


def test_the_survivors_are_counted_not_the_finalists(tmp_path: Path) -> None:
    journal = stressed_campaign(tmp_path, CONFIGS) / "trajectory.jsonl"
    last = json.loads(journal.read_text().splitlines()[-1])
    later = FinalistsRow.model_validate(last | {"finalists": last["finalists"][:1]})
    with journal.open("a", encoding="utf-8") as file:
        file.write(dump_row(later) + "\n")
    case = read_case(tmp_path)
    assert len(case.candidates) == 1
    assert (case.search.stressed, case.search.survived) == (2, 2)
