"""Find which faults of a run a comparison with its forecast would catch, and when.

The faults are added to draws of sound runs. A fault counts as caught at the first analysis by which
a share ``POWER`` of the faulty runs has raised an alarm. A forecast is usable if every needed fault
is caught before the run ends; otherwise it is reported as worthless.

The plan's stated power and the comparison divide a log into the same windows. A window covers half
a percent of the run up to a tenth of it, and one percent afterward. Windows are merged until each
has ``LEAST_POINTS`` losses. They are fixed places in the run, not shares of the log, so a longer
log has the windows of a shorter one and more.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from funnel.forecast.band import EARLY, LATE, Catch, Forecast
from funnel.forecast.robust_fit import Array
from funnel.forecast.watch import Watch

POWER = 0.95
FINE, COARSE = 0.005, 0.01
FINE_UNTIL = 0.1
LEAST_POINTS = 5
"""Fewest losses in a window."""
PLANNED_POINTS = 200
"""Largest number of losses per window that a plan assumes; more make no difference."""
HOURS_A_DAY = 24


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault, described by its change of the log loss in each window."""

    name: str
    words: str
    added: Array
    is_needed: bool = False
    from_share: float = 0.0
    """Share of the run after which the fault is present."""


def listed_faults(watch: Watch, wrong_size: float) -> Iterator[Fault]:
    """Yield the faults that a launch plan lists.

    :param wrong_size: change of the log loss when the parameters are halved, by the ladder's law.
    """
    tokens_W, total = watch.tokens_W, watch.total_tokens
    ones_W = np.ones(len(tokens_W))
    for percent in (2, 5, 10, 40):
        excess = percent / 100
        yield Fault(
            f"x{1 + excess:.2f}",
            f"{percent} % too high",
            math.log1p(excess) * ones_W,
            is_needed=percent == 5,
        )
    for share in (EARLY, LATE):
        stop = watch.log_middle(np.array([share * total]))[0]
        yield Fault(
            f"stop{share:.2f}",
            f"stopped learning at {100 * share:.0f} % of the steps",
            np.where(tokens_W > share * total, stop - watch.log_middle(tokens_W), 0.0),
            is_needed=True,
            from_share=share,
        )
    yield Fault("drift", "drifts up, 5 % by the end", np.log1p(0.05 * tokens_W / total))
    yield Fault("size", "has half the parameters", wrong_size * ones_W)


def catches(watch: Watch, wrong_size: float, *, all_faults: bool = True) -> tuple[Catch, ...]:
    """Return when each fault would be caught in runs with these windows.

    :param all_faults: whether to include the faults that a usable forecast need not catch.
    """
    tokens_W, found = watch.tokens_W, []
    for fault in listed_faults(watch, wrong_size):
        if not (fault.is_needed or all_faults):
            continue
        first_R = watch.alarms_with_fault(fault.added)
        analysis = math.ceil(float(np.quantile(first_R, POWER, method="higher")))
        is_caught = analysis < len(tokens_W)
        found.append(
            Catch(
                name=fault.name,
                words=fault.words,
                from_tokens=max(1, round(fault.from_share * watch.total_tokens or tokens_W[0])),
                by_tokens=round(tokens_W[analysis]) if is_caught else None,
                is_needed=fault.is_needed,
            )
        )
    return tuple(found)


def cut(tokens_P: Array, first: float, total_tokens: float) -> list[NDArray[np.intp]]:
    """Return the indices of the losses in each window.

    The last window may be incomplete, but has enough losses.

    :param first: share of the run at which the first window begins.
    """
    fine = np.arange(0.0, FINE_UNTIL - FINE / 2, FINE)
    ends = np.concatenate([fine, np.arange(FINE_UNTIL, 1.0 + COARSE / 2, COARSE)])
    edges = np.concatenate([[first], ends[ends > first + FINE / 2]])
    place_P = np.digitize(tokens_P / total_tokens, edges) - 1
    windows: list[NDArray[np.intp]] = []
    held: list[int] = []
    for place in range(len(edges) - 1):
        held.extend(np.flatnonzero(place_P == place).tolist())
        if len(held) >= LEAST_POINTS:
            windows.append(np.array(held))
            held = []
    last = np.flatnonzero(place_P == len(edges) - 1)
    if len(last) and windows:
        windows[-1] = np.concatenate([windows[-1], last])
    return windows


def planned(first: float, total_tokens: float, steps: int) -> tuple[Array, Array]:
    """Return the windows of a whole run that logs every step: mean tokens and number of losses."""
    per_point = max(1.0, steps / 20_000)
    step_P: Array = np.arange(1.0, min(steps, 20_000) + 1) * per_point
    windows = cut(step_P, first, float(steps))
    tokens_W = np.array([float(step_P[w].mean()) for w in windows]) / steps * total_tokens
    points_W = np.array([float(min(len(w) * per_point, PLANNED_POINTS)) for w in windows])
    return tokens_W, points_W


def power_lines(forecast: Forecast) -> Iterator[str]:
    """Yield one sentence per fault, saying when it is caught; or say the forecast is worthless."""
    basis = forecast.ladder
    if not basis.is_usable:
        missed = [
            c.words if c.words[0].isalpha() else f"is {c.words}"
            for c in basis.caught
            if c.is_needed and c.by_tokens is None
        ]
        yield (
            f"the forecast is worthless: within its band, ± {basis.end_half_width:.1%} at the end, "
            f"verify could not distinguish a healthy run from one that {' or '.join(missed)}; "
            "train larger rungs: autoresearch ladder --hours"
        )
        return
    for catch in basis.caught:
        when = "not caught"
        if catch.by_tokens is not None:
            step = round(catch.by_tokens / forecast.tokens_per_step)
            hour = HOURS_A_DAY * catch.by_tokens / forecast.first_day_tokens
            when = f"by step {step:,} (hour {hour:,.3g})"
            if "stopped" in catch.words:
                after = (catch.by_tokens - catch.from_tokens) / basis.total_tokens
                when += f", within {max(after, 0.001):.1%} of the steps"
        that = "that " if catch.words[0].isalpha() else "that is "
        yield f"a run {that}{catch.words}: {when}"
    yield (
        f"each with {POWER:.0%} of such runs caught, by simulation with the rungs' own noise; "
        "verify exits 0 only where a run 5 % too high and one that stopped learning would have "
        "been caught by then"
    )
