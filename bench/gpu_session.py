"""One session with a GPU: the plan, the time limit, the laps, and the saved results."""

import os
import platform
import time
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from autoresearch.errors import MachineryError
from autoresearch.layout import TELEMETRY_FILE
from bench.figure import MARKDOWN_HEAD, Figure, markdown_rows
from bench.gpu_figures import figures, standings, table
from bench.gpu_race import Candidate, DidNotRun, Lap, Task, candidates
from trainer.corpus import prepare
from trainer.executors.base import Executor
from trainer.executors.local import LocalExecutor
from trainer.machine.ceiling import Ceiling, measure_ceiling
from trainer.schema import Config, make_config
from trainer.telemetry import Sampler, choose_telemetry

ROOT = Path(__file__).parents[1]
MENU = ROOT / "agent" / "menu" / "shipped" / "spark-354m.toml"
GUESS_S = 60.0
"""Estimated time of a first lap: importing, compiling, training, scoring."""


@dataclass(frozen=True, slots=True)
class Plan:
    """The settings of a measurement."""

    config: Config
    device: str
    steps: int
    tokenizer: str
    heldout_bytes: int
    rounds: int
    ceiling_sizes: tuple[int, ...] = ()
    """Sizes of the products that measure the ceiling; empty: the default sizes."""
    guess_s: float = GUESS_S

    @property
    def is_rehearsal(self) -> bool:
        """Return whether it runs on a CPU, so that its figures say nothing about a GPU."""
        return self.device == "cpu"


def gpu_plan(device: str, rounds: int) -> Plan:
    """Return a plan of the menu's defaults in bf16, on its own corpus."""
    menu = tomllib.loads(MENU.read_text("utf-8"))
    knobs = {name: knob["default"] for name, knob in menu["knobs"].items()}
    values = {**menu["constants"], **knobs, "precision": "bf16"}
    campaign = menu["campaign"]
    return Plan(
        config=make_config(values),
        device=device,
        steps=60,
        tokenizer=campaign["tokenizer"],
        heldout_bytes=campaign["heldout_bytes"],
        rounds=rounds,
    )


def cpu_plan(rounds: int) -> Plan:
    """Return a plan that runs the same code in under a minute, without a GPU."""
    tiny = {"n_layer": 2, "n_head": 2, "d_model": 32, "d_ff": 64, "batch_size": 4, "seq_len": 32}
    return Plan(
        config=make_config({**gpu_plan("cpu", rounds).config.model_dump(), **tiny}),
        device="cpu",
        steps=6,
        tokenizer="bytes",
        heldout_bytes=4096,
        rounds=min(rounds, 1),
        ceiling_sizes=(64, 128),
        guess_s=10,
    )


