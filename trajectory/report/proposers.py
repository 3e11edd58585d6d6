"""Each proposer's iterations, hit rate and replies."""

from __future__ import annotations

from dataclasses import dataclass

from trajectory.report.findings import Findings
from trajectory.report.ledger import Workload
from trajectory.report.wording import label
from trajectory.statistics.intervals import Estimate, of_share
from trajectory.track_record import TrackRecord, credit_text


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


@dataclass(frozen=True, slots=True)
class Proposers:
    """The kinds of proposers that a campaign had."""

    kinds: tuple[Kind, ...]
    """The kind with most iterations first."""
    credit: str = ""
    """Advantage of a language model's arms over the search, with intervals."""

    @classmethod
    def of(cls, found: Findings) -> Proposers | None:
        """Return them; None if there are none."""
        ledger = found.ledger
        keeps = sum(iteration.outcome == "keep" for iteration in ledger.iterations)
        kinds = []
        for kind, work in ledger.workloads.items():
            iterations = [iteration for iteration in ledger.iterations if iteration.kind == kind]
            record = ledger.evidence.track_records[kind]
            share = of_share(len(iterations), len(ledger.iterations))
            if share is None:
                continue
            kinds.append(
                Kind(
                    kind=label(kind, 20),
                    models=tuple(label(model, 60) for model in sorted(work.models)),
                    record=record,
                    share=share,
                    hit_rate=of_share(record.kept, len(iterations)),
                    share_of_keeps=of_share(record.kept, keeps),
                    measured=sum(iteration.mean is not None for iteration in iterations),
                    refused=sum(iteration.outcome == "refused" for iteration in iterations),
                    work=work,
                )
            )
        if not kinds:
            return None
        kinds.sort(key=lambda one: -one.share.value)
        return cls(tuple(kinds), credit_text(ledger.evidence.credits))

    @property
    def asked(self) -> list[Kind]:
        """Kinds with replies of a language model."""
        return [one for one in self.kinds if one.record.replies]
