"""Check that concurrent trials that may exceed the machine's memory are reported before they
start."""

from __future__ import annotations

from pathlib import Path

import pytest

from agent.menu.files import load_menu
from agent.search.campaign_settings import new_settings
from agent.settings.campaign import CampaignSettings
from agent.workbench.greeting import Phase, crowding, epochs_text, phases_of, warnings
from tests.support.campaigns import Toy
from tests.support.rows import campaign_row
from trainer.memory.estimate import parameter_count
from trainer.spec import Budget


@pytest.mark.parametrize(("lanes", "trial_gib"), [(1, 100.0), (4, None), (4, 6.0)])
def test_what_fits_is_not_spoken_of(lanes: int, trial_gib: float | None) -> None:
    assert crowding(lanes, trial_gib, total_gib=28.0, reserve_gib=4.0) == ""


def test_what_does_not_fit_names_what_would() -> None:
    assert "--trial-memory-gib 6.0 or less" in crowding(4, 8.0, total_gib=28.0, reserve_gib=4.0)
    assert crowding(4, 8.0, total_gib=3.0, reserve_gib=4.0)


MENU = load_menu("cpu-tiny")


def settings(**changes: object) -> CampaignSettings:
    return new_settings(MENU, "cpu-tiny", {}).model_copy(update=changes)


def test_each_phase_by_hand() -> None:
    a_step = MENU.baseline.tokens_per_step
    short, stress, ladder, target = phases_of(
        MENU, settings(budget=Budget(amount=60), horizon_steps=300), 10**9
    )
    assert short == Phase(name="60 steps a trial", tokens=60 * a_step)
    assert stress == Phase(name="stress of 300 steps", tokens=300 * a_step)
    tables = (1024 + MENU.baseline.seq_len) * MENU.baseline.d_model
    gains = (2 * MENU.baseline.n_layer + 1) * MENU.baseline.d_model
    blocks = parameter_count(MENU.baseline, 1024) - tables - gains
    assert ladder.tokens == 20 * blocks, "as a ladder counts them: without the tables"
    assert target == Phase(name="target", tokens=10**9)
    assert epochs_text(target.tokens / 10**6) == "1,000"


def test_seconds_are_no_number_of_tokens_and_tokens_are() -> None:
    in_seconds = phases_of(MENU, settings(budget=Budget(unit="seconds", amount=300)))
    assert [one.name.split()[0] for one in in_seconds] == ["stress", "ladder"]
    in_tokens = phases_of(MENU, settings(budget=Budget(unit="tokens", amount=10**6)))
    assert next(in_tokens).tokens == 10**6


def test_four_epochs_are_as_good_as_new_and_sixteen_are_worth_nothing() -> None:
    corpus = campaign_row().corpus
    tokens = corpus.train_tokens

    def said(times: float) -> list[str]:
        phase = Phase(name="target", tokens=round(times * tokens))
        return list(warnings((phase,), corpus.model_copy(update={"train_tokens": tokens})))

    assert said(4) == []
    warned = ["sixteen" in text for times in (5, 15, 17) for text in said(times)]
    assert warned == [False, False, True]


@pytest.mark.slow
def test_a_small_corpus_is_told_before_the_first_trial(tmp_path: Path) -> None:
    small = tmp_path / "small"
    small.mkdir()
    for number in range(20):
        (small / f"{number}.txt").write_text(f"document {number:02d}\n" + "about the loss " * 60)
    done = Toy(tmp_path / "toy").loop(0, f"--corpus={small}")
    lines = done.stdout.splitlines()
    size, epochs = (
        next(i for i, line in enumerate(lines) if line.startswith(word))
        for word in ("size ", "epochs ")
    )
    warned = [i for i, line in enumerate(lines) if "is too small for ladder" in line]
    assert warned, done.stdout
    first = next(i for i, line in enumerate(lines) if line.startswith("baseline"))
    assert size < epochs < warned[0] < first
