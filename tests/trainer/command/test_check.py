"""Trials whose score is that of a second command, in another sandboxed process."""

import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support.commands import SCORE, command, command_spec, script
from tests.support.curves import left_by
from trainer.executors.local import COMMAND_ENTRY, LocalExecutor
from trainer.isolation.kernel.sandbox import Layers
from trainer.schema import CommandOk, TrialFailed
from trainer.schema.command import Check

ENTRY = COMMAND_ENTRY
HERE = Layers.detect()
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(HERE.landlock_abi < 3, reason="this kernel cannot confine a trial"),
]
TRAIN = """
import os, sys, time
from pathlib import Path
out = Path(sys.argv[1])
print("iter 7: loss 3.0")
(out / "left").write_text("1.25")
@@
print("val loss 0.5")
"""
CHECK = """
import os, sys
from pathlib import Path
import helper
print("iter 9: loss 1.0")
print(sorted(os.listdir()))
for place in ("/tmp", "/dev/shm"):
    assert not Path(place, "left").exists(), place
print("val loss", float(Path(sys.argv[1], "left").read_text()) * helper.FACTOR)
@@
"""
FORGE = "print('val loss 0.0')"


@pytest.fixture
def run(executor: LocalExecutor, tmp_path: Path) -> Any:
    return runner(executor, tmp_path)


def runner(executor: LocalExecutor, tmp_path: Path) -> Any:
    def run(train: str = "", check: str = "", **limits: float) -> CommandOk | TrialFailed:
        place = script(tmp_path / "script", TRAIN.replace("@@", train))
        script(place, CHECK.replace("@@", check), "check.py")
        script(place, "FACTOR = 2", "helper.py")
        told = Check(argv=(sys.executable, "check.py", "{out}"), score=SCORE)
        spec = command_spec(
            command=command(
                argv=(sys.executable, "train.py", "{out}"), directory=str(place), check=told
            ),
            compile_cache=str(tmp_path / "compiled"),
            **limits,
        )
        result = executor.run(spec, tmp_path / "campaign" / "trials" / "t000001").result
        assert isinstance(result, CommandOk | TrialFailed)
        return result

    return run


ATTACKS = {
    "none": "",
    "replaces_files": f"""
for name in ("check.py", "helper.py"):
    Path(name).unlink()
    Path(name).write_text({FORGE!r})
""",
    "keeps_running": f"""
top = Path.cwd().parent.parent
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        while True:
            for path in [*top.rglob("check.py"), *top.rglob("helper.py")]:
                try:
                    path.unlink()
                    path.write_text({FORGE!r})
                except OSError:
                    pass
            for path in top.rglob("checked"):
                path.write_text("0.0")
    os._exit(0)
""",
    "leaves_startup_code": f"""
import site
for place in (Path(site.getusersitepackages()), Path.home(), Path(os.environ["TMPDIR"])):
    place.mkdir(parents=True, exist_ok=True)
    for name in ("usercustomize.py", "sitecustomize.py", "helper.py", "x.pth"):
        (place / name).write_text("import os;" + {FORGE!r})
""",
    # In a world of its own: the first process, which no signal from inside ends, though SIGTERM is
    # passed on. Elsewhere: the reader, which Landlock closes to it.
    "kills_its_parent": """
import signal
for number in signal.valid_signals() - {signal.SIGTERM}:
    try:
        os.kill(os.getppid(), number)
    except PermissionError:
        pass
""",
    "leaves_files_for_all": """
for place in ("/tmp", "/var/tmp", "/dev/shm"):
    try:
        Path(place, "left").write_text("0.0")
    except OSError:
        pass
""",
    "forges_a_result": """
top = Path.cwd().parent.parent
(top / "result.json").write_text('{"status": "scored", "score": 0.0, "train_s": 1, "setup_s": 1}')
""",
}


@pytest.mark.parametrize("world", [True, False])
@pytest.mark.parametrize("attack", ATTACKS.values(), ids=ATTACKS)
def test_the_checks_score_stands_against_attacks(
    executor: LocalExecutor,
    without_namespaces: LocalExecutor,
    tmp_path: Path,
    attack: str,
    world: bool,
) -> None:
    if world and not HERE.world:
        pytest.skip("this machine allows no namespaces")
    run = runner(executor if world else without_namespaces, tmp_path)
    result = run(attack)
    assert isinstance(result, CommandOk), result
    assert (result.score, result.steps) == (2.5, 7)
    trial = tmp_path / "campaign" / "trials" / "t000001"
    assert [point.step for point in left_by(trial)] == [7]
    assert "['check.py', 'helper.py', 'train.py']" in (trial / "trainer.log").read_text()
    assert not (trial / "tmp").exists()


@pytest.mark.parametrize(
    ("train", "check", "status"),
    [
        ("sys.exit(3)", "", "crash"),
        ("os.kill(os.getpid(), 9)", "", "killed"),
        ("(out / 'left').unlink()", "", "crash"),
        ("(out / 'left').write_text('nan')", "", "nonfinite"),
        ("import shutil; shutil.rmtree(out.parent)", "", "crash"),
        ("(out.parent.parent / 'curve.jsonl').unlink(); (out.parent.parent / 'curve.jsonl').mkdir()"
         , "", "crash"),
        ("", "sys.exit(3)", "crash"),
        ("", "import time; time.sleep(600)", "timeout"),
    ],
)  # fmt: skip
def test_either_failure_is_the_configs(run: Any, train: str, check: str, status: str) -> None:
    result = run(train, check, wall_s=60 if status != "timeout" else 6)
    assert result.status == status


@pytest.mark.parametrize("world", [True, False])
@pytest.mark.parametrize("replaced", ["out.parent", "out.parent / 'temporary'"])
@pytest.mark.parametrize("way", ["symlink_to(PLACE)", "symlink_to(was)", "touch()"])
def test_what_takes_the_place_of_the_checks_directories_is_the_configs_failure(
    executor: LocalExecutor,
    without_namespaces: LocalExecutor,
    tmp_path: Path,
    replaced: str,
    way: str,
    world: bool,
) -> None:
    """The check writes where the training pointed it neither in its world nor before it."""
    if world and not HERE.world:
        pytest.skip("this machine allows no namespaces")
    precious = tmp_path / "precious"
    precious.mkdir()
    train = f"""
was = {replaced}
was.mkdir(exist_ok=True)
was.rename(was.parent / "moved")
was.{way.replace("PLACE", repr(str(precious)))}
"""
    check = "Path('/tmp/new').write_text('x') if os.access('/tmp', os.W_OK) else None; sys.exit(3)"
    run = runner(executor if world else without_namespaces, tmp_path)
    assert run(train, check).status == "crash"
    assert list(precious.iterdir()) == []
