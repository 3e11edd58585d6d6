"""Commands run as trials: sandboxed, started by the executor and judged by their output."""

import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from autoresearch.errors import MachineryError
from tests.support.commands import command, command_spec, script
from trainer.command.child import run_command
from trainer.command.workspace import work_dir
from trainer.executors.local import COMMAND_ENTRY, LocalExecutor
from trainer.isolation.kernel.sandbox import Layers
from trainer.isolation.outcome import finished_trial
from trainer.isolation.trial_files import read_curve
from trainer.spec import (
    CommandOk,
    Measure,
    PruneRule,
    ScoreRule,
    TrialFailed,
    TrialSpec,
)

pytestmark = pytest.mark.skipif(
    Layers.detect().landlock_abi < 3, reason="this kernel cannot confine a trial"
)


@pytest.fixture(scope="module")
def executor() -> Iterator[LocalExecutor]:
    with LocalExecutor(entry=COMMAND_ENTRY) as executor:
        yield executor


class Runs:
    """Runner of scripts as trials of one campaign."""

    def __init__(self, executor: LocalExecutor, tmp_path: Path) -> None:
        self._executor = executor
        self._tmp_path = tmp_path
        self.trial = tmp_path / "campaign" / "trials" / "t000001"

    def spec(self, text: str, *words: str, **changes: Any) -> TrialSpec:
        directory = script(self._tmp_path / "script", text)
        of_spec = {n: changes.pop(n) for n in list(changes) if n in _OF_SPEC}
        argv = (sys.executable, "train.py", *words)
        told = command(**{"argv": argv, "directory": str(directory), **changes})
        return command_spec(command=told, **of_spec)

    def __call__(self, text: str, *words: str, **changes: Any) -> CommandOk | TrialFailed:
        result = self._executor.run(self.spec(text, *words, **changes), self.trial).result
        assert isinstance(result, CommandOk | TrialFailed)
        return result


_OF_SPEC = {"values", "seed", "budget", "prune", "wall_s", "memory_gib", "threads", "file_bytes"}


@pytest.fixture
def run(executor: LocalExecutor, tmp_path: Path) -> Runs:
    return Runs(executor, tmp_path)


def test_declared_paths_lie_where_the_script_looks_for_them(run: Runs, tmp_path: Path) -> None:
    data = tmp_path / "data" / "scores"
    script(data, "0.25", "own.txt")
    text = """
import os, pathlib
above = pathlib.Path(__file__).parents[2] / os.environ["NAME"] / "data" / "scores" / "own.txt"
assert above.read_text() == "0.25"
pathlib.Path("made.txt").write_text("1")
print("val loss", pathlib.Path("../data/scores/own.txt").read_text())
"""
    given = {"env": (("NAME", tmp_path.name),)}
    result = run(text, reads=(str(data.parent), str(data)), **given)
    assert isinstance(result, CommandOk), result
    assert result.score == 0.25
    assert not (tmp_path / "script" / "made.txt").exists()


def test_a_score_and_a_curve_are_those_it_prints(run: Runs) -> None:
    text = """
import sys
for step in range(0, 21, 5):
    print(f"iter {step}: loss {3 - step / 10:.4f}, time 1ms")
print("step 20: train loss 0.9, val loss", sys.argv[1])
"""
    result = run(text, "{lr}", values={"lr": 1.25})
    assert isinstance(result, CommandOk), result
    assert (result.score, result.objective, result.steps) == (1.25, 1.25, 20)
    points = [(point.step, point.loss) for point in read_curve(run.trial)]
    assert points == [(0, 3.0), (5, 2.5), (10, 2.0), (15, 1.5), (20, 1.0)]
    assert "time 1ms" in (run.trial / "trainer.log").read_text()
    finished = finished_trial(run.trial)
    assert finished is not None
    assert finished[1] == result


@pytest.mark.parametrize(("given", "score"), [({}, 8), ({"env": (("WANDB_MODE", "off"),)}, 3)])
def test_wandb_is_off_unless_the_menu_sets_it(run: Runs, given: Any, score: int) -> None:
    result = run("import os\nprint('val loss', len(os.environ['WANDB_MODE']))\n", **given)
    assert isinstance(result, CommandOk), result
    assert result.score == score


