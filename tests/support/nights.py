"""Run a short campaign in a world where only the learning rate matters, and read its rows."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from agent.menu.rails import Rails
from agent.proposers.base import Proposer
from agent.proposers.draws import RandomProposer
from agent.search.campaign import Campaign
from agent.search.campaign_start import new_settings
from agent.search.stopping import Goal, StopRequest
from tests.support.simulated.account import Account
from tests.support.simulated.executor import SimulatedExecutor
from tests.support.simulated.night import no_corpus, put_together
from tests.support.worlds import RateWorld
from trajectory.rows import BaselineRow, IterationRow, Rules, TrialRecord

CLOCKS = frozenset(
    "at created_at id wall_s latency_s elapsed_s energy_wh versions hardware corpus_dir".split()
)
"""Fields that differ from one run of the same campaign to the next."""


class Onlooker(Account):
    """Watch the campaign, and call ``at_trial`` after every trial."""

    def __init__(
        self,
        campaign: Campaign,
        stop: StopRequest,
        at_trial: Callable[[str, StopRequest], None] = lambda _trial, _stop: None,
    ) -> None:
        super().__init__(WORLD, campaign)
        self._stop = stop
        self._at_trial = at_trial

    def trial_ended(self, record: TrialRecord) -> None:
        super().trial_ended(record)
        self._at_trial(record.trial_id, self._stop)

    def baseline_measured(self, row: BaselineRow) -> None: ...
    def iteration_ended(self, row: IterationRow) -> None: ...


WORLD = RateWorld(0.05, curves=True)


def work(
    directory: Path,
    goal: Goal,
    *,
    lanes: int = 1,
    seed: int = 3,
    baseline_seeds: int = 5,
    rules: Rules | None = None,
    proposer: Callable[[Rails], Proposer] = RandomProposer,
    at_trial: Callable[[str, StopRequest], None] = lambda _trial, _stop: None,
    asks_early: bool = False,
) -> str:
    """Start or resume the campaign in ``directory`` until the goal; return why it ended."""
    directory.mkdir(parents=True, exist_ok=True)
    chosen = {"seed": seed, "max_changes": 2, "baseline_seeds": baseline_seeds}
    chosen |= dict(rules or {})
    settings = new_settings(WORLD.menu, WORLD.menu.name, chosen)
    with (
        Campaign(
            directory / "campaign", settings, WORLD.menu, no_corpus(directory), sandbox="simulated"
        ) as campaign,
        SimulatedExecutor(WORLD, lanes) as executor,
    ):
        stop = StopRequest()
        watcher = Onlooker(campaign, stop, at_trial)
        loop = put_together(
            campaign, proposer, settings.rules(), executor, watcher, stop, asks_early=asks_early
        )
        return loop.run(goal)


def rows_of(
    directory: Path, iterations: int, *, lanes: int = 1, seed: int = 3, rules: Rules | None = None
) -> list[dict[str, Any]]:
    """Return the rows of a campaign in ``directory`` after this many iterations, without clocks."""
    work(directory, Goal(iterations=iterations), lanes=lanes, seed=seed, rules=rules)
    return written(directory)


def written(directory: Path) -> list[dict[str, Any]]:
    """Return the present rows of its journal, without clocks."""
    journal = (directory / "campaign" / "trajectory.jsonl").read_text("utf-8")
    return [without_clocks(json.loads(line)) for line in journal.splitlines()]


def without_clocks(value: Any) -> Any:
    """Return a row without the fields that differ between runs."""
    if isinstance(value, dict):
        return {name: without_clocks(one) for name, one in value.items() if name not in CLOCKS}
    return [without_clocks(one) for one in value] if isinstance(value, list) else value
