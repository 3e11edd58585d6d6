"""Provide a campaign small enough for a test: a menu, a corpus, and the installed command."""

import json
import os
import random
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, Self

from filelock import FileLock

from tests.support.in_process import STARTED, run_here
from tests.support.programs import finished

COMMAND = Path(sys.executable).with_name("autoresearch")

MENU = """
name = "toy"
doc = "Trains in a fraction of a second; for tests."

[campaign]
budget = "6 steps"
horizon_steps = 100
corpus = "{corpus}"
tokenizer = "bytes"
heldout_bytes = 2000
threads = 1

[knobs.lr]
type = "float"
low = 1e-4
high = 1e-1
scale = "log"
default = 1e-3
doc = "Peak learning rate."

[knobs.d_ff]
type = "int"
choices = [32, 64, 96, 128]
default = 64
doc = "Hidden width of the feed-forward block."

[knobs.n_layer]
type = "int"
low = 1
high = 3
default = 1
doc = "Blocks."

[knobs.norm]
type = "choice"
choices = ["layernorm", "rmsnorm"]
default = "layernorm"
doc = "Normalisation."

[knobs.activation]
type = "choice"
choices = ["gelu", "swiglu"]
default = "gelu"
doc = "Non-linearity."

[knobs.beta2]
type = "float"
low = 0.8
high = 0.999
default = 0.95
doc = "AdamW's second beta."

[constants]
d_model = 32
n_head = 2
positions = "learned"
tie_embeddings = true
lr_warmup = 1
lr_min_ratio = 0.1
grad_clip = 1.0
weight_decay = 0.0
beta1 = 0.9
batch_size = 4
seq_len = 32
precision = "fp32"

[[constraints]]
expr = "lr_warmup <= budget_steps - 5"
doc = "warm-up leaves at least five steps"
"""

WORDS = "the loop proposes a change and trains a small model to see what it is worth".split()


def installed(
    *words: object, home: Path | None = None, **environment: str
) -> subprocess.CompletedProcess[str]:
    """Run the command in this process, and return what it printed and its exit code.

    With ``home`` it runs there, in an environment of its own.
    """
    clean = {"PATH": os.environ["PATH"], "HOME": str(home)} if home else dict(os.environ)
    return run_here(tuple(map(str, words)), home or Path.cwd(), clean | environment)


def write_text_corpus(folder: Path, documents: int = 60) -> Path:
    """Write a folder of small text files, the same ones every time."""
    rng = random.Random(0)
    folder.mkdir(parents=True, exist_ok=True)
    for number in range(documents):
        text = "\n".join(" ".join(rng.choices(WORDS, k=9)) for _ in range(20))
        (folder / f"{number:03d}.txt").write_text(f"document {number}\n{text}\n")
    return folder


@contextmanager
def killed_after(running: subprocess.Popen[str]) -> Iterator[subprocess.Popen[str]]:
    """Leave nothing of a started command to the next test, however this one ends."""
    with running:
        try:
            yield running
        finally:
            running.kill()


def environment_of(home: Path) -> dict[str, str]:
    """Return the environment of a person with this home."""
    return {
        "PATH": os.environ["PATH"],
        "HOME": str(home),
        "AUTORESEARCH_DATA_DIR": str(home / "data"),
        **{name: os.environ[name] for name in os.environ if name.startswith("RAY_AUTH_")},
    }


def run_command(
    words: tuple[str, ...], cwd: Path, environment: dict[str, str]
) -> subprocess.CompletedProcess[str]:
    """Run the command, in a process of its own if it starts trials."""
    if words[0] not in STARTED:
        return run_here(words, cwd, environment)
    return finished(COMMAND, *words, cwd=cwd, env=environment)


class Toy:
    """Hold a directory with a menu and a corpus, in which the installed command runs."""

    def __init__(self, home: Path) -> None:
        self.home = home
        corpus = write_text_corpus(home / "text")
        self.menu = home / "toy.toml"
        self.menu.write_text(MENU.format(corpus=corpus.name))
        self.campaign = home / "runs" / "toy"
        self.environment = environment_of(home)

    def arguments(self, iters: int, *more: str) -> list[str]:
        return [
            str(COMMAND),
            "loop",
            f"--iters={iters}",
            f"--menu={self.menu}",
            f"--campaign={self.campaign}",
            "--baseline-seeds=2",
            "--set=max_runs=2",
            "--no-confirm",  # tests of the confirmation pass --confirm
            *more,
        ]

    def loop(self, iters: int, *more: str) -> subprocess.CompletedProcess[str]:
        return self.run(*self.arguments(iters, *more)[1:])

    def begun(self, iters: int) -> Self:
        """Copy into this directory the default menu's campaign after this many iterations.

        Each length is made once, for every worker of the test run.
        """
        shared = Path(os.environ["TOY_CAMPAIGNS"])
        with FileLock(shared / "lock"):
            made = Toy(shared / "made")
            if not (shared / f"{iters}").exists():
                before = max((n for n in range(iters) if (shared / f"{n}").exists()), default=None)
                shutil.rmtree(made.home / "runs", ignore_errors=True)
                if before is not None:
                    shutil.copytree(shared / f"{before}", made.home / "runs")
                done = made.loop(iters)
                assert done.returncode == 0, done.stderr
                shutil.copytree(made.home / "runs", shared / f"{iters}")
        shutil.copytree(shared / f"{iters}", self.home / "runs")
        shutil.copytree(made.home / "data", self.home / "data")
        (self.campaign / "history.sqlite").unlink()  # it holds paths, and is made again
        old, new = (str(home).encode() for home in (made.home, self.home))
        for path in self.campaign.rglob("*"):
            if path.is_file() and old in (text := path.read_bytes()):
                path.write_bytes(text.replace(old, new))
        return self

    def start(self, iters: int, *more: str) -> subprocess.Popen[str]:
        return self.started(*self.arguments(iters, *more)[1:])

    def start_night(self, *more: str) -> tuple[subprocess.Popen[str], Path]:
        """Start a loop that only a signal ends; return it, and the file of what it says.

        A pipe that nobody reads would stop it after some hundred iterations.
        """
        said = self.home / "night.txt"
        with said.open("w") as file:
            return self.started(*self.arguments(10_000, *more)[1:], into=file), said

    def started(self, *words: str, into: int | IO[str] = subprocess.PIPE) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [str(COMMAND), *words],
            cwd=self.home,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stdout=into,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return run_command(arguments, self.home, self.environment)

    def answer(self, *arguments: str) -> Any:
        """Return what a command that succeeds prints with ``--json``."""
        done = self.run(*arguments, "--json")
        assert done.returncode == 0, done.stdout + done.stderr
        return json.loads(done.stdout)

    def rows(self, kind: str | None = None) -> list[dict[str, Any]]:
        """Return the journal's whole rows; a loop may be writing one, or have written none yet."""
        journal = self.campaign / "trajectory.jsonl"
        text = journal.read_text("utf-8") if journal.exists() else ""
        rows = [json.loads(line) for line in text.splitlines(keepends=True) if line.endswith("\n")]
        return [row for row in rows if kind in (None, row["kind"])]

    def iterations(self) -> list[dict[str, Any]]:
        return self.rows("iteration")