def test_a_score_to_grow_is_turned_to_be_minimised(run: Runs) -> None:
    measure = Measure(unit="accuracy", direction="maximise")
    result = run("print('val loss 0.75')", measure=measure)
    assert isinstance(result, CommandOk)
    assert (result.score, result.objective) == (0.75, -0.75)


@pytest.mark.parametrize(
    ("text", "file", "key", "wanted"),
    [
        ("json.dump({'val': {'bpb': 1.5}}, open('r.json', 'w'))", "r.json", "val.bpb", 1.5),
        ("json.dump({'a.b': 2}, open(f'{out}/r.json', 'w'))", "r.json", "a.b", 2.0),
        (
            "[print(json.dumps({'l': x}), file=f) for f in [open('m.jsonl', 'w')] for x in (3, 2)]",
            *("m.jsonl", "l", 2.0),
        ),
        ("open('m.csv', 'w').write('step,l\\n1,3\\n2,2.5\\n3,\\n')", "m.csv", "l", 2.5),
        ("open('m.csv', 'w').write('step; l\\n1; 3\\n2; 2\\n')", "m.csv", "l", 2.0),
    ],
)
def test_a_score_may_be_in_a_file(run: Runs, text: str, file: str, key: str, wanted: float) -> None:
    text = f"import json, sys\nout = sys.argv[1]\n{text}\n"
    result = run(text, "{out}", score=ScoreRule(file=file, key=key))
    assert isinstance(result, CommandOk), result
    assert result.score == wanted
    assert not (run.trial / "tmp").exists()  # the trial's temporary directory is removed, too


@pytest.mark.parametrize(
    ("text", "status", "says"),
    [
        ("import sys; print('why'); sys.exit(3)", "crash", "exit code 3: why"),
        ("print('val loss 2.0'); raise ValueError('late')", "crash", "ValueError: late"),
        ("print('nothing of note')", "no_score", "nothing of note"),
        ("print('val loss 2.0'); print('val loss nan')", "nonfinite", "the score was nan"),
        ("print('iter 7: loss nan')", "nonfinite", "lost at step 7"),
        ("raise MemoryError", "oom", "MemoryError"),
        ("import os; os.kill(os.getpid(), 9)", "killed", "signal 9"),
        ("import os; os.kill(os.getpid(), 6)", "killed", "signal 6"),
    ],
)
def test_each_way_to_fail_is_a_status_with_the_last_lines(
    run: Runs, text: str, status: str, says: str
) -> None:
    result = run(text)
    assert isinstance(result, TrialFailed)
    assert result.status == status
    assert says in result.message


@pytest.mark.parametrize(
    "act", ["print('I write nothing')", "import os; os.symlink('old', 'r.json')"]
)
def test_only_a_score_file_that_this_run_wrote_counts(run: Runs, tmp_path: Path, act: str) -> None:
    for name in ("r.json", "old"):
        script(tmp_path / "script", json.dumps({"val": 1.0}), name)
    result = run(act, score=ScoreRule(file="r.json", key="val"))
    assert result.status == "no_score"


def test_a_hopeless_run_is_ended_by_its_curve(run: Runs) -> None:
    text = """
import time
for step in range(100):
    print(f"iter {step}: loss 9.0")
    time.sleep(0.01 if step < 30 else 10)
"""
    result = run(text, prune=PruneRule(at_step=20, window=5, max_loss=4.0))
    assert isinstance(result, TrialFailed)
    assert result.status == "pruned"


def test_a_child_that_holds_the_output_open_is_not_waited_for(run: Runs) -> None:
    text = """
import subprocess, sys
subprocess.Popen([sys.executable, "-c", "import time; time.sleep(1e6)"])
print("val loss 1.0")
"""
    result = run(text)
    assert isinstance(result, CommandOk), result


def test_a_program_that_is_not_there_is_no_evidence(run: Runs, executor: LocalExecutor) -> None:
    spec = run.spec("", argv=("/nonexistent/program",))
    with pytest.raises(MachineryError):
        executor.run(spec, run.trial)
    assert finished_trial(run.trial) is None


