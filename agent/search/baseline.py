"""The baseline: the menu's defaults, trained on several seeds before anything is proposed."""

from __future__ import annotations

from collections.abc import Iterator

from agent.search.campaign import Campaign
from agent.search.scribe import Scribe, timestamp
from agent.search.trials import TrialRunner
from autoresearch.errors import CampaignError
from trainer.spec import TrialFailed
from trajectory.rows import BaselineRow, EventRow


def measure_baseline(
    campaign: Campaign, runner: TrialRunner, scribe: Scribe
) -> Iterator[BaselineRow]:
    """Train it on every baseline seed that has no row yet; each row, once it is written.

    :raises CampaignError: where it cannot be trained.
    """
    baseline = campaign.menu.baseline
    known = campaign.evidence.configs.get(baseline.config_hash)
    measured = set(known.scores) if known else set()
    for seed in campaign.baseline_seeds:
        if seed in measured:
            continue
        trial = runner.run(baseline, seed, "baseline")
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
                f"({trial.result.message}); mend the menu's defaults or the machine first"
            )
        row = BaselineRow(
            at=timestamp(), config=baseline, config_hash=baseline.config_hash, trial=trial
        )
        scribe.record(row)
        yield row
