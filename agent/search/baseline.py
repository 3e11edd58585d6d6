"""Train the baseline, the menu's defaults, on several seeds before anything is proposed.

A command may ignore its seed even if the menu passes it. If two runs print the same score and the
same curve, it does, and further runs would only repeat them.
"""

from collections.abc import Callable, Iterator

from agent.search.campaign import Campaign
from agent.search.race import FEWEST_PRINTED
from agent.search.scribe import Scribe
from agent.search.trials import TrialRunner
from autoresearch.errors import CampaignError
from autoresearch.words import timestamp
from trainer.schema import TrialFailed, TrialSpec
from trajectory.evidence import SAME_RUNS
from trajectory.rows import BaselineRow, EventRow, Role, TrialRecord


async def measure_baseline(
    campaign: Campaign,
    runner: TrialRunner,
    scribe: Scribe,
    measured: Callable[[BaselineRow], None],
) -> None:
    """Train the baseline on every seed without a row, and report each row once written.

    :raises CampaignError: if it cannot be trained.
    """
    baseline = campaign.menu.baseline
    known = campaign.evidence.configs.get(baseline.config_hash)
    done = set(known.scores) if known else set()

    def missing() -> Iterator[tuple[TrialSpec, Role]]:
        for seed in campaign.baseline_seeds:
            if seed in done:
                continue
            if _are_one_run(campaign, runner):
                return
            yield runner.spec(baseline, seed), "baseline"

    def take(trial: TrialRecord) -> None:
        seed = trial.seed
        if isinstance(trial.result, TrialFailed):
            scribe.record(
                EventRow(
                    at=timestamp(),
                    event="note",
                    why=f"baseline seed {seed}: {trial.result.status}: {trial.result.message}",
                    trial_ids=(trial.trial_id,),
                )
            )
            raise CampaignError(
                f"the baseline cannot be trained: seed {seed} ended as {trial.result.status} "
                f"({trial.result.message}); fix the menu's defaults or the machine first"
            )
        row = BaselineRow(
            at=timestamp(), config=baseline, config_hash=baseline.config_hash, trial=trial
        )
        scribe.record(row)
        measured(row)

    await runner.run_all(missing(), take)
    if campaign.evidence.runs_are_the_same:
        why = f"{SAME_RUNS}; one pair decides a race, for that one draw of chance"
        if all(event.why != why for event in campaign.results.newest(EventRow)):
            scribe.take_note(why)


def _are_one_run(campaign: Campaign, runner: TrialRunner) -> bool:
    """Return whether all output of the runs so far is identical. A score alone may be
    rounded to the same digits; a curve is not."""
    known = campaign.evidence.configs.get(campaign.menu.baseline.config_hash)
    if known is None or known.n < 2:
        return False
    if len(set(known.scores.values())) > 1:
        return False
    curves = [runner.curve(trial) for trial in known.trial_ids.values()]
    printed = {tuple((point.step, point.loss) for point in curve) for curve in curves}
    return len(printed) == 1 and all(len(curve) >= FEWEST_PRINTED for curve in curves)
