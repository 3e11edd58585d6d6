"""Export and import trajectories and use priors as a person would, through the installed
command."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from tests.support.campaigns import COMMAND, Toy
from tests.support.foreign import RESULTS_TSV, single_knob_lines, write_jsonl
from tests.support.in_process import run_here


@pytest.fixture(scope="module")
def toy(tmp_path_factory: pytest.TempPathFactory) -> Toy:
    toy = Toy(tmp_path_factory.mktemp("formats"))
    toy.begun(4)
    write_jsonl(toy.home / "night.jsonl", [*single_knob_lines(30), "{torn"])
    (toy.home / "results.tsv").write_text(RESULTS_TSV)
    return toy


def refused(toy: Toy, *arguments: str) -> str:
    done = run_here(arguments, toy.home, toy.environment)
    assert done.returncode == 1, done.stdout
    assert done.stderr.startswith("error: ")
    assert done.stderr.count("\n") == 1
    return done.stderr


@pytest.mark.slow
def test_another_tools_night_becomes_a_campaign_to_look_at(toy: Toy) -> None:
    done = toy.run("import", "night.jsonl")
    assert done.returncode == 0, done.stderr
    top = toy.run("top", "--k", "1", "--campaign", "runs/imported-night", "--json")
    shown = json.loads(top.stdout)
    assert shown["measure"] == "val_bits_per_token"
    assert shown["configs"][0]["changes"] == {"d_model": 768}
    assert [left["line"] for left in shown["left_out"]] == [33]
    assert "val_bpb" not in top.stdout


@pytest.mark.slow
def test_an_imported_campaign_is_read_only(toy: Toy) -> None:
    toy.run("import", "results.tsv", "--campaign", "runs/tsv")
    toy.run("import", str(toy.campaign), "--campaign", "runs/copy")
    for name in ("runs/tsv", "runs/copy"):
        refused(toy, "loop", "--campaign", name)
    refused(toy, "reindex", "--campaign", "runs/tsv")
    assert json.loads(toy.run("top", "--campaign", "runs/copy", "--json").stdout)["configs"]


def test_every_form_says_what_it_wrote(toy: Toy) -> None:
    for form in ("csv", "jsonl", "optuna"):
        done = toy.run("export", f"--to={form}", f"--campaign={toy.campaign}", "--json")
        assert done.returncode == 0, done.stderr
        exported = json.loads(done.stdout)
        assert Path(exported["where"]).is_file()
        assert exported["count"] > 0
    refused(toy, "export", "--to=csv", f"--campaign={toy.campaign}")
    rows = toy.campaign / "export" / "trajectory.jsonl"
    assert rows.read_bytes() == (toy.campaign / "trajectory.jsonl").read_bytes()


@pytest.mark.parametrize("form", ["optuna", "csv"])
def test_a_disk_that_is_full_leaves_nothing_half_written(toy: Toy, form: str) -> None:
    where = (f"--campaign={toy.campaign}", f"--out=full-{form}/x")
    arguments = [COMMAND, "export", f"--to={form}", *where]
    done = subprocess.run(
        # No file may grow beyond 4 KiB, which looks to a program like a full disk.
        ["bash", "-c", 'ulimit -f 4; exec "$@"', "bash", *arguments],
        cwd=toy.home,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1, done.stdout
    assert done.stderr.startswith("error: ")
    assert not list((toy.home / f"full-{form}").iterdir())
    assert toy.run(*map(str, arguments[1:])).returncode == 0


def test_a_campaign_is_not_exported_onto_itself(toy: Toy) -> None:
    before = (toy.campaign / "trajectory.jsonl").read_bytes()
    for form, name in (("jsonl", "trajectory.jsonl"), ("optuna", "history.sqlite")):
        out = f"--out={toy.campaign / name}"
        refused(toy, "export", f"--to={form}", f"--campaign={toy.campaign}", out)
    assert (toy.campaign / "trajectory.jsonl").read_bytes() == before


def test_what_cannot_be_read_or_written_is_one_sentence(toy: Toy) -> None:
    (toy.home / "prose.txt").write_text("It was a dark and stormy night.\n")
    refused(toy, "import", "prose.txt")
    refused(toy, "import", "/dev/zero")
    refused(toy, "import", "night.jsonl", "--campaign=.")
    refused(toy, "export", "--to=csv", f"--campaign={toy.campaign}", "--out=/proc/x.csv")
    refused(toy, "loop", "--prior=prose.txt", f"--menu={toy.menu}", "--campaign=runs/none")
    refused(toy, "loop", "--prior=/dev/zero", f"--menu={toy.menu}", "--campaign=runs/none")
    refused(toy, "loop", "--log=paper", f"--menu={toy.menu}", "--campaign=runs/none")
    assert not (toy.home / "runs" / "none").exists()
    assert not (toy.home / "runs" / "imported-prose").exists()


@pytest.mark.slow
def test_a_loop_with_priors_judges_as_one_without_and_says_so(toy: Toy) -> None:
    priors = (f"--prior={toy.campaign}", "--prior=night.jsonl")
    alone, informed = Toy(toy.home), Toy(toy.home)
    for one, name, more in ((alone, "alone", ()), (informed, "informed", priors)):
        one.campaign = toy.home / "runs" / name
        done = one.loop(3, "--proposer=random", *more)
        assert done.returncode == 0, done.stderr
    found = [
        [(row["config_hash"], row["decision"]) for row in one.iterations()]
        for one in (alone, informed)
    ]
    assert found[0] == found[1]
    assert notes(alone) == []
    assert len(notes(informed)) == 1
    assert str(toy.campaign) in notes(informed)[0]
    assert "night.jsonl" in notes(informed)[0]
    done = informed.loop(4)
    assert done.returncode == 0, done.stderr
    assert len(notes(informed)) == 2


def notes(toy: Toy) -> list[str]:
    return [row["why"] for row in toy.rows() if row["kind"] == "event" and row["event"] == "note"]


@pytest.mark.slow
def test_a_loop_that_logs_is_none_the_worse_for_a_logger_that_fails(toy: Toy) -> None:
    pytest.importorskip("tensorboard")
    one = Toy(toy.home)
    one.campaign = toy.home / "runs" / "logged"
    (toy.home / "in-the-way").write_text("x")
    done = one.loop(2, "--log=tensorboard", "--log=tensorboard:in-the-way/below")
    assert done.returncode == 0, done.stderr
    assert len(one.iterations()) == 2
    assert len(notes(one)) == 1
    assert list((one.campaign / "tensorboard" / "campaign").glob("events.*"))
    assert list((one.campaign / "tensorboard" / "trials").glob("*/events.*"))
