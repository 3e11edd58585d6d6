"""Start a script in the sandbox of every trial: to report its options, and to try a draft."""

import os
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from agent.menu.files import ProxyMenu
from agent.menu.scripts.start import Start
from agent.menu.trainer_table import TrainerTable
from agent.session.own_trainer import OwnTrainer, command_of
from autoresearch.layout import LOG_FILE, TRIALS_DIR
from trainer.command import observing
from trainer.command.number import Number
from trainer.executors.local import COMMAND_ENTRY, LocalExecutor
from trainer.schema import (
    AnyConfig,
    Budget,
    CommandConfig,
    Limits,
    Measured,
    ScoreRule,
    TrialFailed,
    TrialSpec,
)

_ID = "dry-start"
"""No trial's name: its log is not kept."""
_MOST_LOG = 4 << 20
PATIENCE_S = 60.0
"""Seconds allowed for a run. A script that still trains after them has started well."""
_PARSE_S = 60.0
"""Seconds in which a script must come to parse its options."""


@dataclass(frozen=True, slots=True)
class Tried:
    """A run of a script in the sandbox."""

    result: Measured | TrialFailed
    lines: tuple[str, ...]
    """Everything it printed."""
    python: str = ""
    """Which Python ran it, in words."""

    @property
    def is_usable(self) -> bool:
        """Return whether the script ended well, or still trained."""
        return self.result.status in {"scored", "timeout"}

    @property
    def sentence(self) -> str:
        """Return how it ended."""
        result = self.result
        python = f"; its Python is {self.python}" if self.python else ""
        if not isinstance(result, TrialFailed):
            return f"the default config ran in {result.train_s:.1f} s{python}"
        if result.status == "timeout":
            return f"the default config still trained after {PATIENCE_S:g} s{python}"
        return f"the default config failed ({result.status}): {result.message}{python}"


def report_options(start: Start, words: Sequence[str]) -> list[str]:
    """Start a script until it parses its options, and return the lines that it printed.

    :param words: arguments of a manual start.
    :raises AutoresearchError: if no sandbox or no Python is there.
    """
    script = ["-m", start.module] if start.module else [start.script]
    search = [str(Path(observing.__file__).parent)]
    search += [str(start.folder / start.search_path)] if start.search_path else []
    table = TrainerTable(
        command=(
            "python" if shutil.which("python") else "{python}",
            *script,
            *(word.replace("{", "{{").replace("}", "}}") for word in words),
        ),
        env={"PYTHONPATH": os.pathsep.join(search)},
        reads=start.reads,
        score=ScoreRule(pattern="(x)"),
        unit="score",
    )
    command = command_of(table, start.folder).model_copy(update={"is_tried": True})
    spec = TrialSpec(
        trial_id=_ID,
        config=CommandConfig(values={}),
        seed=0,
        budget=Budget(unit="run", amount=1),
        limits=Limits(wall_s=_PARSE_S),
        command=command,
    )
    with tempfile.TemporaryDirectory() as place:
        tried = _run(spec, Path(place).resolve() / "campaign")
    if isinstance(tried.result, TrialFailed):
        return [*tried.lines, observing.FAILED + tried.result.message]
    return list(tried.lines)


def dry_start(source: str, menu: ProxyMenu) -> Tried:
    """Run a menu's default config once, whatever its score.

    :param source: the menu's file, beside which its directory is.
    :raises AutoresearchError: if the menu cannot be used here.
    """
    changed = {"is_tried": True, "check": None, "curve": None}
    return run_config(source, menu, menu.baseline, 0, PATIENCE_S, changed)


def run_config(
    source: str,
    menu: ProxyMenu,
    config: AnyConfig,
    seed: int,
    wall_s: float,
    changed: Mapping[str, object] = {},
) -> Tried:
    """Run one config of a menu outside any campaign.

    :param source: the menu's file, beside which its directory is.
    :param changed: fields of the command to replace.
    :raises AutoresearchError: if the menu cannot be used here.
    """
    with tempfile.TemporaryDirectory() as place:
        campaign = Path(place).resolve() / "campaign"
        own = OwnTrainer.of(source, menu, campaign)
        assert own is not None
        spec = TrialSpec(
            trial_id=_ID,
            config=config,
            seed=seed,
            budget=menu.campaign.budget,
            horizon_steps=menu.campaign.horizon_steps,
            threads=menu.campaign.threads,
            limits=Limits(wall_s=wall_s),
            command=own.command.model_copy(update=dict(changed)),
        )
        tried = _run(spec, campaign)
    return Tried(tried.result, tried.lines, own.python_text())


def _run(spec: TrialSpec, campaign: Path) -> Tried:
    trial_dir = campaign / TRIALS_DIR / spec.trial_id
    trial_dir.parent.mkdir(parents=True)
    executor = LocalExecutor(entry=COMMAND_ENTRY)
    try:
        result = executor.submit(spec, trial_dir).result().result
    finally:
        executor.close()
    log = (trial_dir / LOG_FILE).read_text("utf-8", "replace")[-_MOST_LOG:]
    lines = log.replace("\r", "\n").split("\n")
    return Tried(result, tuple(Number("x").cleaned(line) for line in lines if line))
