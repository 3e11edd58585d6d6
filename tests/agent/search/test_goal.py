import math
from collections.abc import Iterator
from pathlib import Path

import pytest

from agent.proposers.draws import RandomProposer
from agent.search.campaign import Campaign
from agent.search.campaign_start import new_settings
from agent.search.stopping import DEFAULT_ITERATIONS, Goal, StopRequest, Work
from agent.search.trial import left_s
from autoresearch.errors import MachineryError, SettingsError
from tests.support import faulty_trainer
from tests.support.configs import config
from tests.support.corpora import write_corpus
from tests.support.curves import points
from tests.support.nights import WORLD, Onlooker
from tests.support.rows import baseline_row, campaign_row, iteration_row, ok, trial
from tests.support.simulated.night import put_together
from tests.support.trials import trial_spec
from trainer.executors.base import Job
from trainer.executors.local import LocalExecutor
from trainer.schema import Budget, TrialSpec
from trajectory.rows import Row


def journal() -> Iterator[Row]:
    """Yield two baseline runs and one iteration of two trials."""
    yield campaign_row()
    yield baseline_row(1, 4.2, 0)
    yield baseline_row(2, 4.3, 1)
    other = config(lr=2e-3)
    yield iteration_row(1, other, tuple(trial(n, other, n, ok(4.1)) for n in (3, 4)))


def test_work_is_counted_from_the_journal_without_doubled_lines() -> None:
    rows = list(journal())
    work, wall_s = Work.of([*rows, rows[-1]]), next(r.wall_s for r in rows if r.kind == "iteration")
    assert (work.iterations, work.trials) == (1, 4)
    assert work.hours == pytest.approx((2 * 3.65 + wall_s) / 3600)


@pytest.mark.parametrize(
    ("goal", "is_reached"),
    [
        (Goal(iterations=0), True),
        (Goal(iterations=1), True),
        (Goal(iterations=9, trials=4), True),
        (Goal(hours=0.001), True),
        (Goal(iterations=2, trials=5, hours=1), False),
        (Goal(), False),
    ],
)
def test_the_first_goal_ends_the_campaign(goal: Goal, is_reached: bool) -> None:
    assert (goal.reached(Work.of(journal())) is not None) == is_reached


def test_without_a_goal_it_is_a_hundred_iterations_and_hours_end() -> None:
    assert Goal.asked(None, None, None) == Goal(iterations=DEFAULT_ITERATIONS)
    assert Goal.asked(None, 300, None) == Goal(trials=300)
    for hours in (math.nan, math.inf):
        with pytest.raises(SettingsError):
            Goal.asked(None, None, hours)


class Faulty(LocalExecutor):
    """Run every trial on a machine with the same fault."""

    fault = ""

    def submit(self, spec: TrialSpec, trial_dir: Path) -> Job:
        faulty_trainer.break_it(trial_dir, self.fault)
        return super().submit(spec, trial_dir)


@pytest.mark.parametrize("fault", ["driver", pytest.param("norm", marks=pytest.mark.slow)])
def test_the_campaign_stops_at_the_first_trial(fault: str, tmp_path: Path) -> None:
    settings = new_settings(WORLD.menu, WORLD.menu.name, {"threads": 1})
    corpus = write_corpus(tmp_path / "corpus")
    directory = tmp_path / "campaign"
    with (
        Faulty(entry=faulty_trainer.ENTRY, allow_unsandboxed=True) as executor,
        Campaign(directory, settings, WORLD.menu, corpus, sandbox="a test") as campaign,
    ):
        executor.fault, stop = fault, StopRequest()
        watcher = Onlooker(campaign, stop)
        loop = put_together(
            campaign, RandomProposer, settings.rules(), executor, watcher, stop=stop
        )
        with pytest.raises(MachineryError):
            loop.run(Goal(iterations=2))
        assert [row.kind for row in campaign.journal.rows()] == ["campaign"]
        assert [one.name for one in (directory / "trials").glob("t*")] == ["t000001"]


def test_a_signal_is_answered_at_once_with_the_time_left(
    capfd: pytest.CaptureFixture[str],
) -> None:
    stop = StopRequest()
    stop.left_s = lambda: 28.0
    with stop.deferred():
        stop.ask()
        first = capfd.readouterr().err
        stop.ask()
        second = capfd.readouterr().err
        stop.ask()
    assert "about 28 s" in first
    assert second.strip()
    assert not capfd.readouterr().err, "two answers are enough"
    assert stop.at_once()


def test_the_time_left_is_by_the_pace_or_by_the_budget() -> None:
    spec, point = trial_spec(budget=Budget(amount=60)), points([3.0] * 20)[-1]
    ahead = point.model_copy(update={"step": 20, "elapsed_s": 10.0})
    assert left_s(spec, ahead) == pytest.approx(20.0)
    timed = trial_spec(budget=Budget(unit="seconds", amount=30))
    assert left_s(timed, ahead) == pytest.approx(20.0)
