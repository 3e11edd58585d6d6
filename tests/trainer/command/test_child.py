"""Commands run as trials: sandboxed, started by the executor and judged by their output."""

import sys
import time
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from autoresearch.errors import MachineryError
from tests.support.commands import command, command_spec, script
from tests.support.curves import left_by
from trainer.command.child import run_command
from trainer.command.workspace import work_dir
from trainer.executors.local import COMMAND_ENTRY, LocalExecutor
from trainer.isolation.command_process import CommandProcess
from trainer.isolation.kernel.sandbox import Layers
from trainer.isolation.outcome import finished_trial
from trainer.schema import CommandOk, Measure, PruneRule, ScoreRule, TrialFailed, TrialSpec

ENTRY = COMMAND_ENTRY
HERE = Layers.detect()
pytestmark = pytest.mark.skipif(HERE.landlock_abi < 3, reason="this kernel cannot confine a trial")
OF_SPEC = {"values", "seed", "budget", "prune", "wall_s", "memory_gib", "threads", "file_bytes"}


class Runs:
    """Runner of scripts as trials of one campaign."""

    def __init__(self, executor: LocalExecutor, tmp_path: Path) -> None:
        self._executor = executor
        self.place = tmp_path / "script"
        self.trial = tmp_path / "campaign" / "trials" / "t000001"

    def spec(self, text: str, *words: str, **changes: Any) -> TrialSpec:
        script(self.place, text)
        of_spec = {n: changes.pop(n) for n in list(changes) if n in OF_SPEC}
        argv = (sys.executable, "train.py", *words)
        told = command(**{"argv": argv, "directory": str(self.place), **changes})
        return command_spec(command=told, **of_spec)

    def __call__(self, text: str, *words: str, **changes: Any) -> CommandOk | TrialFailed:
        """Run the script; its directory stays as it is, and only its result is left."""
        spec = self.spec(text, *words, **changes)
        result = self._executor.run(spec, self.trial).result
        assert isinstance(result, CommandOk | TrialFailed)
        assert (self.place / "train.py").read_text() == text
        assert finished_trial(self.trial) == (spec, result)
        assert not (self.trial / "tmp").exists()
        return result

    def log(self) -> str:
        path = self.trial / "trainer.log"
        return path.read_text() if path.is_file() else ""


@pytest.fixture
def run(executor: LocalExecutor, tmp_path: Path) -> Runs:
    return Runs(executor, tmp_path)


def act(
    text: str, outcome: float | str, says: str = "", files: Any = (), **changes: Any
) -> tuple[Any, ...]:
    """Return a row: a script, its score or failure status, and a part of its log or message."""
    return text, outcome, says, dict(files), changes


def in_file(file: str, key: str) -> ScoreRule:
    return ScoreRule(file=file, key=key)


