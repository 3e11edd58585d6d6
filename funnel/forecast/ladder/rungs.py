"""Convert a campaign's ladder into the runs that a forecast is made from."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

from funnel.forecast.ladder.rung_runs import RungRun
from funnel.forecast.ladder.schedule_shape import ScheduleShape
from trainer.spec import Config, CurvePoint


class MeasuredRung(Protocol):
    """A run of a ladder that ended with a measurement."""

    @property
    def params(self) -> int: ...
    @property
    def steps(self) -> int: ...
    @property
    def config(self) -> Config: ...
    @property
    def trial_id(self) -> str: ...


def rung_runs(
    rungs: Iterable[MeasuredRung], curve_of: Callable[[str], Sequence[CurvePoint]]
) -> tuple[RungRun, ...]:
    """Return the rungs whose curve still exists.

    :param rungs: rungs of one recipe, at the rate that the rules give.
    :param curve_of: function that returns a trial's curve; empty if it left none.
    """
    found = []
    for rung in rungs:
        curve = curve_of(rung.trial_id)
        if curve:
            found.append(
                RungRun(
                    params=float(rung.params),
                    tokens_per_step=float(rung.config.tokens_per_step),
                    schedule=schedule_of(rung.config, rung.steps, rung.config.lr_warmup),
                    curve=tuple(curve),
                )
            )
    return tuple(found)


def schedule_of(config: Config, steps: int, warmup_steps: int) -> ScheduleShape:
    """Return the config's schedule over this many steps."""
    return ScheduleShape(
        steps=steps,
        warmup_steps=min(warmup_steps, steps),
        kind=config.schedule,
        decay_share=config.decay_share,
        lr_min_ratio=config.lr_min_ratio,
    )
