"""The restart loop and the signals work under the real torchrun with a trainer that is killed."""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from funnel.plan.bundle import write_bundle
from funnel.plan.handoff_files import handoff_files
from tests.funnel.plan.test_handoff_files import Node
from tests.support.plans import plan_of
from tests.support.waiting import wait_until

TRAINER = '''
"""Short steps; rank 0 saves every fifth one, and at SIGTERM after one more."""
import os, pathlib, signal, sys, time

told = False


def remember(*_):
    global told
    told = True


signal.signal(signal.SIGTERM, remember)
home = pathlib.Path(os.environ["HOME"])
places = sys.argv[sys.argv.index("--save") + 1]
tracker = pathlib.Path(places, "latest_checkpointed_iteration.txt")
rank = os.environ["RANK"]
step = int(tracker.read_text()) if tracker.exists() else 0
last = int(os.environ["STAND_IN_STEPS"])
(home / f"pid.{rank}").write_text(str(os.getpid()))
with open(home / "starts", "a") as starts:
    starts.write(f"{rank} {step}\\n")


def save():
    if rank == "0":
        part = tracker.with_suffix(".part")
        part.write_text(str(step))
        part.rename(tracker)


while step < last:
    time.sleep(float(os.environ.get("STAND_IN_STEP_S", "0.05")))
    step += 1
    print(f" iteration {step}/ {last} | lm loss: 1.0 |", flush=True)
    if step == int(os.environ.get("STAND_IN_CRASH", "0")):
        sys.exit(7)
    if told:
        time.sleep(float(os.environ.get("STAND_IN_SAVE_S", "0")))
        save()
        sys.exit(0)
    if step % 5 == 0:
        save()
save()
'''


@pytest.fixture(scope="module")
def bundle(stressed: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write a plan for two GPUs with a run of 300 steps; return its folder."""
    out = tmp_path_factory.mktemp("plan") / "handoff"
    files = dict(handoff_files(plan_of(stressed, "llama-1b", gpus=2, mfu=None, batch=16), out))
    script = files["launch_megatron.sh"].decode()
    shorter, count = re.subn(r"--train-iters \d+", "--train-iters 300", script)
    assert count == 1
    write_bundle(out, files | {"launch_megatron.sh": shorter.encode()})
    return out


class Job:
    """One started script, with its checkpoints and its output."""

    def __init__(self, home: Path, bundle: Path) -> None:
        self.home, self.bundle = home, bundle
        self.checkpoints = home / "checkpoints"
        self.environment = Node(home).environment | {
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "MASTER_PORT": str(20_000 + os.getpid() % 20_000),
            "STAND_IN_STEPS": "300",
            "FIRST_WAIT": "0",
            "OMP_NUM_THREADS": "1",
        }
        (home / "Megatron-LM/pretrain_gpt.py").write_text(TRAINER)
        self.process: subprocess.Popen[str] | None = None

    def start(self, script: str = "run.sh", **more: str) -> subprocess.Popen[str]:
        self.process = subprocess.Popen(
            [self.bundle / script],
            cwd=self.home,
            env=self.environment | more,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        return self.process

    def ended(self) -> tuple[int, str]:
        assert self.process is not None
        _, said = self.process.communicate()
        return self.process.returncode, said

    def step(self) -> int:
        path = self.checkpoints / "latest_checkpointed_iteration.txt"
        return int(path.read_text()) if path.exists() else 0

    def starts(self) -> list[int]:
        """Return the steps that rank 0 started from."""
        path = self.home / "starts"
        lines = path.read_text().splitlines() if path.exists() else []
        return [int(line.split()[1]) for line in lines if line.startswith("0 ")]

    def worker(self, rank: int) -> int:
        return int((self.home / f"pid.{rank}").read_text())


@pytest.fixture
def job(tmp_path: Path, bundle: Path) -> Iterator[Job]:
    made = Job(tmp_path, bundle)
    yield made
    if made.process is not None and made.process.poll() is None:
        os.killpg(made.process.pid, signal.SIGKILL)
        made.process.communicate()


@pytest.mark.slow
def test_after_a_killed_worker_it_goes_on_from_the_latest_checkpoint(job: Job) -> None:
    job.start(STAND_IN_STEP_S="0.02")
    wait_until(lambda: job.step() >= 10)
    os.kill(job.worker(1), signal.SIGKILL)
    code, said = job.ended()
    assert code == 0, said
    assert job.step() == 300
    first, second = job.starts()
    assert first == 0
    assert second >= 10
    assert "done: step 300 of 300" in said


@pytest.mark.slow
def test_at_a_signal_a_checkpoint_is_saved_and_the_next_run_goes_on(job: Job) -> None:
    """A save takes two seconds, and the step is no multiple of five. The script signals the workers
    and waits for them."""
    process = job.start(STAND_IN_SAVE_S="2")
    wait_until(lambda: job.step() >= 10)
    process.send_signal(signal.SIGUSR1)
    code, said = job.ended()
    assert code == 75, said
    stopped = job.step()
    assert 10 < stopped < 300
    assert f"stopped with step {stopped} of 300 saved" in said
    for rank in range(2):
        with pytest.raises(ProcessLookupError):
            os.kill(job.worker(rank), 0)
    job.start(STAND_IN_STEP_S="0.005")
    assert job.ended()[0] == 0
    assert job.starts() == [0, stopped]


@pytest.mark.slow
def test_a_notice_that_the_machine_is_taken_back_is_a_signal(job: Job) -> None:
    notice = job.home / "notice"
    job.start(NOTICE_COMMAND=f"test -e {notice}", NOTICE_EVERY="0.1")
    wait_until(lambda: job.step() >= 5)
    notice.touch()
    code, said = job.ended()
    assert code == 75, said
    assert 5 <= job.step() < 300


@pytest.mark.slow
def test_a_run_that_gets_no_further_is_given_up(job: Job) -> None:
    """The run crashes whenever it reaches step 8. The first start saves step 5, the others save
    nothing."""
    job.start(STAND_IN_CRASH="8", MOST_FAILURES="2")
    code, said = job.ended()
    assert code == 1, said
    assert "gave up: 2 starts in a row saved nothing after step 5" in said
    assert job.starts() == [0, 5, 5]


def test_what_the_launch_script_refuses_is_not_tried_again(job: Job) -> None:
    job.start(PRECISION="fp4")
    code, said = job.ended()
    assert code == 2
    assert said.count("starting from") == 1
