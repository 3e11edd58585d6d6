"""Say how far the search's ranking can be trusted."""

from collections.abc import Iterator
from typing import Any

from trajectory.calibrated import Correlation
from trajectory.longruns import RankingTest
from trajectory.statistics.fidelity import MIN_CONFIGS


def fidelity_lines(test: RankingTest) -> Iterator[str]:
    """Yield the correlations with their intervals, their meaning, and what was left out."""
    found = test.fidelity
    if found is None:
        yield (
            f"ranking   {test.n} configs at even ranks have long runs of {test.steps} steps, too "
            f"few (or too alike) for a correlation: it takes {MIN_CONFIGS}; use --spread with more"
        )
    else:
        yield (
            f"ranking   short runs against {test.steps} steps, n = {found.n} configs spread over "
            f"it: Spearman {_interval(found.spearman)}, Kendall {_interval(found.kendall)}"
        )
        right = found.concordance
        said = (
            f"of two configs the night ranks, the better one is the better at {test.steps} steps "
            f"{right.value:.0%} of the time ({right.lo:.0%} to {right.hi:.0%}); a coin gives 50%"
        )
        rest = (
            ": so few configs cannot tell this ranking from chance"
            if found.kendall.lo <= 0
            else ". Among the best few, who differ by less than the noise, it is less"
        )
        yield f"          {said}{rest}"
    if test.nonfinite:
        yield (
            f"          {test.nonfinite} of them became non-finite in the long run and rank last"
        )
    if test.left_out:
        yield (
            f"          {test.left_out} more ran out of memory or time, or are no longer ranked, "
            "and are left out"
        )


def fidelity_json(test: RankingTest | None) -> dict[str, Any] | None:
    """Return the same as JSON fields."""
    if test is None:
        return None
    found = test.fidelity
    return {
        "steps": test.steps,
        "n": test.n,
        "nonfinite": test.nonfinite,
        "left_out": test.left_out,
        "spearman": found.spearman.model_dump() if found else None,
        "kendall": found.kendall.model_dump() if found else None,
        "concordance": found.concordance.model_dump() if found else None,
    }


def _interval(correlation: Correlation) -> str:
    return f"{correlation.value:.2f} ({correlation.lo:.2f} … {correlation.hi:.2f})"
