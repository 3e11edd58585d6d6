"""One pass over a journal that keeps only what the report needs of each row.

Ten thousand rows with their raw replies are tens of megabytes. The ledger keeps a few numbers of an
iteration, and compresses its texts as it reads them (:mod:`trajectory.report.details`). From these
it gives the iterations, hit rate and replies of each kind of proposer.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from autoresearch.errors import JournalError
from autoresearch.values import Scalar
from trainer.schema import TrialFailed
from trajectory.evidence import ConfigEvidence
from trajectory.journal import read_rows
from trajectory.reading import Results
from trajectory.report.details import DetailBook, details_of
from trajectory.report.iterations import Outcome, ReportedIteration, Spent
from trajectory.report.wording import label
from trajectory.rows import (
    BaselineRow,
    CampaignRow,
    ConfirmRow,
    IterationRow,
    Row,
    StressRow,
)
from trajectory.statistics.intervals import Estimate, of_share
from trajectory.track_record import TrackRecord, credit_text


@dataclass(slots=True)
class Workload:
    """Usage of one kind of proposer, for kept and refused proposals alike. Its track record in the
    evidence lacks these numbers."""

    latency_s: float = 0.0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    fallbacks: int = 0
    """Proposals that it made in another proposer's place."""
    models: set[str] = field(default_factory=set)


_ACTIVITY: dict[type, str] = {
    BaselineRow: "search",
    IterationRow: "search",
    StressRow: "stress",
    ConfirmRow: "fresh",
}


class Ledger(Results):
    """A campaign's results, and what the report keeps of each row besides."""

    def __init__(self, campaign: CampaignRow) -> None:
        super().__init__()
        self.row = campaign
        self.iterations: list[ReportedIteration] = []
        self.details = DetailBook()
        self.workloads: defaultdict[str, Workload] = defaultdict(Workload)
        self.repeats = 0
        """Iterations that trained a config which an earlier one had proposed."""
        self.calibration = Spent()
        """Time spent on the baseline's replicates."""
        self.calibration_wh: float | None = None
        self.active_s = dict.fromkeys(("search", "stress", "fresh"), 0.0)
        """Busy time in seconds by the clock; trials that ran at the same time count once."""
        self.last_at = campaign.created_at
        self._reference: dict[str, Scalar] = {}
        """Canonical form of the config that the next proposal edits."""

    @property
    def baseline(self) -> ConfigEvidence | None:
        """The baseline; None before its first row."""
        return self.evidence.configs.get(self.evidence.baseline_hash or "")

    def add(self, row: Row) -> float:
        """Enter one row, in the journal's order; see :meth:`Results.add`."""
        if isinstance(row, IterationRow):
            self._iteration(row)
        elif isinstance(row, BaselineRow):
            self.calibration.add_trial(row.trial)
            energy_wh = getattr(row.trial.result, "energy_wh", None)
            if energy_wh is not None:
                self.calibration_wh = (self.calibration_wh or 0.0) + energy_wh
        if not isinstance(row, CampaignRow):
            self.last_at = row.at
        reigns = len(self.reigns)
        active_s = super().add(row)
        if kind := _ACTIVITY.get(type(row)):
            self.active_s[kind] += active_s
        if len(self.reigns) > reigns and (self.row.reference == "incumbent" or not reigns):
            self._reference = self.evidence.configs[self.reigns[-1].config_hash].config.said
        return active_s

    def _iteration(self, row: IterationRow) -> None:
        known = self.evidence.configs.get(row.config_hash or "")
        self.repeats += bool(row.trials and known)
        self._work(row)
        decision = row.decision
        outcome: Outcome = "failed" if row.trials else "refused"
        results = (trial.result for trial in row.trials if trial.role == "candidate")
        if any(isinstance(one, TrialFailed) and one.status == "pruned" for one in results):
            outcome = "pruned"
        if decision.action == "keep":
            outcome = "keep"
        elif decision.estimate_objective is not None:
            outcome = "discard"
        spent, proposing = Spent(), row.proposer.latency_s
        for trial in row.trials:
            spent.add_trial(trial)
        if row.lanes is None:  # with lanes, wall time includes waiting for one
            rest = max(0.0, row.wall_s - spent.total)
            proposing = min(proposing, rest)  # a model may have answered during the trial before
            spent.other += rest - proposing
        spent.proposing = proposing
        self.iterations.append(
            ReportedIteration(
                iter=row.iter,
                kind=row.proposer.kind,
                outcome=outcome,
                config_hash=row.config_hash,
                changed=row.proposal.changes if row.proposal else {},
                mean=decision.estimate_objective,
                runs=max(1, decision.pairs),
                delta=decision.delta,
                stderr=decision.stderr,
                spent=spent,
                energy_wh=row.energy_wh,
            )
        )
        self.details.add(details_of(row, self._reference, self.row.measured_in))

    def _work(self, row: IterationRow) -> None:
        proposer = row.proposer
        work = self.workloads[proposer.kind]
        asked = work if proposer.fallback is None else self.workloads[proposer.failed_kind]
        waited_s = sum(attempt.latency_s for attempt in proposer.attempts)
        work.latency_s += proposer.latency_s
        if asked is not work:
            work.fallbacks += 1
            work.latency_s -= waited_s
            asked.latency_s += waited_s
        if proposer.model:
            asked.models.add(proposer.model)
        for attempt in proposer.attempts:
            asked.prompt_tokens += attempt.prompt_tokens or 0
            asked.completion_tokens += attempt.completion_tokens or 0


def read_ledger(journal: Path, also: Callable[[Row], None] | None = None) -> Ledger:
    """Return the ledger of a journal, to which a running loop may be writing.

    :param also: also receives every row, so that the journal is read only once.
    :raises JournalError: if the journal is damaged or has no row yet.
    """
    ledger: Ledger | None = None
    for row in read_rows(journal):
        if ledger is None:
            if not isinstance(row, CampaignRow):  # read_rows has checked this
                break
            ledger = Ledger(row)
        ledger.add(row)
        if also is not None:
            also(row)
    if ledger is None:
        raise JournalError(f"{journal} holds no row yet; start it with: autoresearch loop")
    return ledger


@dataclass(frozen=True, slots=True)
class ProposerKind:
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

    kinds: tuple[ProposerKind, ...]
    """The kind with most iterations first."""
    credit: str = ""
    """Advantage of a language model's arms over the search, with intervals."""

    @classmethod
    def of(cls, ledger: Ledger) -> Proposers | None:
        """Return them; None if there are none."""
        keeps = sum(iteration.outcome == "keep" for iteration in ledger.iterations)
        kinds = []
        for kind, work in ledger.workloads.items():
            iterations = [iteration for iteration in ledger.iterations if iteration.kind == kind]
            record = ledger.evidence.track_records[kind]
            share = of_share(len(iterations), len(ledger.iterations))
            if share is None:
                continue
            kinds.append(
                ProposerKind(
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
    def asked(self) -> list[ProposerKind]:
        """Kinds with replies of a language model."""
        return [one for one in self.kinds if one.record.replies]
