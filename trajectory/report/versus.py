"""Compare two campaigns: settings, findings, and whether their numbers may be compared.

Two scores may be compared only if both campaigns measured alike: the same held-out text or script,
budget, schedule and backend. Then the winners' fresh runs are compared, because the search's own
claims favor whatever was lucky. With common seeds, the interval is Student's t over the differences
by seed; otherwise the two means vary independently. It holds for the scored text, not for others.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from statistics import fmean, variance
from typing import Any

from autoresearch.plain_text import plain
from autoresearch.values import Finite, Frozen, PositiveInt
from trajectory.confirmation import FEWEST_SEEDS, LEVEL
from trajectory.confirmed import OWN_SCORE, SEARCH_TEXT
from trajectory.report.compared_campaign import ComparedCampaign, Found
from trajectory.statistics.population import Posterior

_LONGEST = 120


class Differs(Frozen):
    """A value that differs; None where one campaign has none."""

    name: str
    a: str | None
    b: str | None


class Gap(Frozen):
    """Difference between the confirmed winners, A's objective minus B's: negative is better for
    A."""

    delta: Finite
    lo: Finite
    """95 % interval."""
    hi: Finite
    text: str
    seeds: PositiveInt
    """Seeds of the campaign with fewer of them."""
    paired: bool
    """Whether both were measured on the same seeds."""


class Versus(Frozen):
    """Campaign A compared with campaign B."""

    a: Found
    b: Found
    protocol: tuple[Differs, ...]
    settings: tuple[Differs, ...]
    menu: tuple[Differs, ...]
    machine: tuple[Differs, ...]
    comparable: bool
    why_not: tuple[str, ...]
    gap: Gap | None
    conclusion: str

    def facts(self) -> Iterator[tuple[str, str]]:
        """Yield the comparison as labels and lines."""
        for side, found in (("A", self.a), ("B", self.b)):
            yield side, f"{found.directory}, menu {found.menu}"
            yield f"{side} found", f"{found.kept} of {found.iterations} kept; best: {found.best}"
            yield f"{side} gain", f"claimed {found.claimed}; {found.confirmed}"
        for name in ("protocol", "settings", "menu", "machine"):
            values: tuple[Differs, ...] = getattr(self, name)
            yield from ((name, f"{one.name}: {one.a or '-'} | {one.b or '-'}") for one in values)
            if not values:
                yield name, "the same"
        yield "compare", self.conclusion


def compare_campaigns(a: Path, b: Path) -> Versus:
    """Compare two campaigns by their journals.

    :raises JournalError: if a journal is damaged.
    :raises CampaignError: if a campaign has no first row.
    """
    left, right = ComparedCampaign(a), ComparedCampaign(b)
    protocol = _differences(left.protocol(), right.protocol())
    machine = _differences(
        {**left.row.hardware, **left.row.versions}, {**right.row.hardware, **right.row.versions}
    )
    why_not = tuple(f"{one.name} differs" for one in protocol)
    if left.row.budget.unit == "seconds" and left.row.hardware != right.row.hardware:
        why_not += ("the budget is in seconds and the hardware differs",)
    gap = None if why_not else _gap(left, right)
    return Versus(
        a=left.found(),
        b=right.found(),
        protocol=protocol,
        settings=_differences(left.settings(), right.settings()),
        menu=_differences(left.menu(), right.menu()),
        machine=machine,
        comparable=not why_not,
        why_not=why_not,
        gap=gap,
        conclusion=_conclusion(left, right, why_not, gap),
    )


def _differences(a: Mapping[str, Any], b: Mapping[str, Any]) -> tuple[Differs, ...]:
    names = [*a, *(name for name in b if name not in a)]
    return tuple(
        Differs(name=plain(name), a=_shown(a.get(name)), b=_shown(b.get(name)))
        for name in names
        if a.get(name) != b.get(name)
    )


def _shown(value: Any) -> str | None:
    if value is None:
        return None
    if isinstance(value, dict):
        text = ", ".join(f"{name} {_shown(one)}" for name, one in value.items())
    else:
        text = plain(str(value))
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"


def _gap(a: ComparedCampaign, b: ComparedCampaign) -> Gap | None:
    """Return the difference of the confirmed winners; None without fresh runs of both."""
    if a.confirmed is None or b.confirmed is None:
        return None
    theirs = {text.sha256 for text in b.confirmed.texts}
    text = next((one for one in a.confirmed.texts if one.sha256 in theirs), None)
    ours, others = (one.fresh_scores(text.sha256 if text else "") for one in (a, b))
    common = sorted(ours.keys() & others.keys())
    if min(len(ours), len(others)) < FEWEST_SEEDS:
        return None
    paired = len(common) >= FEWEST_SEEDS
    samples = (
        [[ours[s] - others[s] for s in common]]
        if paired
        else [[*ours.values()], [*others.values()]]
    )
    delta = fmean(samples[0]) - (0.0 if paired else fmean(samples[1]))
    parts = tuple((variance(one) / len(one), len(one) - 1.0) for one in samples)
    analyses = 1 + max(a.confirmed.earlier_analyses, b.confirmed.earlier_analyses)
    half = Posterior(delta, parts).half_interval(1 - (1 - LEVEL) / analyses)
    own = OWN_SCORE if a.row.script else SEARCH_TEXT
    return Gap(
        delta=delta,
        lo=delta - half,
        hi=delta + half,
        text=text.name if text else own,
        seeds=min(len(one) for one in samples),
        paired=paired,
    )


def _conclusion(
    a: ComparedCampaign, b: ComparedCampaign, why_not: tuple[str, ...], gap: Gap | None
) -> str:
    if why_not:
        return f"their numbers may not be compared: {', '.join(why_not)}"
    if gap is None:
        lacking = [str(one.directory) for one in (a, b) if one.confirmed is None]
        if lacking:
            which = " and ".join(lacking)
            return (
                "their scores may be compared, but only confirmed ones should be; run autoresearch "
                f"confirm --campaign for {which}"
            )
        return "both are confirmed, but fewer than two seeds of each winner were measured"
    measure = a.row.measured_in
    winner = "no winner: the interval contains 0"
    if gap.hi < 0 or gap.lo > 0:
        winner = "A is better" if gap.hi < 0 else "B is better"
    seeds = f"{gap.seeds} {'common ' if gap.paired else ''}fresh seeds"
    return (
        f"{winner}; confirmed A minus confirmed B: {measure.signed(gap.delta)} {measure.short} "
        f"({measure.signed_span(gap.lo, gap.hi)}) on {seeds}, scored on the text {gap.text!r}"
    )
