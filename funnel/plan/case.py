"""Read a campaign's evidence for its finalists: the search, the cull, the long runs, the noise."""

from dataclasses import dataclass
from pathlib import Path

from agent.menu.files import menu_of
from autoresearch.errors import HandoffError
from autoresearch.layout import JOURNAL_FILE
from autoresearch.program import quote
from autoresearch.values import Finite, Frozen, NonNegativeInt, PositiveInt
from trainer.schema import Config, CurvePoint, gpt
from trajectory import ranking
from trajectory.confirmed import Confirmed, ConfirmedConfig
from trajectory.curves import read_curve
from trajectory.longruns import STANDING, LongRuns, RankingTest, gather, ranking_test
from trajectory.ranking import Noise, Ranked
from trajectory.reading import Results
from trajectory.rows import (
    CampaignRow,
    ConfirmedRow,
    Finalist,
    FinalistsRow,
    StressRow,
)


class PlannedFinalist(Frozen):
    """A finalist of the stress test."""

    config: Config
    standing: Finalist
    horizon_steps: PositiveInt
    """Steps of its long runs' schedule."""

    @property
    def config_hash(self) -> str:
        return self.standing.config_hash


class Search(Frozen):
    """Counts of the search."""

    iterations: NonNegativeInt
    refused: NonNegativeInt
    """Proposals that led to no trial."""
    trials: NonNegativeInt
    """Short runs, the failed ones included."""
    configs: NonNegativeInt
    """Distinct configs with a measurement."""
    failed: NonNegativeInt
    """Short runs that ended without a measurement."""
    kept: NonNegativeInt
    """Iterations whose config was kept."""
    sigma_bpb: Finite | None
    """Sd of one short run within a config; None if nothing was replicated."""
    sigma_dof: NonNegativeInt
    """Degrees of freedom of ``sigma_bpb``."""
    stressed: NonNegativeInt
    """Candidates that had long runs, without the baseline."""
    survived: NonNegativeInt
    """Those of them whose long runs survived, finalists or not."""


@dataclass(frozen=True, slots=True)
class LaunchCase:
    """The evidence that a launch plan rests on."""

    directory: Path
    row: CampaignRow
    search: Search
    ranked: tuple[Ranked, ...]
    """The best configs of the short runs, best first."""
    stress_steps: int
    long_runs: tuple[LongRuns, ...]
    """All long runs of the latest stress test's length, in order of rank."""
    candidates: tuple[PlannedFinalist, ...]
    """The finalists, best first; at least one."""
    ranking_test: RankingTest | None
    """None if no stress test had a spread."""
    confirmations: tuple[Confirmed, ...] = ()
    """Confirmations, newest first."""

    @property
    def confirmed(self) -> tuple[Confirmed, ConfirmedConfig] | None:
        """The latest confirmation that included the winner, and its result for the winner.

        Long runs choose the winner, so a confirmation need not include it. None if none does.
        """
        for found in self.confirmations:
            if config := found.config_of(self.candidates[0].config_hash):
                return found, config
        return None

    @property
    def confirmed_words(self) -> str:
        """The winner's confirmation on fresh seeds, as a clause."""
        if self.confirmed is not None:
            found, config = self.confirmed
            return found.said_of(config)
        winner = self.candidates[0].config_hash
        if winner == menu_of(self.row).baseline.config_hash:
            return "nothing to confirm: the winner is the baseline"
        ranks = [runs.rows[0].rank for runs in self.long_runs if runs.config.config_hash == winner]
        return (
            "not measured: no confirmation had the winner; "
            f"autoresearch confirm --top {max(ranks, default=3)} would"
        )

    def curve(self, trial_id: str) -> list[CurvePoint]:
        """Return a trial's learning curve; empty if it left none."""
        return read_curve(self.directory, trial_id)


def read_case(directory: Path, *, top: int = 10) -> LaunchCase:
    """Return the evidence of the campaign in this directory for its finalists.

    :param top: number of best configs to include in ``ranked``.
    :raises HandoffError: if the campaign trains with its own command, has no finished stress test,
        or no config survived the latest one.
    """
    results = Results(directory / JOURNAL_FILE)
    first, evidence = results.campaign, results.evidence
    if first is None:
        raise HandoffError(f"{directory} holds an empty journal; start with: autoresearch loop")
    if first.script is not None:
        raise HandoffError(
            f"{directory} trains with a command of its own ({first.script.command[0]} …), and a "
            "launch plan needs what only that script knows, such as the model's shape; carry the "
            "winner's knobs over in the script itself, see: autoresearch top"
        )
    stress, finalists = results.newest(StressRow), results.newest(FinalistsRow)
    command = f"autoresearch stress --campaign {quote(directory)}"
    if not finalists:
        raise HandoffError(
            f"{directory} has no finished stress test, and a launch plan is made from its long "
            f"runs; run: {command}"
        )
    ended = finalists[0]
    if not ended.finalists:
        raise HandoffError(
            f"no config of {directory} survived its latest stress test of {ended.steps} steps, so "
            f"there is nothing to launch; try more of them with: {command} --top 10"
        )
    runs = gather(stress, ended.steps)
    ranked = ranking.top(evidence, len(evidence.configs))
    noise = Noise.of(evidence)
    return LaunchCase(
        directory=directory,
        row=first,
        search=_search(results, noise, runs),
        ranked=tuple(ranked[:top]),
        stress_steps=ended.steps,
        long_runs=tuple(sorted(runs.values(), key=lambda entry: entry.rows[0].rank)),
        candidates=tuple(_candidate(standing, runs) for standing in ended.finalists),
        ranking_test=ranking_test(ranked, stress, finalists),
        confirmations=tuple(row.found for row in results.newest(ConfirmedRow)),
    )


def _candidate(standing: Finalist, runs: dict[str, LongRuns]) -> PlannedFinalist:
    entry = runs.get(standing.config_hash)
    scored = [row for row in entry.rows if row.trial.objective is not None] if entry else []
    if entry is None or not scored:
        raise HandoffError(
            f"the finalist {standing.config_hash[:12]} has no long run in the journal, which was "
            "edited; restore it from a copy, or run autoresearch stress again"
        )
    return PlannedFinalist(
        config=gpt(entry.config),
        standing=standing,
        horizon_steps=max(getattr(row.trial.result, "steps", 0) or 0 for row in scored),
    )


def _search(results: Results, noise: Noise | None, runs: dict[str, LongRuns]) -> Search:
    entries = results.evidence.configs.values()
    failed = sum(len(entry.failures) for entry in entries)
    stressed = [
        entry for entry in runs.values() if any(row.purpose == "candidate" for row in entry.rows)
    ]
    return Search(
        iterations=results.evidence.iterations,
        refused=results.untrained,
        trials=sum(entry.n for entry in entries) + failed,
        configs=sum(entry.n > 0 for entry in entries),
        failed=failed,
        kept=results.kept,
        sigma_bpb=noise.sigma if noise else None,
        sigma_dof=noise.dof if noise else 0,
        stressed=len(stressed),
        survived=sum(entry.verdict.outcome in STANDING for entry in stressed),
    )