def test_its_directory_is_read_and_its_own_place_written(run: Runs, tmp_path: Path) -> None:
    place = tmp_path / "script"
    script(place / "data", "17", "text.txt")
    script(place, "ANSWER = 3\n", "sibling.py")
    script(place, "KEY = 1\n", ".env")
    (place / "out_of_it").symlink_to(tmp_path / "elsewhere")
    script(tmp_path / "elsewhere", "precious", "file")
    text = """
import os
from pathlib import Path
import sibling
print("data", Path("data/text.txt").read_text(), sibling.ANSWER)
print("names", sorted(os.listdir(".")))
Path("made").mkdir(); Path("made/x").write_text("x")
for name in ("data/new", "train.py", PLACE + "/.env", PLACE + "/new", PLACE + "/out_of_it/file"):
    try:
        closed = "/.env" in name or "out_of_it" in name
        Path(name).read_text() if closed else Path(name).write_text("")
        print("got", name)
    except OSError as error:
        print("refused", name)
print("val loss 1.0")
""".replace("PLACE", repr(str(place)))
    result = run(text)
    log = (run.trial / "trainer.log").read_text()
    assert isinstance(result, CommandOk), log
    assert "data 17 3" in log
    assert "names ['data', 'sibling.py', 'train.py']" in log
    assert "got" not in log
    assert log.count("refused") == 5


def test_a_checkout_that_holds_its_own_campaign_shows_it_to_no_trial(
    executor: LocalExecutor, tmp_path: Path
) -> None:
    place = script(tmp_path / "checkout", "import os; print(os.listdir('.')); open('runs')")
    trial = place / "runs" / "mine" / "trials" / "t000001"
    script(place / "runs" / "mine", "rows", "trajectory.jsonl")
    told = command(argv=(sys.executable, "train.py"), directory=str(place))
    result = executor.run(command_spec(command=told), trial).result
    assert isinstance(result, TrialFailed)
    assert "['train.py']" in (trial / "trainer.log").read_text()


def test_constants_are_rewritten_in_a_copy(run: Runs, tmp_path: Path) -> None:
    text = "lr = 0.5  # kept\nSEED = 1337\nprint('val loss', lr + SEED)\n"
    edits = (("SEED", "{seed}"),)
    result = run(text, values={"lr": 0.25}, seed=7, edited="train.py", edits=edits)
    assert isinstance(result, CommandOk), result
    assert result.score == 7.25
    assert (tmp_path / "script" / "train.py").read_text() == text


@pytest.mark.parametrize("edited", [None, "deep/src/train.py"])
def test_a_script_in_a_folder_finds_what_is_above_and_writes_there_in_its_trial(
    run: Runs, tmp_path: Path, edited: str | None
) -> None:
    place = tmp_path / "script"
    script(place / "deep" / "src", "one = 1\n", "beside.py")
    script(place / "data", "0.25", "own.txt")
    script(place / "empty", "", ".gitkeep")
    text = """
from pathlib import Path
from beside import one
lr = 0.5
root = Path(__file__).resolve().parents[2]
(root / "models").mkdir()
(root / "empty" / "new").mkdir()
assert Path("models").is_dir()
print("val loss", lr + one + float((root / "data" / "own.txt").read_text()))
"""
    script(place / "deep" / "src", text)
    argv = (sys.executable, "deep/src/train.py")
    result = run("", argv=argv, values={"lr": 0.125}, edited=edited)
    assert isinstance(result, CommandOk), result
    assert result.score == (1.375 if edited else 1.75)
    assert not (place / "models").exists()
    assert [path.name for path in (place / "empty").iterdir()] == [".gitkeep"]
    assert (place / "deep" / "src" / "train.py").read_text() == text


MAIN = """
import argparse, os, sys
def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--lr", type=float)
    lr = parser.parse_args().lr
    print("name", __name__, "modules", "email.mime.text" in sys.modules)
    if lr == 2:
        sys.exit("no such rate")
    print("iter 1: loss 2.0")
    print(f"val loss {lr}")
"""


def test_a_function_is_called_in_a_fork_that_has_its_imports_loaded(run: Runs) -> None:
    result = run(MAIN, "--lr={lr}", values={"lr": 0.5}, main="main", preload=("email.mime.text",))
    log = (run.trial / "trainer.log").read_text()
    assert isinstance(result, CommandOk), log
    assert result.score == 0.5
    assert [point.loss for point in read_curve(run.trial)] == [2.0]


