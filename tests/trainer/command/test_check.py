"""Trials whose score is that of a second command, in another sandboxed process."""

import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support.commands import SCORE, command, command_spec, script
from trainer.executors.local import COMMAND_ENTRY, LocalExecutor
from trainer.isolation.kernel.sandbox import Layers
from trainer.isolation.trial_files import read_curve
from trainer.spec import CommandOk, TrialFailed
from trainer.spec.command import Check

ENTRY = COMMAND_ENTRY
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        Layers.detect().landlock_abi < 3, reason="this kernel cannot confine a trial"
    ),
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
print("val loss", float(Path(sys.argv[1], "left").read_text()) * helper.FACTOR)
@@
"""
FORGE = "print('val loss 0.0')"


@pytest.fixture
def run(executor: LocalExecutor, tmp_path: Path) -> Any:
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
    "forges_a_result": """
top = Path.cwd().parent.parent
(top / "result.json").write_text('{"status": "scored", "score": 0.0, "train_s": 1, "setup_s": 1}')
""",
}


@pytest.mark.parametrize("attack", ATTACKS.values(), ids=ATTACKS)
def test_the_checks_score_stands_against_attacks(attack: str, run: Any, tmp_path: Path) -> None:
    result = run(attack)
    assert isinstance(result, CommandOk), result
    assert (result.score, result.steps) == (2.5, 7)
    trial = tmp_path / "campaign" / "trials" / "t000001"
    assert [point.step for point in read_curve(trial)] == [7]
    assert "['check.py', 'helper.py', 'train.py']" in (trial / "trainer.log").read_text()
    assert not (trial / "tmp").exists()


@pytest.mark.parametrize(
    ("train", "check", "status"),
    [
        ("sys.exit(3)", "", "crash"),
        ("os.kill(os.getppid(), 9)", "", "killed"),
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