WRITES = "import json, sys\nout = sys.argv[1]\n"
MAIN = """
import sys
def main():
    lr = float(sys.argv[2])
    print("module loaded:", "email.mime.text" in sys.modules)
    if lr == 2:
        sys.exit("no such rate")
    print(f"val loss {lr}")
"""
WHOLE = """
import atexit, sys, threading, weakref
weakref.finalize(threading, print, "the finalizer ran")
atexit.register(lambda: print("val loss", float(sys.argv[2])))
if __name__ == "__main__":
    threading.Timer(0.01, print, ["the thread ended"]).start()
"""
ITS_OWN = """
import sys
LEFT = [name for name in sys.modules if name.split(".")[0] in ("trainer", "autoresearch")]
def main():
    import trainer
    assert trainer.WORD == "its own" and not LEFT
    try:
        import trainer.script.editing
    except ImportError:
        print("val loss", RATE)
RATE = 1.0
"""
HOLDS_OUTPUT = """
import subprocess, sys
subprocess.Popen([sys.executable, "-c", "import time; time.sleep(1e6)"])
print("val loss 1.0")
"""
SLOW = """
import time
for step in range(100):
    print(f"iter {step}: loss 9.0")
    time.sleep(0.01 if step < 30 else 10)
"""
FORGED = f"""
import fcntl, json, os, signal, sys, time
from pathlib import Path
trial, parent = Path(sys.argv[1]).parent.parent, os.getppid()
forged = {CommandOk(score=-1e30, train_s=1, setup_s=0).model_dump_json()!r}
def write_to_all(directory):
    for name in range(3, 64):
        try:
            with open(f"{{directory}}/{{name}}", "wb", buffering=0) as file:
                fcntl.fcntl(file, fcntl.F_SETFL, os.O_NONBLOCK)
                file.write(b"r" + forged.encode() + b"\\n")
        except OSError:
            pass
(trial / "result.json").write_text(forged)
(trial / "error.json").write_text(json.dumps({{"kind": "MachineryError", "message": "as root"}}))
print("val loss 3.0", flush=True)
"""
WATCHES = """
import os, select, time
for _ in range(4):
    if os.fork() == 0:
        ends = [end for _ in range(40) for end in os.pipe()]
        polls = [select.epoll() for _ in range(200)]
        for poll in polls:
            for end in ends:
                poll.register(end)
        time.sleep(600)
"""
IN_NATS = Measure(unit="nats per token")
EARLIER = '{"val": 1.0}'
WANDB = "import os\nprint('val loss', len(os.environ['WANDB_MODE']))"
EDITED = "lr = 0.5  # kept\nSEED = 1337\nprint('val loss', lr + SEED)\n"
ROWS = "[print(json.dumps({'l': x}), file=f) for f in [open('m.jsonl', 'w')] for x in (3, 2)]"
LOADED = {"values": {"lr": 0.5}, "preload": ("email.mime.text",)}
SMALL: dict[str, Any] = {"file_bytes": 1 << 16}
ACTS = {
    # what is a score
    "wandb is off": act(WANDB, 8),
    "unless the menu sets it": act(WANDB, 3, env=(("WANDB_MODE", "off"),)),
    "file": act(
        f"{WRITES}json.dump({{'val': {{'bpb': 1.5}}}}, open('r.json', 'w'))",
        outcome=1.5,
        score=in_file("r.json", "val.bpb"),
    ),
    "key with a dot": act(
        f"{WRITES}json.dump({{'a.b': 2}}, open(f'{{out}}/r.json', 'w'))",
        outcome=2.0,
        score=in_file("r.json", "a.b"),
    ),
    "lines": act(WRITES + ROWS, 2.0, score=in_file("m.jsonl", "l")),
    "table": act(
        "open('m.csv', 'w').write('step,l\\n1,3\\n2,2.5\\n3,\\n')",
        outcome=2.5,
        score=in_file("m.csv", "l"),
    ),
    "table with semicolons": act(
        "open('m.csv', 'w').write('step; l\\n1; 3\\n2; 2\\n')",
        outcome=2.0,
        score=in_file("m.csv", "l"),
    ),
    "file of another run": act(
        "print('I write nothing')",
        outcome="no_score",
        files={"r.json": EARLIER},
        score=in_file("r.json", "val"),
    ),
    "file behind a link": act(
        "import os; os.symlink('old', 'r.json')",
        outcome="no_score",
        files={"old": EARLIER},
        score=in_file("r.json", "val"),
    ),
    "part of a number": act('print("val loss 3.4e-5")', "no_score", "a part of 3.4e-5; write"),
    "less than any loss in nats": act(
        "print('val loss 1e-300')",
        outcome="nonfinite",
        score=ScoreRule(pattern=r"val loss ([-+0-9.eE]+)"),
        measure=IN_NATS,
    ),
    # ways to run it
    "edited": act(
        EDITED,
        outcome=7.25,
        values={"lr": 0.25},
        seed=7,
        edited="train.py",
        edits=(("SEED", "{seed}"),),
    ),
    "function in a fork": act(MAIN, 0.5, "module loaded: True", main="main", **LOADED),
    "exits with words": act(MAIN, "crash", "no such rate", main="main", values={"lr": 2.0}),
    "whole script in a fork": act(
        WHOLE, 0.5, "the thread ended\nval loss 0.5\nthe finalizer ran", main="__main__", **LOADED
    ),
    "module of a name of ours": act(
        ITS_OWN,
        outcome=0.5,
        files={"trainer.py": "WORD = 'its own'"},
        main="main",
        edited="train.py",
        values={"RATE": 0.5},
    ),
    "child that holds the output open": act(HOLDS_OUTPUT, 1.0),
    # ways to fail
    "exit code": act("import sys; print('why'); sys.exit(3)", "crash", "exit code 3: why"),
    "raises late": act("print('val loss 2.0'); raise ValueError('late')", "crash", "Error: late"),
    "raises in its working copy": act(
        "lr = 1\ndef f(): raise ValueError('late')\nf()",
        outcome="crash",
        says="train.py:2 in f",
        edited="train.py",
        values={"lr": 0.25},
    ),
    "raises in a fork": act(
        "def main(): raise ValueError('late')", "crash", "train.py:1 in main", main="main", **LOADED
    ),
    "raises in a module": act(
        "import beside", "crash", "beside.py:1 in <module>", files={"beside.py": "1 / 0"}
    ),
    "raises in a chunk of noise": act(
        "import sys\ntry: 1 / 0\nfinally: [print('x' * 99, file=sys.stderr) for _ in range(9999)]",
        outcome="crash",
        says="train.py:2 in <module>",
    ),
    "no score": act("print('nothing of note')", "no_score", "nothing of note"),
    "last score lost": act("print('val loss 2.0'); print('val loss nan')", "nonfinite", "was nan"),
    "loss lost": act("print('iter 7: loss nan')", "nonfinite", "lost at step 7"),
    "out of memory": act("raise MemoryError", "oom", "MemoryError"),
    "kills itself": act("import os; os.kill(os.getpid(), 9)", "killed", "signal 9"),
    "aborts": act("import os; os.kill(os.getpid(), 6)", "killed", "signal 6"),
    "futile": act(SLOW, "pruned", prune=PruneRule(at_step=20, window=5, max_loss=4.0)),
    # attacks on its result: it forges one as a file
    "forges, exits with 70": act(FORGED + "sys.exit(70)", "crash"),
    "forges, exits with 74": act(FORGED + "sys.exit(74)", "crash"),
    # In a world of its own the parent is the first process, which no signal from inside ends.
    "forges, kills its parent": act(
        FORGED + "os.kill(parent, signal.SIGKILL); time.sleep(1)", 3.0 if HERE.world else "crash"
    ),
    "forges, takes too long": act(FORGED + "time.sleep(60)", "timeout", wall_s=4),
    "forges, takes memory": act(
        FORGED + "held = bytearray(600 << 20); time.sleep(60)", "oom", memory_gib=0.3
    ),
    **{
        f"forges, makes {name} a folder": act(
            f"{FORGED}(trial / {name!r}).unlink(); (trial / {name!r}).mkdir()", 3.0
        )
        for name in ("result.json", "curve.jsonl", "trainer.log")
    },
    "forges through every descriptor": act(
        FORGED + "write_to_all(f'/proc/{parent}/fd'); write_to_all('/proc/self/fd'); sys.exit(3)",
        outcome="crash",
    ),
    # attacks that are no more than its own failure
    "full folder for a result": act(
        "import os, pathlib\nos.makedirs(pathlib.Path.cwd().parent.parent / 'result.json' / 'x')",
        outcome="no_score",
    ),
    "curve past the limit": act(
        "for i in range(5000): print(f'iter {i}: loss 2.0')", "crash", **SMALL
    ),
    "file past the limit": act("open('big', 'wb').write(bytes(1 << 20))", "crash", **SMALL),
    "full disk, it says": act("raise OSError(28, 'No space left on device')", "crash"),
    "pile of watches": act(WATCHES, "no_score"),
    "flood": act("print('x' * 100, *['x' * 100] * 200_000, 'val loss 2.0', sep='\\n')", 2.0),
}


