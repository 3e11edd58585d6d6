import json
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from html import unescape
from pathlib import Path

import pytest

from tests.support.campaigns import Toy
from tests.support.foreign import RESULTS_TSV, single_knob_lines, write_jsonl
from tests.support.in_process import run_here
from tests.support.places import NIGHT


@pytest.fixture(scope="module")
def toy(tmp_path_factory: pytest.TempPathFactory) -> Toy:
    toy = Toy(tmp_path_factory.mktemp("formats"))
    toy.campaign.mkdir(parents=True)
    rows = (NIGHT / "trajectory.jsonl").read_text("utf-8").splitlines(True)
    (toy.campaign / "trajectory.jsonl").write_text("".join(rows[:14]), "utf-8")
    write_jsonl(toy.home / "night.jsonl", [*single_knob_lines(30), "{torn"])
    (toy.home / "results.tsv").write_text(RESULTS_TSV)
    return toy


def refused(toy: Toy, *arguments: str) -> str:
    done = run_here(arguments, toy.home, toy.environment)
    assert done.returncode == 1, done.stdout
    assert done.stderr.startswith("error: ")
    assert done.stderr.count("\n") == 1
    return done.stderr


@contextmanager
def full_disk() -> Iterator[None]:
    """Let no file of this process grow beyond 4 KiB, which looks to a program like a full disk."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_another_tools_night_becomes_a_campaign_and_what_is_none_is_refused(toy: Toy) -> None:
    done = toy.run("import", "night.jsonl")
    assert done.returncode == 0, done.stderr
    top = toy.run("top", "--k", "1", "--campaign", "runs/imported-night", "--json")
    shown = json.loads(top.stdout)
    assert shown["measure"] == "val_bits_per_token"
    assert shown["configs"][0]["changes"] == {"d_model": 768}
    assert [left["line"] for left in shown["left_out"]] == [33]
    assert "val_bpb" not in top.stdout
    # An imported campaign is read-only.
    toy.run("import", "results.tsv", "--campaign", "runs/tsv")
    rows = (toy.campaign / "trajectory.jsonl").read_text("utf-8")
    (toy.home / "torn.jsonl").write_text(rows + "{torn\n", "utf-8")
    toy.run("import", "torn.jsonl", "--campaign", "runs/copy")
    for name in ("runs/tsv", "runs/copy"):
        refused(toy, "loop", "--campaign", name)
    for command in ("reindex", "export --to=csv"):
        refused(toy, *command.split(), "--campaign", "runs/tsv")
    assert toy.answer("top", "--campaign", "runs/copy")["configs"]

    # What cannot be read or written is one sentence.
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


COMMITS = (
    "commit\tval_bpb\tmemory_gb\tstatus\tdescription\n"
    "aaaaaa1\t1.0000\t44.0\tkeep\tbaseline\n"
    "bbbbbb2\t1.30\t44\tdiscard\tdepth <b>4</b>\n"
    "bbbbbb2\tunknown\t44\tdiscard\tdepth 2\n"
    "ccccccc\t0.99\t44\tkeep\tlr x2\n"
)


def test_the_report_of_an_import_has_its_standings_and_what_was_left_out(toy: Toy) -> None:
    (toy.home / "commits.tsv").write_text(COMMITS)
    where = "--campaign=runs/commits"
    toy.run("import", "commits.tsv", where)
    written = toy.answer("report", where)
    assert written["summary"] == toy.answer("top", where)
    assert [left["line"] for left in written["summary"]["left_out"]] == [4]
    page = (toy.home / written["page"]).read_text("utf-8")
    for left in written["summary"]["left_out"]:
        assert left["why"] in unescape(page)
    positions = [page.rindex(f"{name}  ") for name in ("ccccccc", "aaaaaa1", "bbbbbb2")]
    assert positions == sorted(positions)
    assert "depth &lt;b&gt;4&lt;/b&gt;" in page
    assert "<b>4</b>" not in page
    assert "<svg" in page
    assert all((toy.home / path).is_file() for path in written["figures"])
    assert written["summary"]["left_out"][0]["why"] in toy.run("report", where).stdout


def test_every_form_is_written_whole_or_not_at_all(toy: Toy) -> None:
    where = f"--campaign={toy.campaign}"
    for form in ("csv", "jsonl", "optuna"):
        exported = toy.answer("export", f"--to={form}", where)
        assert Path(exported["where"]).is_file()
        assert exported["count"] > 0
    refused(toy, "export", "--to=csv", where)
    journal = toy.campaign / "trajectory.jsonl"
    before = journal.read_bytes()
    assert (toy.campaign / "export" / "trajectory.jsonl").read_bytes() == before
    # A campaign is not exported onto itself.
    for form, name in (("jsonl", "trajectory.jsonl"), ("optuna", "history.sqlite")):
        refused(toy, "export", f"--to={form}", where, f"--out={toy.campaign / name}")
    assert journal.read_bytes() == before
    for form in ("optuna", "csv"):
        arguments = ("export", f"--to={form}", where, f"--out=full-{form}/x")
        with full_disk():
            refused(toy, *arguments)
        assert not list((toy.home / f"full-{form}").iterdir())
        assert toy.run(*arguments).returncode == 0
