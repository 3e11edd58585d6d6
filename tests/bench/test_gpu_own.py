"""Test ``python -m bench.gpu --own``: its parts, and what it tells of one that goes wrong."""

from pathlib import Path

import pytest

from bench.gpu_own import HEAD, SCRIPTS, Outcome, parts, run_own

OK = {"trial_id": "t1", "wall_s": 9.0, "result": {"status": "scored", "peak_gpu_mem_gib": 1.25}}
FAILED = {"trial_id": "t2", "wall_s": 2.0, "result": {"status": "oom", "message": "too\nlarge"}}


def test_every_part_has_its_script_and_fits_into_the_time() -> None:
    asked = parts("cuda:1")
    assert all((SCRIPTS / part.script).is_file() for part in asked)
    assert len({part.name for part in asked}) == len(asked) == 10
    earlier = [part.name for part in asked]
    assert all(part.campaign in {"", *earlier[:n]} for n, part in enumerate(asked))
    assert any("--worker_device=cuda" in part.given for part in asked)


def test_a_line_has_the_trials_their_seconds_and_the_first_failure() -> None:
    outcome = Outcome("gpt", 0, 30.4, (OK, FAILED, {**OK, "wall_s": 3.0}))
    assert len(outcome.cells) == len(HEAD)
    assert outcome.cells == (
        "gpt", "ok", "30", "2 scored, 1 oom", "9.0", "2.5", "1.25", "", "too large"
    )  # fmt: skip
    assert Outcome("x", None, 0.0, said="not run").cells[1:] == (
        "–", "0", "none", "", "", "", "", "not run"
    )  # fmt: skip


@pytest.mark.slow
def test_a_rehearsal_trains_and_reports_what_failed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = [one for one in parts("cpu") if one.name in {"gpt", "out of memory", "bash run.sh"}]
    assert run_own(tmp_path, "cuda", 300, rehearse=True, asked=asked) == 0
    (folder,) = tmp_path.iterdir()
    rows = (folder / "figures.md").read_text("utf-8").splitlines()[-3:]
    cells = [[cell.strip() for cell in row.strip("|").split("|")] for row in rows]
    assert [(one[0], one[1], one[3]) for one in cells] == [
        ("gpt", "ok", "2 scored"),
        ("out of memory", "exit 1", "none"),
        ("bash run.sh", "ok", "2 scored"),
    ]
    assert "out of host memory" in cells[1][-1]
    assert "out of host memory" in capsys.readouterr().out


def test_without_time_no_part_is_started(tmp_path: Path) -> None:
    assert run_own(tmp_path, "cuda", 0, rehearse=True) == 1
    (folder,) = tmp_path.iterdir()
    assert not (folder / "scripts").exists()
    assert (folder / "figures.md").read_text("utf-8").count("not run") == 10