@pytest.mark.parametrize(("text", "outcome", "says", "files", "changes"), ACTS.values(), ids=ACTS)
def test_a_script_scores_what_it_measured_or_fails_by_its_own_act(
    run: Runs, text: str, outcome: float | str, says: str, files: dict[str, str], changes: Any
) -> None:
    for name, content in files.items():
        script(run.place, content, name)
    result = run(text, "{out}", *(["{lr}"] if "lr" in changes.get("values", ()) else []), **changes)
    log = run.log()
    assert (result.score if isinstance(result, CommandOk) else result.status) == outcome, log
    assert says in (log if isinstance(result, CommandOk) else result.message)
    assert len(log) < 2 << 20


ATTACKS = {name: act for name, act in ACTS.items() if name.startswith("forges")}
ATTACKS["forges, kills its parent"] = act(
    FORGED + "os.kill(parent, signal.SIGKILL)", "crash", "PermissionError"
)


@pytest.mark.skipif(not HERE.world, reason="as above")
@pytest.mark.parametrize(
    ("text", "outcome", "says", "files", "changes"), ATTACKS.values(), ids=ATTACKS
)
def test_no_attack_forges_a_result_where_no_namespaces_can_be_had(
    without_namespaces: LocalExecutor,
    tmp_path: Path,
    text: str,
    outcome: float | str,
    says: str,
    files: dict[str, str],
    changes: Any,
) -> None:
    run = Runs(without_namespaces, tmp_path)
    test_a_script_scores_what_it_measured_or_fails_by_its_own_act(
        run, text, outcome, says, files, changes
    )


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
    assert not (run.place / "made.txt").exists()


