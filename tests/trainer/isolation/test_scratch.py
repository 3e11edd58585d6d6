"""Cleanup of the temporary files of trials whose supervisor was killed."""

from __future__ import annotations

from pathlib import Path

from tests.support.commands import script
from trainer.isolation.scratch import clear, clear_left


def test_what_killed_trials_left_goes_and_nothing_else(tmp_path: Path) -> None:
    trials = tmp_path / "trials"
    for name in ("t000001", "t000002"):
        script(trials / name / "tmp" / "work" / "out", "weights", "ckpt.pt")
        script(trials / name, "kept", "trainer.log")
    script(trials / "t000001" / "tmp.abcd.in-the-way" / "deep", "x", "x")
    script(trials / "not-a-trial" / "tmp", "kept", "x")
    outside = script(tmp_path / "outside" / "tmp", "kept", "x")
    (trials / "t000003").symlink_to(outside.parent)
    (trials / "t000004").mkdir()
    (trials / "t000004" / "tmp").symlink_to(outside)
    clear_left(trials)
    left = sorted(str(path.relative_to(trials)) for path in trials.rglob("*") if path.is_file())
    assert left == ["not-a-trial/tmp/x", "t000001/trainer.log", "t000002/trainer.log"]
    assert (outside / "x").read_text() == "kept"
    assert not (trials / "t000004" / "tmp").is_symlink()
    clear_left(tmp_path / "nowhere")


def test_folders_that_may_not_be_looked_into_go_too(tmp_path: Path) -> None:
    """Root may always list them; an ordinary user's rmtree fails on them."""
    folder = script(tmp_path / "tmp" / "a" / "b", "x", "x")
    precious = script(tmp_path / "precious", "x", "x")
    precious.chmod(0o500)
    (folder / "link").symlink_to(precious)
    for each in (folder, folder.parent):
        each.chmod(0)
    clear(tmp_path / "tmp")
    assert list(tmp_path.iterdir()) == [precious]
    assert precious.stat().st_mode & 0o777 == 0o500
