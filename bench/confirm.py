"""Does a campaign's best hold on seeds nobody has looked at?

``python -m bench.confirm runs/cpu-tiny`` trains the incumbent and the baseline on fresh common
seeds and prints the paired difference beside what the campaign had claimed. The claim was selected;
this is not.
"""

from __future__ import annotations

import math
import tempfile
from pathlib import Path
from statistics import fmean, stdev
from typing import Annotated

import typer

from agent.search.campaign import read_campaign_row
from agent.settings.campaign import CampaignSettings
from agent.workbench.corpora import prepared_corpus
from autoresearch.layout import HISTORY_FILE, JOURNAL_FILE
from trainer.corpus import Corpus
from trainer.executors.local import LocalExecutor
from trainer.spec import Config, TrialOk, TrialSpec
from trajectory.history.store import History

FRESH = 900_000_000
"""Beyond every seed a campaign draws."""


def main(
    campaign: Path, seeds: Annotated[int, typer.Option(min=2, help="Fresh common seeds.")] = 6
) -> None:
    """Train the incumbent and the baseline again, on seeds the campaign never used."""
    from rich.console import Console

    settings = CampaignSettings.from_toml(campaign / "campaign.toml")
    row = read_campaign_row(campaign)
    if row is None:
        raise typer.BadParameter(f"{campaign} holds no campaign")
    corpus = prepared_corpus(settings, Console())
    with History.open(campaign / HISTORY_FILE, campaign / JOURNAL_FILE, readonly=True) as history:
        evidence = history.evidence()
    baseline = evidence.configs[evidence.baseline_hash or ""]
    incumbent = evidence.configs[evidence.incumbent_hash or ""]
    common = baseline.scores.keys() & incumbent.scores.keys()
    claimed = fmean(incumbent.scores[seed] - baseline.scores[seed] for seed in common)
    differences = []
    with LocalExecutor() as executor, tempfile.TemporaryDirectory() as scratch:
        for seed in range(FRESH, FRESH + seeds):
            scores = [
                _score(executor, settings, corpus, config, seed, Path(scratch) / f"{seed}-{name}")
                for name, config in (("new", incumbent.config), ("old", baseline.config))
            ]
            differences.append(scores[0] - scores[1])
            typer.echo(f"seed {seed}: {scores[0]:.4f} against {scores[1]:.4f}")
    stderr = stdev(differences) / math.sqrt(seeds)
    typer.echo(
        f"iteration {incumbent.iter} claimed {claimed:+.4f} bpb; on {seeds} fresh seeds it is "
        f"{fmean(differences):+.4f} ± {stderr:.4f}"
    )


def _score(
    executor: LocalExecutor,
    settings: CampaignSettings,
    corpus: Corpus,
    config: Config,
    seed: int,
    trial_dir: Path,
) -> float:
    spec = TrialSpec(
        trial_id=trial_dir.name,
        config=config,
        seed=seed,
        corpus_dir=str(corpus.directory),
        corpus_sha256=corpus.info.sha256,
        budget=settings.budget,
        horizon_steps=settings.horizon_steps,
        backend=settings.backend,
        device=settings.device,
        threads=settings.threads,
    )
    result = executor.run(spec, trial_dir).result
    if not isinstance(result, TrialOk):
        raise SystemExit(f"seed {seed} ended as {result.status}: {result.message}")
    return result.val_bpb


if __name__ == "__main__":
    typer.run(main)
