"""Every conclusion is a look, whatever text it is on."""

from __future__ import annotations

import hashlib
from types import SimpleNamespace
from typing import Any

from agent.search.confirm.plan import ConfirmPlan, ConfirmSpec, FreshTexts
from agent.search.confirm.runs import Confirmation
from tests.support.confirmed import told
from tests.support.memories import MENU
from tests.support.rows import at, baseline_row, campaign_row, iteration_row, ok, trial
from trainer.spec import ScoredText, TextPart, TextScore
from trajectory.confirmed import Confirmed, ConfirmText
from trajectory.evidence import Evidence
from trajectory.rows import ConfirmedRow, ConfirmRow

BASELINE = MENU.baseline
CHOICE = MENU.apply(BASELINE, {"lr": 2e-3})


def text(name: str) -> ScoredText:
    sha256 = hashlib.sha256(name.encode()).hexdigest()
    parts = (TextPart(tokens=101, bytes=400),) * 16
    return ScoredText(name=name, path=f"/{name}", sha256=sha256, parts=parts)


class Campaign:
    """As much of one as a conclusion asks."""

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

    def watched(self, done: int, asked: int, name: str) -> None:
        """A confirmation on this text that was stopped after so many of its seeds."""
        campaign: Any = self
        plan = ConfirmPlan.of(campaign, top=1, seeds=asked)
        scored = text(name)
        for config in (BASELINE, CHOICE):
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
                        rank=1,
                        texts=(scored.sha256,),
                        seeds=asked,
                        config=config,
                        config_hash=config.config_hash,
                        trial=run,
                    )
                )

    def looks(self, seeds: int, *names: str) -> int:
        """Earlier ones of a confirmation on these texts, which is then told."""
        campaign: Any = self
        plan = ConfirmPlan.of(campaign, top=1, seeds=seeds)
        texts = tuple(map(text, names))
        nobody: Any = None
        work = Confirmation(
            campaign=campaign,
            plan=plan,
            spec=ConfirmSpec(campaign, FreshTexts(scored=texts, train_tokens=None, lines=())),
            runner=nobody,
            watcher=SimpleNamespace(note=print),  # type: ignore[arg-type]
            stop=nobody,
            meter=nobody,
        )
        chosen = plan.finalists[0].ranked
        looks = work.looks()
        found = Confirmed(
            seeds=plan.seeds,
            texts=tuple(
                ConfirmText(name=each.name, sha256=each.sha256, bytes=each.bytes, parts=16)
                for each in texts
            ),
            looks=looks,
            configs=(told(chosen.config_hash),),
        )
        self._told.append(ConfirmedRow(at=at(0), found=found))
        return looks


def test_one_text_after_another_is_a_look_each() -> None:
    """Six texts of which one will do are six chances, whatever they share."""
    campaign = Campaign()
    assert [campaign.looks(6, f"text {n}") for n in range(6)] == [0, 1, 2, 3, 4, 5]


def test_what_was_asked_before_is_told_again_and_no_further_look() -> None:
    campaign = Campaign()
    assert campaign.looks(6, "own", "other") == 0
    assert campaign.looks(6, "own", "other") == 0
    assert campaign.looks(6, "own") == 0
    assert campaign.looks(8, "own") == 1
    assert campaign.looks(6, "own", "other") == 0


def test_whoever_ends_one_when_it_looks_good_has_looked() -> None:
    """With six seeds asked for and four watched, four are asked for: a choice by what was seen."""
    campaign = Campaign()
    campaign.watched(4, 6, "own")
    assert campaign.looks(4, "own") == 3  # after two, three and four seeds it could have ended
    assert campaign.looks(4, "own") == 3
    assert campaign.looks(6, "own") == 1  # the one that was told at four; this is the one begun


def test_one_that_is_gone_on_with_is_no_further_look() -> None:
    campaign = Campaign()
    campaign.watched(4, 6, "own")
    assert campaign.looks(6, "own") == 0
    assert campaign.looks(8, "own") == 1