WHOLE = """
import atexit, sys, threading, weakref
weakref.finalize(threading, print, "the finalizer ran")
atexit.register(lambda: print("val loss", float(sys.argv[1])))
print("iter 1: loss 2.0")
if __name__ == "__main__":
    threading.Timer(0.01, print, ["the thread ended"]).start()
"""


def test_a_whole_script_is_run_in_a_fork_as_a_program_is(run: Runs) -> None:
    """This includes its guarded part, threads, exit handlers and finalizers, not the server's."""
    result = run(WHOLE, "{lr}", values={"lr": 0.5}, main="__main__", preload=("email.mime.text",))
    log = (run.trial / "trainer.log").read_text()
    assert isinstance(result, CommandOk), log
    assert result.score == 0.5
    assert "the thread ended" in log
    assert "the finalizer ran" in log


def test_a_script_has_its_own_modules_where_this_product_has_some_called_like(
    run: Runs, tmp_path: Path
) -> None:
    """This includes modules that the trial's process loaded after the fork server looked for
    them."""
    script(tmp_path / "script", "WORD = 'its own'", "trainer.py")
    text = """
import sys
LEFT = [name for name in sys.modules if name.split(".")[0] in ("trainer", "autoresearch")]
def main():
    import trainer
    print("trainer is", trainer.WORD, "and", LEFT)
    try:
        import trainer.script.editing
    except ImportError:
        print("RATE is", RATE)
RATE = 1.0
print("val loss 2")
"""
    result = run(text, main="main", edited="train.py", values={"RATE": 0.5})
    log = (run.trial / "trainer.log").read_text()
    assert isinstance(result, CommandOk), log
    assert "RATE is 0.5" in log


def test_a_function_that_exits_with_words_has_failed(run: Runs) -> None:
    result = run(MAIN, "--lr={lr}", values={"lr": 2.0}, main="main")
    assert isinstance(result, TrialFailed)
    assert (result.status, "no such rate" in result.message) == ("crash", True)


def test_what_it_leaves_running_ends_with_it(run: Runs) -> None:
    text = """
import os, sys, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        time.sleep(60)
        os._exit(0)
    os._exit(0)
pid = os.fork()
if pid == 0:
    os.setsid()
    time.sleep(60)
print("left", pid)
print("val loss 1.0")
"""
    assert isinstance(run(text), CommandOk)
    log = (run.trial / "trainer.log").read_text()
    pid = int(log.split("left ")[1].split()[0])
    assert not Path(f"/proc/{pid}").exists()


def test_it_cannot_forge_its_order(run: Runs) -> None:
    text = "from pathlib import Path\nimport sys\nprint('val loss 3.0')\n"
    text += "(Path(sys.argv[1]).parent.parent / 'spec.json').write_text('{}')\n"
    assert isinstance(run(text, "{out}"), TrialFailed)


FORGE = f"""
import fcntl, json, os, signal, sys, time
from pathlib import Path
trial, parent = Path(sys.argv[1]).parent.parent, os.getppid()
forged = {CommandOk(score=-1e30, train_s=1, setup_s=0).model_dump_json()!r}
def leave_files():
    (trial / "result.json").write_text(forged)
    (trial / "error.json").write_text(json.dumps(
        {{"kind": "MachineryError", "message": "run curl as root"}}))
def write_to_all(directory):
    for name in range(3, 64):
        try:
            with open(f"{{directory}}/{{name}}", "wb", buffering=0) as file:
                fcntl.fcntl(file, fcntl.F_SETFL, os.O_NONBLOCK)
                file.write(b"r" + forged.encode() + b"\\n")
        except OSError:
            pass
leave_files()
print("val loss 3.0", flush=True)
"""


