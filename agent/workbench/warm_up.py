"""Run a short trial before the first one, on a GPU only, so that later trials find their kernels
compiled."""

from __future__ import annotations

from contextlib import suppress

from agent.search.campaign import Campaign
from agent.search.stopping import Interrupted, StopRequest
from autoresearch.errors import MachineryError, SpecError
from autoresearch.files import writing_to
from autoresearch.layout import LOG_FILE, RESULT_FILE, TRIALS_DIR, WARM_UP_DIR
from trainer.executors.base import Executor, TrialAborted
from trainer.isolation.scratch import clear
from trainer.spec import AnyConfig, Budget, RunSchedule, TrialFailed

STEPS = 2


def warm_up(campaign: Campaign, executor: Executor, stop: StopRequest) -> str | None:
    """Run two steps of the menu's defaults in a directory that no row names, and two in each other
    number format that the menu offers.

    Return a line for the user, or None if nothing ran: on a CPU, with a command, or if the baseline
    was already measured, which compiled everything.

    :raises Interrupted: once a second stop was requested.
    :raises MachineryError: if a trial ends without a measurement, for whatever reason.
    """
    menu, on_cpu = campaign.menu, campaign.settings.device == "cpu"
    if on_cpu or campaign.command is not None or campaign.evidence.configs:
        return None
    wall_s = _run(campaign, executor, stop, menu.baseline, "the menu's defaults")
    knob = menu.knobs.get("precision")
    for value in [] if knob is None else knob.domain.table().get("choices", []):
        if value != menu.defaults["precision"]:
            # Where the GPU or the shape has no such format, each such config is refused by itself.
            with suppress(SpecError):
                config = menu.apply(menu.baseline, {"precision": value})
                wall_s += _run(campaign, executor, stop, config, f"the menu's precision {value}")
    return f"warm-up   {wall_s:.0f} s of trials compiled the kernels; they are not counted"


def _run(
    campaign: Campaign, executor: Executor, stop: StopRequest, config: AnyConfig, what: str
) -> float:
    """Run a few steps of a config and return the seconds; ``what`` names it in an error."""
    trial_dir = campaign.directory / TRIALS_DIR / WARM_UP_DIR
    horizon = campaign.settings.horizon_steps
    schedule = RunSchedule(budget=Budget(amount=STEPS), horizon_steps=horizon)
    spec = campaign.trial_spec(config, campaign.baseline_seeds[0]).model_copy(
        update={"trial_id": WARM_UP_DIR, **dict(schedule)}
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
            f"the warm-up trial of {what} ended as {ended.result.status} ({ended.result.message});"
            f" see {trial_dir / LOG_FILE} and run `autoresearch doctor`"
        )
    return ended.wall_s