class Session:
    """A measurement of a plan within a time limit, which prints its progress and saves its results.

    ``laps.jsonl``, ``telemetry.csv``, ``figures.md`` and the trials stay in a separate folder.
    """

    def __init__(self, plan: Plan, out: Path, limit_s: float) -> None:
        """:raises MachineryError: if the folder cannot be created."""
        self._plan = plan
        self._began_s = time.monotonic()
        self._limit_s = limit_s
        self._out = out / f"{datetime.now(UTC):%Y%m%d-%H%M%S}"
        try:
            self._out.mkdir(parents=True)
        except OSError as error:
            raise MachineryError(
                f"cannot make {self._out} ({error.strerror}); choose another folder with --out"
            ) from error
        self.laps: list[Lap] = []
        self.not_run: dict[str, str] = {}
        self.figures: list[Figure] = []

    def run(self) -> None:
        """Measure everything, the most important first.

        :raises AutoresearchError: if the machine cannot measure at all.
        """
        plan = self._plan
        telemetry = choose_telemetry(
            plan.device,
            visible_devices=os.environ.get("CUDA_VISIBLE_DEVICES"),
            device_order=os.environ.get("CUDA_DEVICE_ORDER"),
        )
        self._say(f"telemetry {telemetry.description}")
        with Sampler(telemetry, self._out / TELEMETRY_FILE, on_note=self._say) as sampler:
            self._say("measuring the ceiling")
            ceiling = measure_ceiling(plan.device, "bf16", sizes=plan.ceiling_sizes)
            self._say("preparing the corpus")
            task = self._task()
            self._race(task)
            seen = sampler.summary(usd_per_kwh=0)
        self._conclude(task, ceiling, seen.lines() if seen.samples else ())

    def append_to(self, results: Path) -> None:
        """Append the figures to a results file."""
        with results.open("a", encoding="utf-8") as file:
            file.write((self._out / "figures.md").read_text("utf-8"))

    # --- laps -----------------------------------------------------------------------------------

    def _task(self) -> Task:
        plan = self._plan
        corpus = prepare(
            ["stdlib"],
            cache_dir=self._out.parent / "corpora",
            tokenizer=plan.tokenizer,
            heldout_bytes=plan.heldout_bytes,
        )
        return Task(plan.config, corpus, plan.device, plan.steps, self._out.absolute())

    def _race(self, task: Task) -> None:
        """Run a cold lap of the judged candidates, then rounds of all in alternating order."""
        everyone = candidates()
        with LocalExecutor(allow_unsandboxed=True) as warm:
            self._say(f"trials: {warm.describe()}")
            for candidate in everyone:
                if candidate.is_judged:
                    self._lap(task, candidate, None)
            for number in range(self._plan.rounds):
                for candidate in everyone if number % 2 == 0 else reversed(everyone):
                    self._lap(task, candidate, warm)

    def _lap(self, task: Task, candidate: Candidate, executor: Executor | None) -> None:
        """Run one more lap, if there is time and the candidate can run."""
        if candidate.name in self.not_run:
            return
        before = [lap.wall_s for lap in self.laps if lap.candidate == candidate.name]
        expected_s = before[-1] if before else self._plan.guess_s
        if expected_s > self._left_s:
            if not before:
                self.not_run[candidate.name] = (
                    f"a lap takes perhaps {expected_s:.0f} s and {self._left_s:.0f} s of "
                    f"{self._limit_s:.0f} s were left"
                )
            self._say(f"{candidate.name}: skipped, {self._left_s:.0f} s are left")
            return
        number = len(self.laps) + len(self.not_run)
        try:
            lap = candidate.lap(task, executor, number, wall_s=max(1.0, self._left_s))
        except DidNotRun as reason:
            why = f"after {len(before)} laps: {reason}" if before else str(reason)
            self.not_run[candidate.name] = why
            self._say(f"{candidate.name}: not run: {why}")
            return
        self.laps.append(lap)
        with (self._out / "laps.jsonl").open("a", encoding="utf-8") as file:
            file.write(lap.model_dump_json() + "\n")
        self._say(
            f"{candidate.name}, {lap.start}: {lap.wall_s:.1f} s, "
            f"{lap.result.step_ms:.1f} ms a step,"
            f" {lap.result.peak_mem_gib:.2f} GiB, {lap.result.val_bpb:.4f} bpb"
        )

    @property
    def _left_s(self) -> float:
        return self._limit_s - (time.monotonic() - self._began_s)

    # --- what came of it ------------------------------------------------------------------------

    def _conclude(self, task: Task, ceiling: Ceiling, telemetry: Sequence[str]) -> None:
        ranks = standings(self.laps, task, ceiling)
        self.figures = figures(ranks, task, ceiling)
        if self._plan.is_rehearsal:
            self.figures = [replace(figure, met=None) for figure in self.figures]
        lines = self._header(task) + list(telemetry)
        print("\n" + "\n".join(lines))
        print("\n" + "\n".join(table(ranks)) + "\n")
        for figure in self.figures:
            goal = f"  [{figure.goal_text}]" if figure.goal else ""
            print(f"{figure.name}: {figure.value_text}{goal}  {figure.note}")
        for name, why in self.not_run.items():
            print(f"not run: {name}: {why}")
        self._say(f"kept in {self._out}")
        (self._out / "figures.md").write_text(self._markdown(lines, table(ranks)), "utf-8")

    def _header(self, task: Task) -> list[str]:
        config, info = task.config, task.corpus.info
        device = self.laps[0].result.device if self.laps else task.device
        shape = f"{config.n_layer} layers, d_model {config.d_model}, d_ff {config.d_ff}"
        packages = ("torch", "triton", "megatron-core", "transformer-engine", "torchao")
        versions = [f"{name} {found}" for name in packages if (found := _version(name))]
        params = f"{self.laps[0].result.params / 1e6:.1f} M parameters, " if self.laps else ""
        return [
            f"{device}, {os.cpu_count()} logical CPUs, {platform.platform()}; "
            f"python {platform.python_version()}, {', '.join(versions)}",
            f"{params}{shape}, vocabulary {info.vocab_size}, batch {config.batch_size} × "
            f"{config.seq_len}, {self._plan.steps} steps, {info.heldout_tokens:,} tokens scored",
        ]

    def _markdown(self, header: Sequence[str], columns: Sequence[str]) -> str:
        """Return a section of RESULTS.md."""
        indented = [f"    {line}".rstrip() for line in columns]
        skipped = [f"- Not run: {name}: {why}" for name, why in self.not_run.items()]
        what = "a rehearsal on the CPU" if self._plan.is_rehearsal else "on a GPU"
        title = f"## {datetime.now(UTC):%Y-%m-%d %H:%M} UTC: {what}"
        lines = ["", title, "", *_spaced(header), *indented, "", *MARKDOWN_HEAD]
        lines += [*markdown_rows("gpu", self.figures), ""]
        return "\n".join([*lines, *skipped, ""] if skipped else lines)

    def _say(self, text: str) -> None:
        print(f"[{time.monotonic() - self._began_s:5.0f} s] {text}", flush=True)


def _spaced(lines: Sequence[str]) -> list[str]:
    """Return the lines as one paragraph each."""
    return [part for line in lines for part in (line, "")]


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None