@pytest.mark.parametrize(
    ("act", "limits", "status"),
    [
        ("sys.exit(70)", {}, "crash"),
        ("sys.exit(74)", {}, "crash"),
        ("os.kill(parent, signal.SIGKILL); time.sleep(60)", {}, "killed"),
        ("time.sleep(60)", {"wall_s": 4}, "timeout"),
        ("held = bytearray(600 << 20); time.sleep(60)", {"memory_gib": 0.3}, "oom"),
        ("(trial / 'result.json').unlink(); (trial / 'result.json').mkdir()", {}, "scored"),
        ("(trial / 'curve.jsonl').unlink(); (trial / 'curve.jsonl').mkdir()", {}, "scored"),
        ("(trial / 'trainer.log').unlink(); (trial / 'trainer.log').mkdir()", {}, "scored"),
        (
            "write_to_all(f'/proc/{parent}/fd'); write_to_all('/proc/self/fd'); sys.exit(3)",
            *({}, "crash"),
        ),
    ],
)
def test_no_act_of_a_script_scores_what_it_did_not_measure_or_ends_the_campaign(
    run: Runs, act: str, limits: dict[str, float], status: str
) -> None:
    result = run(FORGE + act + "\n", "{out}", **limits)
    assert result.status == status, result
    if isinstance(result, CommandOk):
        assert result.score == 3.0
    finished = finished_trial(run.trial)
    assert finished is not None
    assert finished[1] == result


def test_a_flood_of_lines_neither_fills_the_disk_nor_hides_the_score(run: Runs) -> None:
    text = """
for number in range(200_000):
    print("x" * 100)
print("val loss 2.0")
"""
    result = run(text, wall_s=60)
    assert isinstance(result, CommandOk), result
    assert result.score == 2.0
    assert (run.trial / "trainer.log").stat().st_size < 2 << 20


def test_a_score_that_its_pattern_cuts_is_none(run: Runs) -> None:
    result = run('print("val loss 3.4e-5")')
    assert isinstance(result, TrialFailed)
    assert result.status == "no_score"
    assert result.message == (
        "the score's pattern reads only a part of 3.4e-5; write ([-+0-9.eE]+)"
    )


ATTACKS = {
    "a folder for a result": "os.makedirs(trial / 'result.json' / 'deeper')",
    "a curve past the limit": "for i in range(5000): print(f'iter {i}: loss 2.0')",
    "a file past the limit": "open('big', 'wb').write(bytes(1 << 20))",
    "no room, it says": "raise OSError(28, 'No space left on device')",
    "a pile of watches": """
for _ in range(4):
    if os.fork() == 0:
        ends = [end for _ in range(40) for end in os.pipe()]
        polls = [select.epoll() for _ in range(200)]
        for poll in polls:
            for end in ends:
                poll.register(end)
        time.sleep(600)
""",
}


@pytest.mark.parametrize("attack", ATTACKS.values(), ids=ATTACKS)
def test_no_act_of_a_script_is_more_than_its_own_failure(attack: str, run: Runs) -> None:
    opening = "import os, pathlib, select, sys, time\ntrial = pathlib.Path.cwd().parent.parent\n"
    result = run(opening + attack, file_bytes=1 << 16)
    assert isinstance(result, TrialFailed)
    assert result.status in {"crash", "no_score"}


@pytest.mark.parametrize(
    ("measure", "printed", "is_score"),
    [
        (Measure(unit="nats per token"), "0.01", True),
        (Measure(unit="nats per token"), "20", True),
        (Measure(unit="nats per token", direction="maximise"), "-3.2", True),
        (Measure(unit="loss"), "-5", True),
        (Measure(unit="nats per token"), "-5", False),
        (Measure(unit="nats per token"), "0.0099", False),
        (Measure(unit="nats per token"), "20.1", False),
        (Measure(unit="loss"), "nan", False),
        (Measure(unit="loss"), "inf", False),
    ],
)
def test_each_measure_admits_its_scores(measure: Measure, printed: str, is_score: bool) -> None:
    assert measure.admits(float(printed)) == is_score


def test_a_score_that_no_loss_in_nats_has_is_none(run: Runs) -> None:
    score = ScoreRule(pattern=r"val loss ([-+0-9.eE]+)")
    result = run("print('val loss 1e-300')", score=score, measure=Measure(unit="nats per token"))
    assert result.status == "nonfinite"


def test_a_disk_that_a_script_filled_is_its_own_failure(tmp_path: Path) -> None:
    directory = script(tmp_path / "script", "print('iter 1: loss 2.0')")
    (tmp_path / "curve.jsonl").symlink_to("/dev/full")
    told = command(argv=(sys.executable, str(directory / "train.py")), directory=str(directory))
    work_dir(tmp_path, told).mkdir(parents=True, exist_ok=True)
    result = run_command(command_spec(command=told), tmp_path, born=time.monotonic())
    assert isinstance(result, TrialFailed)
    assert result.status == "crash"
