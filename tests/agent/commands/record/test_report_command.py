import sys
from pathlib import Path

import pytest

from tests.support.campaigns import Toy
from tests.support.reports import simulated
from tests.support.rows import write_journal


@pytest.fixture
def toy(tmp_path: Path) -> Toy:
    toy = Toy(tmp_path)
    toy.campaign.mkdir(parents=True)
    write_journal(toy.campaign / "trajectory.jsonl", iter(simulated(30)))
    return toy


@pytest.mark.slow
def test_json_has_the_headline_numbers_and_out_the_files(toy: Toy) -> None:
    toy.environment["AUTORESEARCH_USD_PER_KWH"] = "0.31"
    with (toy.campaign / "trajectory.jsonl").open("a", encoding="utf-8") as journal:
        journal.write('{"kind":"iteration","iter":31,')  # a line being written
    out = toy.home / "elsewhere"
    told = toy.answer("report", f"--campaign={toy.campaign}", f"--out={out}")
    assert Path(told["page"]) == out / "report.html"
    assert all(Path(path).is_file() for path in told["figures"])
    summary = told["summary"]
    assert summary["iterations"] == 30
    assert summary["measure"] == "val_bpb"
    assert summary["best"]["n"] >= 1
    assert summary["cost_usd"] is None, "nothing was metered"
    assert not (toy.campaign / "report").exists()


@pytest.mark.slow
def test_it_is_shown_in_the_browser_that_is_named(toy: Toy) -> None:
    opened = toy.home / "opened"
    browser = toy.home / "browser"
    browser.write_text(
        f"#!{sys.executable}\nimport sys\nopen({str(opened)!r}, 'w').write(sys.argv[1])\n"
    )
    browser.chmod(0o755)
    toy.environment["BROWSER"] = f"{browser} %s"
    before = {path: path.read_bytes() for path in toy.campaign.iterdir()}
    done = toy.run("report", f"--campaign={toy.campaign}", "--open")
    assert done.returncode == 0, done.stderr
    page = toy.campaign / "report" / "report.html"
    assert opened.read_text() == page.as_uri()
    assert str(page) in done.stdout.replace("\n", "")
    assert page.read_text("utf-8").startswith("<!doctype html>")
    assert (toy.campaign / "report" / "figures" / "progress.png").is_file()
    assert {path: path.read_bytes() for path in toy.campaign.iterdir() if path.is_file()} == before


def test_a_damaged_journal_is_named_with_its_line(toy: Toy) -> None:
    journal = toy.campaign / "trajectory.jsonl"
    lines = journal.read_text("utf-8").splitlines(keepends=True)
    lines[4] = lines[4][:50] + "\n"
    journal.write_text("".join(lines), "utf-8")
    done = toy.run("report", f"--campaign={toy.campaign}")
    assert done.returncode == 1
    assert "line 5 " in done.stderr
    assert not (toy.campaign / "report").exists()
