"""Check that every conclusion and every abandoned confirmation counts as an interim analysis."""

from __future__ import annotations

import hashlib
from types import SimpleNamespace
from typing import Any

import pytest

from agent.search.confirm.experiment import Confirmation, ConfirmPlan
from agent.search.confirm.texts import FreshTexts
from tests.support.confirmed import told
from tests.support.memories import MENU
from tests.support.rows import at, baseline_row, campaign_row, iteration_row, ok, trial
from trainer.spec import Config, ScoredText, TextPart, TextScore, gpt
from trajectory.confirmed import Confirmed, ConfirmText
from trajectory.evidence import Evidence
from trajectory.rows import ConfirmedRow, ConfirmRow

BASELINE = MENU.baseline
CHOICE = gpt(MENU.apply(BASELINE, {"lr": 2e-3}))
OTHER = gpt(MENU.apply(BASELINE, {"lr": 3e-3}))


def text(name: str) -> ScoredText:
    sha256 = hashlib.sha256(name.encode()).hexdigest()
    parts = (TextPart(tokens=101, bytes=400),) * 16
    return ScoredText(name=name, path=f"/{name}", sha256=sha256, parts=parts)


class Campaign:
    """A stand-in with the parts of a campaign that a conclusion uses."""

    def __init__(self) -> None:
        rows = [
            campaign_row(),
            *(baseline_row(n + 1, 3.1, n, BASELINE) for n in range(5)),
            iteration_row(1, CHOICE, (trial(9, CHOICE, 0, ok(3.0)),)),
        ]
        self.evidence = Evidence(rows)
        self.settings = SimpleNamespace(seed=0)
        self.history = SimpleNamespace(newest=self._newest)
        self._told: list[ConfirmedRow] = []
        self._runs: list[ConfirmRow] = []

    def _newest(self, kind: type[Any], limit: int | None = None) -> list[Any]:
        return self._told[::-1] if kind is ConfirmedRow else self._runs[::-1]

    def watched(
        self, done: int, asked: int | None, name: str | None, choice: Config = CHOICE, rank: int = 1
    ) -> None:
        """Add a confirmation on this text that was stopped after ``done`` of its seeds; None: on
        the score of the search, as a script's runs are."""
        campaign: Any = self
        plan = ConfirmPlan.of(campaign, top=1, seeds=asked or done)
        scored = text(name or "")
        for config, place in ((BASELINE, 9), (choice, rank)):
            for seed in plan.seeds[:done]:
                score = TextScore(
                    sha256=scored.sha256,
                    val_bpb=3.0,
                    val_bytes=scored.bytes,
                    val_tokens=scored.tokens - 16,
                    parts_bpb=(3.0,) * 16,
                )
                run = trial(100 + seed, config, seed, ok(3.0, texts=(score,)), "confirm")
                self._runs.append(
                    ConfirmRow(
                        at=at(0),
                        rank=place,
                        texts=(scored.sha256,) if name else (),
                        seeds=asked,
                        config=config,
                        config_hash=config.config_hash,
                        trial=run,
                    )
                )

    def analyses(self, seeds: int, *names: str) -> int:
        """Return the number of earlier analyses of a confirmation on these texts, and record it."""
        campaign: Any = self
        plan = ConfirmPlan.of(campaign, top=1, seeds=seeds)
        texts = tuple(map(text, names))
        nobody: Any = None
        work = Confirmation(
            campaign=campaign,
            plan=plan,
            texts=FreshTexts(scored=texts, train_tokens=None, lines=()),
            runner=nobody,
            watcher=nobody,
            meter=nobody,
        )
        chosen = plan.finalists[0].ranked
        analyses = work.analyses()
        found = Confirmed(
            seeds=plan.seeds,
            texts=tuple(
                ConfirmText(name=each.name, sha256=each.sha256, bytes=each.bytes, parts=16)
                for each in texts
            ),
            earlier_analyses=analyses,
            configs=(told(chosen.config_hash),),
        )
        self._told.append(ConfirmedRow(at=at(0), found=found))
        return analyses


def test_one_text_after_another_is_a_look_each() -> None:
    """Choosing the best of six texts gives six chances, whatever the texts share."""
    campaign = Campaign()
    assert [campaign.analyses(6, f"text {n}") for n in range(6)] == [0, 1, 2, 3, 4, 5]


def test_what_was_asked_before_is_told_again_and_no_further_look() -> None:
    campaign = Campaign()
    assert campaign.analyses(6, "own", "other") == 0
    assert campaign.analyses(6, "own", "other") == 0
    assert campaign.analyses(6, "own") == 0
    assert campaign.analyses(8, "own") == 1
    assert campaign.analyses(6, "own", "other") == 0


@pytest.mark.parametrize(("seen", "asked"), [(2, 6), (4, 6), (4, 12), (11, 12)])
def test_whoever_ends_one_when_it_looks_good_has_looked(seen: int, asked: int) -> None:
    """Stopping early and asking for the seeds seen so far chooses by their scores. That choice
    could follow any seed but the first. bench/confirm_interim.py makes the same assumption."""
    campaign = Campaign()
    campaign.watched(seen, asked, "own")
    assert campaign.analyses(seen, "own") == seen - 1
    assert campaign.analyses(seen, "own") == seen - 1
    assert campaign.analyses(asked, "own") == 1  # the conclusion above; the runs are its own


def test_the_runs_of_a_script_are_no_earlier_analysis_of_their_own_conclusion() -> None:
    campaign = Campaign()
    campaign.watched(6, 6, None)
    assert campaign.analyses(6) == 0
    assert campaign.analyses(6) == 0
    stopped = Campaign()
    stopped.watched(4, 12, None)
    assert stopped.analyses(4) == 3


def test_ended_early_on_one_of_the_texts_it_counts_too() -> None:
    campaign = Campaign()
    campaign.watched(4, 12, "own")
    assert campaign.analyses(4, "own", "other") == 3


def test_one_seed_shows_nothing() -> None:
    campaign = Campaign()
    campaign.watched(1, 12, "own")
    assert campaign.analyses(6, "own") == 0


def test_one_that_is_gone_on_with_is_no_further_look() -> None:
    campaign = Campaign()
    campaign.watched(4, 6, "own")
    assert campaign.analyses(6, "own") == 0
    assert campaign.analyses(8, "own") == 1


def test_what_is_left_before_its_last_run_was_seen_as_well() -> None:
    """This covers a series of texts, more seeds after few, and another choice after a bad one."""
    texts = Campaign()
    for number in range(6):
        texts.watched(5, 6, f"text {number}")
    assert texts.analyses(6, "text 6") == 6
    more = Campaign()
    for asked in (6, 8, 10):
        more.watched(asked - 1, asked, "own")
    assert more.analyses(12, "own") == 3
    other = Campaign()
    other.watched(5, 6, "own", choice=OTHER)
    assert other.analyses(6, "own") == 1


def test_a_conclusion_on_another_text_is_a_look_of_its_own() -> None:
    campaign = Campaign()
    assert campaign.analyses(12, "other") == 0
    campaign.watched(4, 12, "own")
    assert campaign.analyses(4, "own") == 1 + 3


def test_neither_the_baseline_nor_those_behind_the_first_are_looked_at() -> None:
    """Their reported intervals already hold for all configs together."""
    campaign = Campaign()
    campaign.watched(4, 6, "own", choice=OTHER, rank=3)
    campaign.watched(4, 6, "own")
    assert campaign.analyses(6, "own") == 0
