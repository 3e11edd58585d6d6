"""Run user's scripts on a GPU through the installed commands: ``python -m bench.gpu --own``.

Each part drafts a menu from a script of ``bench/own`` with ``menu from-script`` and trains it with
``loop --menu``, started as people start it: a plain script, a shell script, torchrun, workers. A
part has a timeout, and prints its figures as soon as it ends. Parts that the time limit leaves no
room for are listed. ``--rehearse`` runs all of them with tiny sizes on the CPU.
"""

import importlib.util
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from typing import Any

from autoresearch.layout import JOURNAL_FILE
from bench.gpu_loop import COMMAND, agent_lacks

SCRIPTS = Path(__file__).with_name("own")
LEAST_S = 15.0
"""A part is not started with less time."""
_LEFT_AFTER_S = 5.0
"""Seconds that a part has to end after it was asked to."""
SHORT = ("--iters", "0", "--baseline-seeds", "2")
"""Two trials of the defaults."""


@dataclass(frozen=True, slots=True)
class Part:
    """One way to start a script."""

    name: str
    script: str
    timeout_s: float
    given: tuple[str, ...] = ()
    """Arguments of the script by hand, which become the menu's defaults."""
    tiny: tuple[str, ...] = ()
    """More of them in a rehearsal."""
    start: tuple[str, ...] = ()
    """Words that replace ``python SCRIPT`` in the menu's command; empty: as drafted."""
    loop: tuple[str, ...] = SHORT
    campaign: str = ""
    """The earlier part whose campaign it resumes; empty: a campaign of its own."""
    needs: str = ""
    """A module that must be installed."""


GPT_TINY = tuple(
    f"--{name}={value}"
    for name, value in {
        "n_layer": 1, "n_head": 2, "n_embd": 16, "block_size": 16, "batch_size": 4
    }.items()
)  # fmt: skip
LOADER_TINY = ("--examples=512", "--hidden=32")


