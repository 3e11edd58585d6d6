"""Try a drafted menu: run its default config once, in the sandbox of every trial."""

import tempfile
from pathlib import Path

from agent.menu.files import ProxyMenu, load_menu
from agent.workbench.own_trainer import OwnTrainer
from autoresearch.errors import AutoresearchError
from autoresearch.layout import TRIALS_DIR
from trainer.executors.local import COMMAND_ENTRY, LocalExecutor
from trainer.spec import CommandOk, Limits, TrialFailed, TrialSpec

PATIENCE_S = 60.0
"""Seconds allowed for the run. A script that still trains after them has started well."""


def dry_start(source: str) -> tuple[bool, str]:
    """Run a menu's command once; return whether it can be used, and a sentence why.

    :param source: the menu's file.
    """
    try:
        with tempfile.TemporaryDirectory() as place:
            campaign = Path(place) / "dry-start"
            own = OwnTrainer.of(source, menu := load_menu(source), campaign)
            assert own is not None
            result = _result(own, menu, campaign)
    except AutoresearchError as error:
        return False, f"{error}"
    can_be_used, text = _sentence(result)
    python = own.python_text()
    return can_be_used, f"{text}; its Python is {python}" if python else text


def _sentence(result: CommandOk | TrialFailed) -> tuple[bool, str]:
    if isinstance(result, CommandOk):
        return True, f"the default config scored {result.score:g} in {result.train_s:.1f} s"
    if result.status == "timeout":
        return (
            True,
            f"the default config still trained after {PATIENCE_S:g} s; no score was awaited",
        )
    return False, f"the default config failed ({result.status}): {result.message}"


def _result(own: OwnTrainer, menu: ProxyMenu, campaign: Path) -> CommandOk | TrialFailed:
    trial_dir = campaign / TRIALS_DIR / "dry-start"  # no trial's name: its log is not kept
    trial_dir.parent.mkdir(parents=True)
    spec = TrialSpec(
        trial_id=trial_dir.name,
        config=menu.baseline,
        seed=0,
        corpus_dir="",
        corpus_sha256="",
        budget=menu.campaign.budget,
        horizon_steps=menu.campaign.horizon_steps,
        threads=menu.campaign.threads,
        limits=Limits(wall_s=PATIENCE_S),
        command=own.command,
    )
    executor = LocalExecutor(entry=COMMAND_ENTRY)
    try:
        result = executor.submit(spec, trial_dir).result().result
    finally:
        executor.close()
    assert isinstance(result, CommandOk | TrialFailed)
    return result
