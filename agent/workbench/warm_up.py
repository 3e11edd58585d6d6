"""Run a short trial before the first one, on a GPU only, so that later trials find their kernels
compiled."""

from __future__ import annotations

from agent.search.campaign import Campaign
from agent.search.stopping import Interrupted, StopRequest
from autoresearch.errors import MachineryError
from autoresearch.files import writing_to
from autoresearch.layout import LOG_FILE, RESULT_FILE, TRIALS_DIR, WARM_UP_DIR
from trainer.executors.base import Executor, TrialAborted
from trainer.isolation.scratch import clear
from trainer.spec import Budget, RunSchedule, TrialFailed

STEPS = 2


def warm_up(campaign: Campaign, executor: Executor, stop: StopRequest) -> str | None:
    """Run two steps of the menu's defaults in a directory that no row names.

    Return a line for the user, or None if nothing ran: on a CPU, with a command, or if the baseline
    was already measured, which compiled everything.

    :raises Interrupted: once a second stop was requested.
    :raises MachineryError: if the trial ends without a measurement, for whatever reason.
    """
    settings, baseline = campaign.settings, campaign.menu.baseline
    if settings.device == "cpu" or campaign.command is not None or campaign.evidence.configs:
        return None
    trial_dir = campaign.directory / TRIALS_DIR / WARM_UP_DIR
    spec = campaign.trial_spec(baseline, campaign.baseline_seeds[0]).model_copy(
        update={
            "trial_id": WARM_UP_DIR,
            **dict(RunSchedule(budget=Budget(amount=STEPS), horizon_steps=settings.horizon_steps)),
        }
    )
    with stop.deferred():
        with writing_to(campaign.directory):
            clear(trial_dir / RESULT_FILE)
        try:
            ended = executor.run(spec, trial_dir, should_stop=stop.at_once)
        except TrialAborted as aborted:
            raise Interrupted("stopped at once, before the first trial") from aborted
    if isinstance(ended.result, TrialFailed):
        raise MachineryError(
            f"the warm-up trial of the menu's defaults ended as {ended.result.status} "
            f"({ended.result.message}); see {trial_dir / LOG_FILE} and run `autoresearch doctor`"
        )
    return f"warm-up   a trial of {ended.wall_s:.0f} s compiled the kernels; it counts for nothing"
