"""Choose the number of lanes for ``--lanes auto``: one per GPU, or on a CPU the best of a short
measurement."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

from agent.menu.files import ProxyMenu
from agent.settings.campaign import CampaignSettings
from autoresearch.errors import MachineryError, SettingsError
from autoresearch.words import counted
from trainer.corpus import Corpus
from trainer.executors.base import Executor
from trainer.executors.choice import choose_executor
from trainer.executors.placement import usable_cores, visible_gpus
from trainer.spec import Budget, Limits, TrialOk, TrialSpec

FIRST_STEPS, MOST_STEPS = 3, 200
TRAIN_S = 3.0
"""Target training time in seconds of one measuring trial on one lane."""
WORTH = 1.05
"""Speedup that more lanes must reach together, because they also search a little less well."""


def chosen_lanes(
    settings: CampaignSettings,
    menu: ProxyMenu,
    corpus: Corpus | None,
    *,
    allow_unsandboxed: bool,
    say: Callable[[str], None],
) -> int:
    """Return the settings' number of lanes, or the number that ``auto`` means here.

    :param corpus: None if a command brings its own text.
    :raises SettingsError: if the number cannot be measured.
    """
    if settings.lanes != "auto":
        return settings.lanes
    if settings.device == "cuda":
        return max(1, len(visible_gpus()))
    if settings.device != "cpu":
        return 1
    if corpus is None:
        raise SettingsError(
            "--lanes auto measures with a few short trials, and a command's cannot be made short; "
            "set a number, such as --lanes 2"
        )
    if len(usable_cores()) == 1:
        return 1
    spec = _spec(settings, menu, corpus)
    found = _measured(spec, allow_unsandboxed=allow_unsandboxed)
    best = 1
    for lanes, steps_per_s in found.items():
        if steps_per_s > WORTH * found[best]:
            best = lanes
    said = ", ".join(f"{speed:.3g} steps/s on {lanes}" for lanes, speed in found.items())
    say(f"lanes     {counted(best, 'lane')}, by measurement: {said}")
    return best


def candidates(cores: int) -> Iterator[int]:
    """Yield 1, 2, 4, … up to one lane per core."""
    lanes = 1
    while lanes <= cores:
        yield lanes
        lanes *= 2


def _measured(spec: TrialSpec, *, allow_unsandboxed: bool) -> dict[int, float]:
    """Return the steps per second of all lanes together, by number of lanes."""
    found: dict[int, float] = {}
    for lanes in candidates(len(usable_cores())):
        with (
            tempfile.TemporaryDirectory(prefix="autoresearch-lanes-") as scratch,
            choose_executor(allow_unsandboxed=allow_unsandboxed, lanes=lanes) as executor,
        ):
            # Do not count the first imports and file mappings.
            warm = spec.model_copy(update={"budget": Budget(amount=FIRST_STEPS)})
            [step_s] = _step_s(executor, warm, Path(scratch) / "first", 1)
            if lanes == 1:
                steps = round(TRAIN_S / step_s) if step_s > 0 else MOST_STEPS
                steps = min(MOST_STEPS, max(FIRST_STEPS, steps))
                spec = spec.model_copy(update={"budget": Budget(amount=steps)})
            each = _step_s(executor, spec, Path(scratch) / "all", lanes)
        found[lanes] = sum(1 / step_s for step_s in each)
    return found


def _step_s(executor: Executor, spec: TrialSpec, folder: Path, trials: int) -> list[float]:
    """Return the seconds per step of each of this many concurrent trials."""
    jobs = [
        executor.submit(spec.model_copy(update={"trial_id": f"lane{n}"}), folder / str(n))
        for n in range(trials)
    ]
    found = []
    for job in jobs:
        result = job.result().result
        if not isinstance(result, TrialOk):
            raise MachineryError(
                f"--lanes auto cannot be measured: a short trial of the baseline ended as "
                f"{result.status}; set a number, such as --lanes 2, or fix the menu's defaults"
            )
        found.append(max(1e-6, result.train_s / result.steps))
    return found


def _spec(settings: CampaignSettings, menu: ProxyMenu, corpus: Corpus) -> TrialSpec:
    """Return the spec of a trial of the baseline, its budget still to be chosen."""
    return TrialSpec(
        trial_id="",
        config=menu.baseline,
        seed=settings.seed,
        corpus_dir=str(corpus.directory),
        corpus_sha256=corpus.info.sha256,
        budget=Budget(amount=FIRST_STEPS),
        horizon_steps=None,
        backend=settings.backend,
        device=settings.device,
        threads=settings.threads,
        scored_apart=bool(menu.code_knobs),
        limits=Limits(wall_s=settings.trial_wall_s, memory_gib=settings.trial_memory_gib),
    )
