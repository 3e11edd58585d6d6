"""Format an attribution as lines, and its numbers as text."""

from __future__ import annotations

from collections.abc import Iterator

from autoresearch.words import scalar_text
from funnel.attribution.result import AttributionResult, ChangeWorth
from funnel.attribution.worth import Estimate
from trainer.spec import BPB, Measure


def lines(result: AttributionResult, measure: Measure = BPB) -> Iterator[str]:
    """Yield the table, and how to read it."""
    yield f"gain      {estimate_text(result.gain)} against the baseline"
    width = max(len(_change_text(change)) for change in result.changes)
    for change in result.changes:
        said = worth_words(change)
        yield f"          {_change_text(change):<{width}}  {said}"
    yield f"remainder {estimate_text(result.remainder)}: interactions, and what was not measured"
    yield (
        f"          {measure.unit} after {result.steps} steps, 95 % intervals over "
        f"{len(result.seeds)} seeds that chose nothing; above zero helps"
    )


def worth_words(change: ChangeWorth) -> str:
    """Return an estimate and its verdict."""
    if change.worth is None:
        return f"not measured: {change.why_not}"
    if change.worth.is_exact:
        return "0: it trains alike to the last bit"
    verdict = (
        "helps" if change.worth.helps else "harms" if change.worth.harms else "not told from zero"
    )
    return f"{estimate_text(change.worth)}: {verdict}"


def estimate_text(estimate: Estimate | None) -> str:
    """Format an estimate: ``+0.0123 (+0.0041 … +0.0205)``."""
    if estimate is None:
        return "not measured"
    if estimate.is_exact:
        return "0, exactly"
    if estimate.low is None or estimate.high is None:
        return f"{estimate.value:+.4f} (one seed: no interval)"
    return f"{estimate.value:+.4f} ({estimate.low:+.4f} … {estimate.high:+.4f})"


def _change_text(change: ChangeWorth) -> str:
    return f"{change.knob} {scalar_text(change.baseline)} → {scalar_text(change.winner)}"
