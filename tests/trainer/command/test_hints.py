"""If the sandbox refuses a script a file, a hint tells the user what to do."""

from pathlib import Path

import pytest

from tests.support.commands import script
from trainer.command.workspace import refusal_hint


@pytest.fixture
def place(tmp_path: Path) -> tuple[Path, Path]:
    """Return a script's directory, and the working directory of one of its trials."""
    directory = script(tmp_path / "own", "print(1)")
    script(directory / "out", "x", "ckpt.pt")
    script(directory / "sub", "KEY=1", ".env")
    work = tmp_path / "work"
    work.mkdir()
    for name in ("out", "sub", "train.py"):
        (work / name).symlink_to(directory / name)
    return directory, work


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("PermissionError: [Errno 13] Permission denied: 'out/ckpt.pt'", "out/ckpt.pt lies in the"),
        ("PermissionError: [Errno 13] Permission denied: 'out/new' -> 'x'", "out/new lies in the"),
        ("sh: 1: cannot create train.py: Permission denied", "train.py lies in the script's dir"),
        ("PermissionError: [Errno 13] Permission denied: 'sub/.env'", "sub/.env is hidden"),
        ("PermissionError: [Errno 13] Permission denied: '/data/x'", "/data/x is closed to trials"),
        ("RuntimeError: open file failed with strerror: Permission denied", "move it away"),
        ("File '/x/multiprocessing/synchronize.py', in SemLock: Permission denied", "num_workers"),
        ("unable to open shared memory object </torch_1>: Permission denied", "num_workers=0"),
        ("Permission denied: '/\x1b[31m\nx'", "/ [31m x is closed"),
        ("ValueError: nothing of the kind", ""),
    ],
)
def test_each_refusal_says_what_to_do(place: tuple[Path, Path], line: str, says: str) -> None:
    hint = refusal_hint(["step 1", line.replace("\n", " "), "  ^^^"], *place)
    assert says in hint if says else hint == ""
    assert hint.isprintable()


def test_a_declared_path_is_not_asked_for_again(place: tuple[Path, Path]) -> None:
    line = "PermissionError: [Errno 13] Permission denied: '/data/x/y'"
    hints = {refusal_hint([line], *place, (reads,)) for reads in ("/data", "/data/x/y")}
    assert len(hints) == 1
    assert hints != {refusal_hint([line], *place, ("/data/z",))}


def test_a_file_that_the_script_itself_closed_is_its_own_affair(place: tuple[Path, Path]) -> None:
    assert refusal_hint(["Permission denied: 'made.txt'"], *place) == ""


@pytest.mark.parametrize(
    "line", ["No such file or directory: '{}'", "FileNotFoundError: {} not found."]
)
@pytest.mark.parametrize("name", ["../data/x", "{work}/../data/x", "../../nowhere/x"])
def test_a_file_that_only_a_run_by_hand_finds_is_to_be_declared(
    place: tuple[Path, Path], name: str, line: str
) -> None:
    directory, work = place
    script(directory.parent / "data", "1", "x")
    shown = str(directory.parent / "data" / "x")
    hint = refusal_hint([line.format(name.format(work=work))], *place)
    assert (shown[:80] in hint) == (hint != "") == ("nowhere" not in name)
