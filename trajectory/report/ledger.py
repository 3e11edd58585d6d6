"""One pass over a journal that keeps only what the report needs of each row.

Ten thousand rows with their raw replies are tens of megabytes. The ledger keeps a few numbers of an
iteration, and compresses its texts as it reads them (:mod:`trajectory.report.details`).
"""

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from autoresearch.errors import JournalError
from autoresearch.values import Scalar
from trajectory.evidence import ConfigEvidence
from trajectory.journal import read_rows
from trajectory.reading import CampaignState
from trajectory.report.details import DetailBook, details_of
from trajectory.report.iterations import Iteration, Outcome, Spent
from trajectory.rows import (
    BaselineRow,
    CampaignRow,
    ConfirmRow,
    EventRow,
    FinalistsRow,
    IterationRow,
    Row,
    StressRow,
)


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


class Ledger(CampaignState):
    """A campaign's state, and what the report keeps of each row besides."""

    def __init__(self, campaign: CampaignRow) -> None:
        super().__init__()
        self.campaign = campaign
        self.iterations: list[Iteration] = []
        self.stress: list[StressRow] = []
        self.finalists: list[FinalistsRow] = []
        self.fresh: list[ConfirmRow] = []
        """The runs of confirmations."""
        self.details = DetailBook()
        self.workloads: defaultdict[str, Workload] = defaultdict(Workload)
        self.repeats = 0
        """Iterations that trained a config which an earlier one had proposed."""
        self.calibration = Spent()
        """Time spent on the baseline's replicates."""
        self.calibration_wh: float | None = None
        self.active_s = dict.fromkeys(("search", "stress", "fresh"), 0.0)
        """Busy time in seconds by the clock; trials that ran at the same time count once."""
        self.interruptions = 0
        self.pauses = 0
        self.last_at = campaign.created_at
        self._reference: dict[str, Scalar] = {}
        """Canonical form of the config that the next proposal edits."""

    @property
    def baseline(self) -> ConfigEvidence | None:
        """The baseline; None before its first row."""
        return self.evidence.configs.get(self.evidence.baseline_hash or "")

    def add(self, row: Row) -> float:
        """Enter one row, in the journal's order; see :meth:`CampaignState.add`."""
        if isinstance(row, IterationRow):
            self._iteration(row)
        elif isinstance(row, BaselineRow):
            self.calibration.add_trial(row.trial)
            energy_wh = getattr(row.trial.result, "energy_wh", None)
            if energy_wh is not None:
                self.calibration_wh = (self.calibration_wh or 0.0) + energy_wh
        elif isinstance(row, StressRow):
            self.stress.append(row)
        elif isinstance(row, FinalistsRow):
            self.finalists.append(row)
        elif isinstance(row, ConfirmRow):
            self.fresh.append(row)
        elif isinstance(row, EventRow):
            self.interruptions += row.event == "interrupted"
            self.pauses += row.event == "paused"
        if not isinstance(row, CampaignRow):
            self.last_at = row.at
        reigns = len(self.reigns)
        active_s = super().add(row)
        if kind := _ACTIVITY.get(type(row)):
            self.active_s[kind] += active_s
        if len(self.reigns) > reigns and (self.campaign.reference == "incumbent" or not reigns):
            self._reference = self.evidence.configs[self.reigns[-1].config_hash].config.said
        return active_s

    def _iteration(self, row: IterationRow) -> None:
        known = self.evidence.configs.get(row.config_hash or "")
        self.repeats += bool(row.trials and known)
        self._work(row)
        decision = row.decision
        outcome: Outcome = "failed" if row.trials else "refused"
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
            Iteration(
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
        self.details.add(details_of(row, self._reference, self.campaign.measured_in))

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