def test_a_score_and_a_curve_are_those_it_prints(run: Runs) -> None:
    text = """
import sys
for step in range(0, 21, 5):
    print(f"iter {step}: loss {3 - step / 10:.4f}, time 1ms")
print("step 20: train loss 0.9, val loss", sys.argv[1])
"""
    measure = Measure(unit="accuracy", direction="maximise")
    result = run(text, "{lr}", values={"lr": 1.25}, measure=measure)
    assert isinstance(result, CommandOk), result
    assert (result.score, result.objective, result.steps) == (1.25, -1.25, 20)
    points = [(point.step, point.loss) for point in left_by(run.trial)]
    assert points == [(0, 3.0), (5, 2.5), (10, 2.0), (15, 1.5), (20, 1.0)]
    assert "time 1ms" in run.log()


@pytest.mark.parametrize("trial_id", ["t000001", "dry-start"])
@pytest.mark.parametrize(
    ("text", "status", "wall_s"),
    [
        ("raise ValueError('late')", "crash", 100),
        ("raise MemoryError", "oom", 100),
        ("print(1)", "no_score", 100),
        ("import time; time.sleep(100)", "timeout", 2),
        ("import os; os.kill(os.getpid(), 9)", "killed", 100),
    ],
)
def test_a_failure_names_the_log_that_its_campaign_keeps(
    run: Runs, executor: LocalExecutor, trial_id: str, text: str, status: str, wall_s: float
) -> None:
    spec = run.spec(text, wall_s=wall_s).model_copy(update={"trial_id": trial_id})
    result = executor.run(spec, run.trial).result
    assert isinstance(result, TrialFailed)
    assert result.status == status
    assert ("trials/t000001/trainer.log" in result.message) == (trial_id == "t000001")


def test_a_program_that_is_not_there_is_no_evidence(run: Runs, executor: LocalExecutor) -> None:
    spec = run.spec("", argv=("/nonexistent/program",))
    with pytest.raises(MachineryError):
        executor.run(spec, run.trial)
    assert finished_trial(run.trial) is None


def test_its_directory_is_read_and_its_own_place_written(run: Runs, tmp_path: Path) -> None:
    place = run.place
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
        # What is closed is empty in a world of its own, and elsewhere refused.
        got = Path(name).read_text() if closed else not Path(name).write_text("")
        print("got" if got else "refused", name)
    except OSError as error:
        print("refused", name)
print("val loss 1.0")
""".replace("PLACE", repr(str(place)))
    result = run(text)
    log = run.log()
    assert isinstance(result, CommandOk), log
    assert "data 17 3" in log
    assert "names ['data', 'sibling.py', 'train.py']" in log
    assert "got" not in log
    assert log.count("refused") == 5


def test_a_checkout_shows_its_campaign_to_no_trial(executor: LocalExecutor, tmp_path: Path) -> None:
    place = script(tmp_path / "checkout", "import os; print(os.listdir('.')); open('runs')")
    trial = place / "runs" / "mine" / "trials" / "t000001"
    script(place / "runs" / "mine", "rows", "trajectory.jsonl")
    told = command(argv=(sys.executable, "train.py"), directory=str(place))
    result = executor.run(command_spec(command=told), trial).result
    assert isinstance(result, TrialFailed)
    assert "['train.py']" in (trial / "trainer.log").read_text()


@pytest.mark.parametrize("edited", [None, "deep/src/train.py"])
def test_a_script_in_a_folder_finds_what_is_above_it(run: Runs, edited: str | None) -> None:
    place = run.place
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


@pytest.mark.parametrize(
    ("measure", "admitted", "refused"),
    [
        (IN_NATS, ("0.01", "20"), ("-5", "0.0099", "20.1")),
        (Measure(unit="nats per token", direction="maximise"), ("-3.2",), ()),
        (Measure(unit="loss"), ("-5",), ("nan", "inf")),
        (Measure(unit="loss", low=0), ("0", "7"), ("-0.1",)),
        (Measure(unit="accuracy", direction="maximise", low=0, high=1), ("0", "1"), ("-1", "1.1")),
    ],
)
def test_each_measure_admits_its_scores(
    measure: Measure, admitted: tuple[str, ...], refused: tuple[str, ...]
) -> None:
    found = {text for text in (*admitted, *refused) if measure.admits(float(text))}
    assert found == set(admitted)


def test_a_disk_that_a_script_filled_is_its_own_failure(tmp_path: Path) -> None:
    directory = script(tmp_path / "script", "print('iter 1: loss 2.0')")
    (tmp_path / "curve.jsonl").symlink_to("/dev/full")
    told = command(argv=(sys.executable, str(directory / "train.py")), directory=str(directory))
    work_dir(tmp_path, told).mkdir(parents=True, exist_ok=True)
    start = partial(CommandProcess, has_world=False, confine=lambda: None)
    spec = command_spec(command=told)
    result = run_command(spec, tmp_path, born=time.monotonic(), start=start)
    assert result.status == "crash"
