"""State in words the assumptions and the power of a ladder's forecast."""

from collections.abc import Iterator, Sequence

from funnel.forecast.band import BothRuns, Forecast, LadderBasis
from funnel.forecast.faults import POWER
from funnel.forecast.rung_runs import RungRun
from funnel.target.shape import size_text

HOURS_A_DAY = 24


def assumptions_of(
    basis: LadderBasis,
    both: BothRuns,
    runs: Sequence[RungRun],
    other_rules: Sequence[str] = (),
) -> Iterator[str]:
    """Yield the assumptions of a forecast from a ladder, one sentence each.

    :param other_rules: differences, in words, between the rules that carried the recipe to the
        target and to the rungs.
    """
    largest = max(runs, key=lambda run: run.compute)
    spread = basis.exponents
    yield (
        f"the cloud trains on text like the corpus {both.corpus}, and repeats none of it so often "
        "that the training loss understates the loss on new text; other texts give other numbers"
    )
    yield (
        f"the end is the law of {basis.runs} runs, whose largest has "
        f"{size_text(round(largest.params))} parameters and {size_text(round(largest.tokens))} "
        f"tokens: {basis.doublings:.1f} doublings of compute below the target; the law errs by "
        f"{basis.drift_per_doubling:.2%} with each, as it did over the largest rungs when it was "
        f"fitted to the smaller; its exponents are {basis.law.alpha:.2f} "
        f"({spread.alpha_low:.2f} to {spread.alpha_high:.2f}) and {basis.law.beta:.2f} "
        f"({spread.beta_low:.2f} to {spread.beta_high:.2f}), correlated by {spread.correlation:.2f}"
    )
    yield (
        "the way down is that of the rungs, by what the target's schedule does to it (Luo et al. "
        "2025, arXiv 2503.12811); the recipe was carried to every rung "
        + (
            f"otherwise than to the target ({'; '.join(other_rules)})"
            if other_rules
            else "by the same rules as to the target"
        )
    )
    yield (
        f"a sound run differs from another by {basis.scatter:.2%}, wanders by "
        f"{basis.sound.wiggle:.2%} and has a noise of {basis.sound.noise:.2%} a step, as the "
        "largest rung had"
    )


def power_lines(forecast: Forecast) -> Iterator[str]:
    """Yield one sentence per fault, saying when it is caught; or say the forecast is worthless."""
    basis = forecast.ladder
    if not basis.is_usable:
        missed = [c.words for c in basis.caught if c.is_needed and c.by_tokens is None]
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
        that = "that " if catch.words[0].isalpha() else ""
        yield f"a run {that}{catch.words}: {when}"
    yield (
        f"each with {POWER:.0%} of such runs caught, by simulation with the rungs' own noise; "
        "verify exits 0 only where a run 5 % too high and one that stopped learning would have "
        "been caught by then"
    )
