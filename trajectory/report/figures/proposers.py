"""Each proposer's share of iterations, and its hit rate."""

from __future__ import annotations

from dataclasses import dataclass

from trajectory.report.canvas import DISCARD, INK, KEEP, Picture, bare, sheet
from trajectory.report.figures.figure import WHO, Figure
from trajectory.report.findings import Findings
from trajectory.report.reading.ledger import Ledger, Workload
from trajectory.report.wording import label
from trajectory.statistics.intervals import Estimate, of_share
from trajectory.track_record import TrackRecord, credit_text

MOST = 12
"""The most kinds drawn; the ones with most iterations."""


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of proposer."""

    kind: str
    models: tuple[str, ...]
    record: TrackRecord
    """Its track record, including iterations for which it gave no proposal."""
    share: Estimate
    """The share of all iterations that used its proposal."""
    hit_rate: Estimate | None
    """The share of its iterations whose proposal was its own and kept; None if it had no
    iterations."""
    share_of_keeps: Estimate | None
    """Its share of all kept proposals; None if nothing was kept."""
    measured: int
    """Its iterations that ended with a score."""
    refused: int
    """Its iterations that the rails refused."""
    work: Workload

    @property
    def latency_s(self) -> float:
        """Mean over the iterations that it was to propose for."""
        return self.work.latency_s / self.record.assigned

    @property
    def iterations(self) -> int:
        """Iterations that used its proposal."""
        return self.hit_rate.n if self.hit_rate else 0

    @property
    def refused_replies(self) -> int:
        """Exchanges with a language model that gave no usable proposal."""
        return sum(self.record.refused.values())

    @property
    def tried_before(self) -> int:
        """Replies that were refused because their config had been tried."""
        return self.record.refused.get("novelty", 0)


@dataclass(frozen=True)
class Proposers(Figure):
    """Each kind's share of the iterations, and its hit rate with its interval."""

    name = "proposers"
    section = WHO
    caption = (
        "Hit rate: kept proposals as a share of all that a proposer made; bars are Wilson's 95 % "
        "intervals. A kept suggestion that a model only repeated counts for no proposer. This "
        "campaign cannot distinguish proposers whose bars overlap widely."
    )

    kinds: tuple[Kind, ...]
    """The kind with most iterations first."""
    credit: str = ""
    """Advantage of a language model's arms over the search, with intervals."""

    @classmethod
    def of(cls, found: Findings) -> Proposers | None:
        kinds = _kinds(found.ours.ledger) if found.ours else ()
        if not kinds or found.ours is None:
            return None
        return cls(kinds, credit_text(found.ours.ledger.evidence.tally.credits))

    @property
    def alt(self) -> str:
        return "; ".join(
            f"{one.kind}: {one.share.value:.0%} of iterations, {one.record.kept} kept"
            for one in self._drawn
        )

    @property
    def asked(self) -> list[Kind]:
        """Kinds with replies of a language model."""
        return [one for one in self.kinds if one.record.replies]

    @property
    def _drawn(self) -> list[Kind]:
        return [one for one in self.kinds if one.hit_rate is not None][:MOST]

    @property
    def shows(self) -> bool:
        return bool(self._drawn)

    def draw(self) -> Picture:
        drawn = self._drawn
        figure = sheet(0.34 * len(drawn) + 0.95)
        left, right = figure.subplots(1, 2, sharey=True, gridspec_kw={"wspace": 0.08})
        places = range(len(drawn))
        left.set_title("share of iterations")
        left.barh(places, [100 * one.share.value for one in drawn], height=0.5, color=DISCARD.light)
        right.set_title("hit rate: kept of its own, 95 % interval")
        for place, one in enumerate(drawn):
            rate = one.hit_rate
            assert rate is not None
            assert rate.lo is not None
            assert rate.hi is not None
            right.plot(
                [100 * rate.lo, 100 * rate.hi], [place, place], color=KEEP.light, linewidth=2
            )
            right.plot(
                [100 * rate.value], [place], "o", color=KEEP.light, markeredgewidth=0, clip_on=False
            )
        left.set_yticks(places, [f"{one.kind}\nn={one.iterations}" for one in drawn])
        left.tick_params(axis="y", labelcolor=INK.light)
        left.set_ylim(len(drawn) - 0.4, -0.6)
        left.set_xlim(0, 100)
        right.set_xlim(left=0)
        for axes in (left, right):
            axes.set_xlabel("%")
            bare(axes)
        return Picture(self.name, self.alt, figure)


def _kinds(ledger: Ledger) -> tuple[Kind, ...]:
    records = ledger.evidence.tally.track_records
    keeps = sum(iteration.outcome == "keep" for iteration in ledger.iterations)
    found = []
    for kind, work in ledger.workloads.items():
        iterations = [iteration for iteration in ledger.iterations if iteration.kind == kind]
        kept = records[kind].kept
        share = of_share(len(iterations), len(ledger.iterations))
        if share is None:
            continue
        found.append(
            Kind(
                kind=label(kind, 20),
                models=tuple(label(model, 60) for model in sorted(work.models)),
                record=records[kind],
                share=share,
                hit_rate=of_share(kept, len(iterations)),
                share_of_keeps=of_share(kept, keeps),
                measured=sum(iteration.mean is not None for iteration in iterations),
                refused=sum(iteration.outcome == "refused" for iteration in iterations),
                work=work,
            )
        )
    return tuple(sorted(found, key=lambda one: -one.share.value))
