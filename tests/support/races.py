"""Run a race, or one trial, without a loop."""

from collections.abc import Callable

from agent.search.race import Race
from agent.search.trials import TrialRunner
from trainer.spec import AnyConfig, PruneRule
from trajectory.rows import Decision, Role, TrialRecord


def run_race(
    race: Race, run: Callable[[AnyConfig, int, Role, PruneRule | None], TrialRecord]
) -> Decision:
    """Return the decision of a race whose trials ``run`` gives the records of."""
    schedule = race.schedule()
    wanted = next(schedule)
    while True:
        record = run(wanted.config, wanted.seed, wanted.role, wanted.prune)
        try:
            wanted = schedule.send(record)
        except StopIteration as ended:
            decision: Decision = ended.value
            return decision


def run_one(runner: TrialRunner, config: AnyConfig, seed: int, role: Role) -> TrialRecord:
    """Return the record of one trial."""
    return next(runner.run_all([(runner.spec(config, seed), role)]))