def parts(device: str) -> tuple[Part, ...]:
    """Return all parts, the most important first."""
    kind = device.partition(":")[0]
    torchrun = ("torchrun", "--standalone", "--nproc-per-node=2", "train_ddp.py")
    accelerate = ("accelerate", "launch", "--num_processes=1", "train_gpt.py")
    in_spawned = ("--start_method=spawn", f"--worker_device={kind}")
    return (
        Part("gpt", "train_gpt.py", 90, tiny=GPT_TINY),
        Part("loader", "train_loader.py", 60, tiny=LOADER_TINY),
        Part("out of memory", "train_oom.py", 45),
        Part("bash run.sh", "train_gpt.py", 60, tiny=GPT_TINY, start=("bash", "run.sh")),
        Part("loader, torch.compile", "train_loader.py", 90, ("--compile",), LOADER_TINY),
        Part("torchrun", "train_ddp.py", 60, start=torchrun),
        Part(
            "ten iterations", "train_gpt.py", 180, tiny=GPT_TINY, campaign="gpt",
            loop=("--iters", "10"),
        ),
        Part("workers on the device", "train_loader.py", 60, in_spawned, LOADER_TINY),
        Part(
            "accelerate launch", "train_gpt.py", 60, tiny=GPT_TINY, start=accelerate,
            needs="accelerate",
        ),
        Part(
            "two lanes", "train_gpt.py", 90, tiny=GPT_TINY,
            loop=(*SHORT, "--lanes", "2"),
        ),
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Outcome:
    """The end and the trials of a part."""

    name: str
    code: int | None
    """Exit status; None: it was stopped at its timeout, or not started."""
    wall_s: float
    trials: tuple[dict[str, Any], ...] = ()
    """The trials of its journal that it added, as JSON."""
    said: str = ""
    """Reason why it was not run, or its last line if it failed."""

    @property
    def cells(self) -> tuple[str, ...]:
        """Return its line of the table."""
        results = [trial["result"] for trial in self.trials]
        walls_s = [trial["wall_s"] for trial in self.trials]
        statuses = Counter(result["status"] for result in results)
        failed = next((one["message"] for one in results if "message" in one), "")
        return (
            self.name,
            {None: "–", 0: "ok"}.get(self.code, f"exit {self.code}"),
            f"{self.wall_s:.0f}",
            ", ".join(f"{count} {status}" for status, count in statuses.items()) or "none",
            f"{walls_s[0]:.1f}" if walls_s else "",
            f"{median(walls_s[1:]):.1f}" if len(walls_s) > 1 else "",
            _most(results, "peak_gpu_mem_gib", 2),
            _most(results, "gpu_util_pct", 0),
            " ".join((failed or self.said).split())[:160],
        )


HEAD = (
    "part", "end", "s", "trials", "first trial s", "later s", "GPU GiB", "GPU %", "message"
)  # fmt: skip


def _most(results: Sequence[dict[str, Any]], name: str, digits: int) -> str:
    known = [result[name] for result in results if result.get(name) is not None]
    return f"{max(known):.{digits}f}" if known else ""


def run_own(
    out: Path, device: str, limit_s: float, *, rehearse: bool, asked: Sequence[Part] | None = None
) -> int:
    """Run every part; return 0 if at least one trial of the first part was scored.

    :param asked: the parts; None: all.
    """
    why = agent_lacks()
    if why:
        sys.stderr.write(f"error: --own needs the whole product: {why}; pip install '.[train]'\n")
        return 1
    began_s = time.monotonic()
    device = "cpu" if rehearse else device
    place = out.absolute() / f"own-{datetime.now(UTC):%Y%m%d-%H%M%S}"
    place.mkdir(parents=True)
    outcomes: list[Outcome] = []
    for part in parts(device) if asked is None else asked:
        left_s = limit_s - (time.monotonic() - began_s)
        found = _run(part, place, device, left_s, rehearse=rehearse)
        outcomes.append(found)
        pairs = zip(HEAD[1:], found.cells[1:], strict=True)
        figures = ", ".join(f"{name} {cell}" for name, cell in pairs if cell)
        print(f"[{time.monotonic() - began_s:5.0f} s] {part.name}: {figures}", flush=True)
    top = [*COMMAND, "top", "--campaign", str(place / "runs" / "gpt")]
    subprocess.run(top, check=False, timeout=60, env=_environment())
    lines = [HEAD, ("---",) * len(HEAD), *(one.cells for one in outcomes)]
    table = "\n".join("| " + " | ".join(cells) + " |" for cells in lines)
    title = f"## Own scripts on {device}{', a rehearsal' if rehearse else ''}"
    (place / "figures.md").write_text(f"{title}\n\n{table}\n", "utf-8")
    print(f"\n{table}\n\nkept in {place}")
    return 0 if any(one["result"]["status"] == "scored" for one in outcomes[0].trials) else 1


def _run(part: Part, place: Path, device: str, left_s: float, *, rehearse: bool) -> Outcome:
    """Draft the part's menu and train it."""
    if left_s < LEAST_S:
        return Outcome(part.name, None, 0.0, said=f"not run: {left_s:.0f} s are left")
    if part.needs and importlib.util.find_spec(part.needs) is None:
        return Outcome(part.name, None, 0.0, said=f"not run: {part.needs} is not installed")
    began_s = time.monotonic()
    give_up_s = began_s + min(part.timeout_s, left_s)
    name = part.campaign or part.name.replace(" ", "-").replace(",", "")
    folder, campaign = place / "scripts" / name, place / "runs" / name
    log = place / f"{part.name.replace(' ', '-')}.log"
    menu = folder / "menu.toml"
    before = len(_trials(campaign))
    code: int | None = 0
    if not part.campaign:
        shutil.copytree(SCRIPTS, folder, ignore=shutil.ignore_patterns("__pycache__"))
        given = [*part.given, *(part.tiny if rehearse else ())]
        draft = ["menu", "from-script", part.script, "-o", "menu.toml", "--no-dry-start"]
        code = _attended([*draft, "--", *given], folder, log, give_up_s)
        if code == 0 and part.start:
            _start_by(menu, part.script, part.start)
    if code == 0:
        where = ["--menu", str(menu), "--campaign", str(campaign), "--device", device]
        always = ["--no-confirm", "--allow-unsandboxed", "--proposer", "random"]
        budget = [] if "{steps}" not in menu.read_text("utf-8") else ["--budget", "20 steps"]
        asked = ["loop", *where, *always, *(budget if rehearse else ()), *part.loop]
        code = _attended(asked, folder, log, give_up_s)
    said = "stopped at its timeout: " if code is None else ""
    last = (log.read_text("utf-8", "replace").strip().splitlines() or [""])[-1]
    wall_s = time.monotonic() - began_s
    trials = tuple(_trials(campaign)[before:])
    return Outcome(part.name, code, wall_s, trials, said=f"{said}{last}" if code != 0 else "")


def _start_by(menu: Path, script: str, start: Sequence[str]) -> None:
    """Replace the first words of a drafted command, Python and the script, so that each trial is a
    new program."""
    drafted = rf'(?m)^(command = "+\n?)\S*python\S* {re.escape(script)}(?!\S)'
    words = shlex.join(start)
    text, replaced = re.subn(
        drafted, lambda found: found[1] + words, menu.read_text("utf-8"), count=1
    )
    assert replaced, f"{menu} begins its command in another way"
    menu.write_text(re.sub(r"(?m)^(main|preload) = .*\n", "", text), "utf-8")


def _attended(arguments: Sequence[str], folder: Path, log: Path, give_up_s: float) -> int | None:
    """Run one of the product's commands, its output in ``log``; return its exit status, or None if
    it was stopped at ``give_up_s``."""
    with log.open("ab") as file:
        process = subprocess.Popen(
            [*COMMAND, *arguments],
            cwd=folder,
            env=_environment(),
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        return process.wait(max(0.0, give_up_s - time.monotonic()))
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGINT)
        try:
            process.wait(_LEFT_AFTER_S)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        return None


def _environment() -> dict[str, str]:
    """Return an environment in which a menu's ``python`` and ``torchrun`` are this Python's."""
    beside = str(Path(sys.executable).parent)
    root = str(Path(__file__).parents[1])
    paths = {"PATH": beside, "PYTHONPATH": root}
    added = {
        name: os.pathsep.join(filter(None, (path, os.environ.get(name))))
        for name, path in paths.items()
    }
    return {**os.environ, **added, "COLUMNS": "300"}  # or sentences are cut into lines


def _trials(campaign: Path) -> list[dict[str, Any]]:
    """Return the trials of a campaign's journal, in its order."""
    path = campaign / JOURNAL_FILE
    if not path.is_file():
        return []
    rows = [json.loads(line) for line in path.read_text("utf-8").splitlines()]
    return [trial for row in rows for trial in (*row.get("trials", ()), row.get("trial")) if trial]
