"""Run a race, or one trial, without a loop."""

from collections.abc import Callable

from agent.search.race import Outcome, Race
from agent.search.trials import TrialRunner
from trainer.spec import AnyConfig, PruneRule
from trajectory.rows import Role, TrialRecord


def run_race(
    race: Race, run: Callable[[AnyConfig, int, Role, PruneRule | None], TrialRecord]
) -> Outcome:
    """Return the outcome of a race whose trials ``run`` gives the records of."""
    schedule = race.schedule()
    wanted = next(schedule)
    while True:
        record = run(wanted.config, wanted.seed, wanted.role, wanted.prune)
        try:
            wanted = schedule.send(record)
        except StopIteration as ended:
            outcome: Outcome = ended.value
            return outcome


def run_one(runner: TrialRunner, config: AnyConfig, seed: int, role: Role) -> TrialRecord:
    """Return the record of one trial."""
    return next(runner.run_all([(runner.spec(config, seed), role)]))
