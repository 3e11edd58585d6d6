"""Run a race, or trials, without a loop."""

import asyncio
from collections.abc import Iterable

from agent.search.race import Race
from agent.search.trials import TrialRunner
from trainer.schema import AnyConfig, TrialSpec
from trajectory.rows import Decision, Role, TrialRecord


def run_race(race: Race) -> Decision:
    """Return the decision of a race whose trials take no time, so that it never waits."""
    try:
        race.run().send(None)
    except StopIteration as ended:
        decision: Decision = ended.value
        return decision
    raise AssertionError("it waits for a trial")


def run_all(runner: TrialRunner, specs: Iterable[tuple[TrialSpec, Role]]) -> list[TrialRecord]:
    """Return the records of the trials of these specs."""
    records: list[TrialRecord] = []
    asyncio.run(runner.run_all(specs, records.append))
    return records


def run_one(runner: TrialRunner, config: AnyConfig, seed: int, role: Role) -> TrialRecord:
    """Return the record of one trial."""
    return run_all(runner, [(runner.spec(config, seed), role)])[0]
