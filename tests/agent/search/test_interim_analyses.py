import hashlib
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest

from agent.search.confirmation import Confirmation
from agent.search.confirmation_plan import ConfirmPlan, FreshTexts
from tests.support.confirmed import told
from tests.support.memories import MENU
from tests.support.rows import at, baseline_row, campaign_row, iteration_row, ok, trial
from trainer.schema import Config, ScoredText, TextPart, TextScore, gpt
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
        self.results = SimpleNamespace(newest=self._newest)
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


class Stopped(NamedTuple):
    """A confirmation that was stopped: the seeds run, those asked for, and its text."""

    done: int
    asked: int
    name: str | None
    choice: Config = CHOICE
    rank: int = 1


Ended = tuple[int, tuple[str, ...], int]
"""A confirmation that concluded: its seeds, its texts, and the analyses before it."""
OWN, BOTH = ("own",), ("own", "other")


@pytest.mark.parametrize(
    "steps",
    [
        pytest.param([(6, (f"text {n}",), n) for n in range(6)], id="one text after another"),
        pytest.param(
            [(6, BOTH, 0), (6, BOTH, 0), (6, OWN, 0), (8, OWN, 1), (6, BOTH, 0)],
            id="what was answered before is no further analysis",
        ),
        pytest.param([Stopped(6, 6, None), (6, (), 0), (6, (), 0)], id="a script's own runs"),
        pytest.param([Stopped(4, 12, None), (4, (), 3)], id="a script's runs, ended early"),
        pytest.param([Stopped(4, 12, "own"), (4, BOTH, 3)], id="ended early on one of the texts"),
        pytest.param([Stopped(1, 12, "own"), (6, OWN, 0)], id="one seed shows nothing"),
        pytest.param([Stopped(4, 6, "own"), (6, OWN, 0), (8, OWN, 1)], id="resumed"),
        pytest.param(
            [*(Stopped(5, 6, f"text {n}") for n in range(6)), (6, ("text 6",), 6)],
            id="texts abandoned before their last run",
        ),
        pytest.param(
            [*(Stopped(n - 1, n, "own") for n in (6, 8, 10)), (12, OWN, 3)],
            id="more seeds after few",
        ),
        pytest.param(
            [Stopped(5, 6, "own", OTHER), (6, OWN, 1)], id="another choice after a bad one"
        ),
        pytest.param(
            [(12, ("other",), 0), Stopped(4, 12, "own"), (4, OWN, 1 + 3)],
            id="a conclusion on another text",
        ),
        pytest.param(
            [Stopped(4, 6, "own", OTHER, 3), Stopped(4, 6, "own"), (6, OWN, 0)],
            id="configs behind the first, whose intervals hold for all together",
        ),
        # A choice by the scores of the seeds seen so far could follow any seed but the first.
        *(
            pytest.param(
                [Stopped(seen, asked, "own"), *[(seen, OWN, seen - 1)] * 2, (asked, OWN, 1)],
                id=f"ended after {seen} of {asked} seeds",
            )
            for seen, asked in ((2, 6), (4, 6), (4, 12), (11, 12))
        ),
    ],
)
def test_each_interim_analysis_counts_once(steps: Sequence[Stopped | Ended]) -> None:
    campaign = Campaign()
    for step in steps:
        if isinstance(step, Stopped):
            campaign.watched(*step)
        else:
            seeds, names, earlier = step
            assert campaign.analyses(seeds, *names) == earlier
