"""Read the facts of one campaign that a comparison with another needs."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

from autoresearch.errors import CampaignError
from autoresearch.files import read_given
from autoresearch.layout import JOURNAL_FILE, SETTINGS_FILE
from autoresearch.plain_text import plain
from autoresearch.values import Frozen, NonNegativeInt
from autoresearch.words import changes_text
from trainer.spec import TrialFailed, TrialOk, difference
from trajectory import ranking
from trajectory.reading import Results
from trajectory.rows import (
    ConfirmedRow,
    ConfirmRow,
    EvaluationProtocol,
    IterationRow,
    Row,
)

_SEARCH_ONLY = {"reference", "seed"}
"""Fields of the evaluation protocol that decide what is searched, not what a score means."""
_PROTOCOL = (
    *(name for name in EvaluationProtocol.model_fields if name not in _SEARCH_ONLY),
    "train_tokens",
)
"""Fields of the first row that decide what a score means, beside the text, script and measure."""
_ABOUT_ITSELF = {"kind", "schema_", "id", "created_at", "sandbox", "corpus", "script", "measure"}
_APART = {"menu_name", "menu_sha256", "menu_toml", "versions", "hardware"}


class Found(Frozen):
    """Hold the findings of one campaign."""

    directory: str
    campaign_id: str
    menu: str
    iterations: NonNegativeInt
    kept: NonNegativeInt
    best: str
    """Changes of its best config from its baseline."""
    claimed: str
    """Estimated difference of the best config from the baseline, by the search's own runs."""
    confirmed: str
    """Result of its latest confirmation."""


class ComparedCampaign(Results):
    """A campaign's results, as far as a comparison needs them."""

    def __init__(self, directory: Path) -> None:
        """Read the journal.

        :raises JournalError: if it is damaged.
        :raises CampaignError: if it has no first row.
        """
        self.directory, self.kept = directory, 0
        super().__init__(directory / JOURNAL_FILE)
        row = self.campaign()
        if row is None:
            raise CampaignError(f"{directory} has no first row yet; compare it once it has begun")
        self.row = row
        self.confirmed = next((row.found for row in self.newest(ConfirmedRow, 1)), None)

    def add(self, row: Row) -> None:
        """See :meth:`Results.add`."""
        self.kept += isinstance(row, IterationRow) and row.decision.action == "keep"
        super().add(row)

    def found(self) -> Found:
        """Return what the campaign found."""
        baseline = self.evidence.configs.get(self.evidence.baseline_hash or "")
        measure, best = self.row.measured_in, next(iter(ranking.top(self.evidence, 1)), None)
        claimed = "nothing"
        if best is not None and best.delta_vs_baseline is not None:
            claimed = f"{measure.signed(best.delta_vs_baseline)} {measure.short}"
            if best.delta_lo is not None and best.delta_hi is not None:
                claimed += f" ({measure.signed_span(best.delta_lo, best.delta_hi)})"
        changed = difference(best.config, baseline.config) if best and baseline else {}
        return Found(
            directory=str(self.directory),
            campaign_id=self.row.id,
            menu=self.row.menu_name,
            iterations=self.evidence.iterations,
            kept=self.kept,
            best=plain(changes_text(changed)) or "the baseline",
            claimed=claimed,
            confirmed=self.confirmed.headline if self.confirmed else "nothing is confirmed yet",
        )

    def protocol(self) -> dict[str, Any]:
        """Return the facts that decide what a score means."""
        row = self.row
        facts = {"measure": f"{row.measured_in.unit}, {row.measured_in.better}"}
        if row.corpus:
            facts |= {"held-out text": row.corpus.heldout_sha256, "corpus": row.corpus.sha256}
            facts |= {"tokenizer": row.corpus.tokenizer}
        if row.script:
            facts |= {"script": row.script.sha256, "command": " ".join(row.script.command)}
            facts |= {"check": " ".join(row.script.check)} if row.script.check else {}
        return facts | {name: getattr(row, name) for name in _PROTOCOL}

    def settings(self) -> dict[str, Any]:
        """Return the other settings."""
        left_out = {*_ABOUT_ITSELF, *_APART, *_PROTOCOL}
        own = {name: value for name, value in self.row if name not in left_out}
        path = self.directory / SETTINGS_FILE
        try:
            kept = tomllib.loads(read_given(path).decode()) if path.exists() else {}
        except (OSError, ValueError) as error:
            raise CampaignError(f"{path} cannot be read ({error}); restore or remove it") from error
        known = {*_PROTOCOL, "menu", "corpus", "tokenizer", *own}
        return own | {name: value for name, value in kept.items() if name not in known}

    def menu(self) -> dict[str, Any]:
        """Return the parts of a menu by name, such as ``knobs.lr`` or ``constants.d_model``."""
        try:
            menu = tomllib.loads(self.row.menu_toml)
        except ValueError as error:
            raise CampaignError(
                f"the menu of campaign {self.row.id} is not TOML ({error})"
            ) from error
        parts: dict[str, Any] = {}
        for name, value in menu.items():
            if isinstance(value, dict) and name not in {"trainer", "campaign"}:
                parts |= {f"{name}.{inner}": _without_doc(one) for inner, one in value.items()}
            elif name == "constraints" and isinstance(value, list):
                parts[name] = [_without_doc(one) for one in value]
            elif name not in {"name", "doc", "campaign"}:
                parts[name] = value
        return parts

    def fresh_scores(self, text: str) -> dict[int, float]:
        """Return the objective of the confirmed winner by seed, on the text with this SHA-256, or
        on the search's own text if it is empty."""
        found = self.confirmed
        if found is None:
            return {}
        scores = {}
        for trial in (row.trial for row in reversed(self.newest(ConfirmRow))):
            if (
                trial.config_hash == found.chosen.config_hash
                and trial.seed in found.seeds
                and not isinstance(trial.result, TrialFailed)
            ):
                texts = trial.result.texts if isinstance(trial.result, TrialOk) else ()
                on = {"": trial.result.objective, **{one.sha256: one.val_bpb for one in texts}}
                if text in on:
                    scores[trial.seed] = on[text]
        return scores


def _without_doc(value: Any) -> Any:
    return {k: v for k, v in value.items() if k != "doc"} if isinstance(value, dict) else value
