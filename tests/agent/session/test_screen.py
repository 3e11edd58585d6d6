import io
from contextlib import nullcontext
from pathlib import Path

import pytest
import typer
from rich.console import Console

from agent.menu.files import load_menu
from agent.search.campaign import Campaign
from agent.search.campaign_start import new_settings
from agent.search.stopping import Goal
from agent.session import experiments
from agent.session.conclusion import believed_scores
from agent.session.display import Display, night_text
from agent.session.greeting import (
    crowding,
    epochs_text,
    night_tokens,
    phases_of,
    slow_on_cpu,
    warnings,
)
from agent.settings.campaign import CampaignSettings
from tests.support.campaigns import Toy
from tests.support.configs import config
from tests.support.places import NIGHT
from tests.support.rows import baseline_row, campaign_row, iteration_row
from tests.support.simulated.night import no_corpus
from tests.support.trials import trial_spec
from trainer.memory.estimate import parameter_count
from trainer.schema import BPB, Budget, CurvePoint, Measure, Place, gpt
from trajectory.evidence import Evidence
from trajectory.journal import read_rows
from trajectory.ranking import top


@pytest.mark.parametrize(
    ("lanes", "trial_gib", "warns"), [(1, 100.0, 0), (4, None, 0), (4, 6.0, 0), (4, 8.0, 1)]
)
def test_lanes_short_of_memory_are_told(lanes: int, trial_gib: float | None, warns: bool) -> None:
    assert bool(crowding(lanes, trial_gib, shared_gib=24.0)) == warns


MENU = load_menu("cpu-tiny")


def settings(**changes: object) -> CampaignSettings:
    return new_settings(MENU, "cpu-tiny", {}).model_copy(update=changes)


def test_the_tokens_of_each_phase_by_hand() -> None:
    a_step = MENU.baseline.tokens_per_step
    budget = Budget(amount=60)
    phases = phases_of(MENU, settings(budget=budget, horizon_steps=300), 10**9)
    tables = (1024 + MENU.baseline.seq_len) * MENU.baseline.d_model
    gains = (2 * MENU.baseline.n_layer + 1) * MENU.baseline.d_model
    blocks = parameter_count(MENU.baseline, 1024) - tables - gains
    # a ladder counts parameters without the tables
    assert list(phases.values()) == [60 * a_step, 300 * a_step, 20 * blocks, 10**9]
    assert night_tokens(MENU, settings(budget=budget), 100) == 205 * 60 * a_step
    by_the_clock = settings(budget=Budget(unit="seconds", amount=300))
    assert night_tokens(MENU, by_the_clock, 100) is None
    in_seconds = phases_of(MENU, by_the_clock)
    assert [name.split()[0] for name in in_seconds] == ["stress", "ladder"]
    in_tokens = phases_of(MENU, settings(budget=Budget(unit="tokens", amount=10**6)))
    assert next(iter(in_tokens.values())) == 10**6
    assert epochs_text(1000.0) == "1,000"
    corpus = campaign_row().corpus
    assert [len(list(warnings({"target": times}, corpus))) for times in (4, 5, 17)] == [0, 1, 1]


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


POINT = CurvePoint(step=1, tokens=64, loss=5.25, lr=1e-3, grad_norm=1.0, elapsed_s=0.1)
ROWS = list(read_rows(NIGHT / "trajectory.jsonl"))


def test_the_believed_scores_are_those_of_top_in_the_campaigns_direction() -> None:
    evidence = Evidence(ROWS)
    said, (best, *_) = believed_scores(evidence, BPB), top(evidence, 1)
    assert said["incumbent"]["config_hash"] == best.config_hash
    assert said["incumbent"]["score"] == best.objective != best.mean_objective
    assert said["incumbent"]["score_lo"] == best.objective_lo
    assert said["gain"]["score"] == best.delta_vs_baseline
    assert said["baseline"]["iter"] == 0
    assert said["baseline"]["score"] + said["gain"]["score"] == said["incumbent"]["score"]

    turned = believed_scores(evidence, Measure(unit="accuracy", direction="maximise"))
    assert turned["direction"] == "maximise"
    assert turned["incumbent"]["score"] == -said["incumbent"]["score"]
    gain = turned["gain"]
    assert gain["score"] == -said["gain"]["score"]
    assert 0 < gain["score_lo"] < gain["score"] < gain["score_hi"]

    nothing = believed_scores(Evidence(ROWS[:1]), BPB)
    assert (nothing["baseline"], nothing["incumbent"], nothing["gain"]) == (None, None, None)


def test_on_a_terminal_the_running_trials_stand_below_the_lines(tmp_path: Path) -> None:
    settings = new_settings(MENU, "cpu-tiny", {})
    console = Console(file=io.StringIO(), force_terminal=True, width=100)
    corpus = no_corpus(tmp_path)
    with Campaign(tmp_path / "campaign", settings, MENU, corpus, sandbox="none") as campaign:
        display = Display(console, campaign, Goal(iterations=2))
        with display.showing():
            display.trial_started(trial_spec(trial_id="t000001"), "candidate")
            display.trial_placed("t000001", Place(lane="1"))
            display.trial_point("t000001", POINT)
            display.iteration_ended(iteration_row(1, config(lr=2e-3), ()))
    shown = console.file.getvalue()  # type: ignore[attr-defined]
    assert "lane 1" in shown
    assert "loss 5.250" in shown


def test_a_night_s_length_is_told_before_its_first_iteration(tmp_path: Path) -> None:
    settings = new_settings(MENU, "cpu-tiny", {})
    console = Console(file=io.StringIO(), width=200)
    corpus = no_corpus(tmp_path)
    with Campaign(tmp_path / "campaign", settings, MENU, corpus, sandbox="none") as campaign:
        display = Display(console, campaign, Goal(iterations=100), places=2)
        assert night_text(campaign, Goal(iterations=100), 1) == ""
        for seed in (0, 1):
            campaign.write(baseline_row(seed, 3.0, seed, gpt(MENU.baseline)))
        display.proposing(1)
        display.proposing(2)
        assert night_text(campaign, Goal(hours=8.0), 1) == ""
    shown = console.file.getvalue()  # type: ignore[attr-defined]
    # 100 iterations of 1.8 trials of 3.65 s, two at a time
    assert shown.count("5 min") == 1


@pytest.mark.parametrize(("menu", "is_slow"), [("spark-354m", True), ("cpu-tiny", False)])
def test_a_cpu_is_too_slow_for_a_large_model(menu: str, is_slow: bool) -> None:
    chosen = load_menu(menu)
    settings = new_settings(chosen, menu, {"device": "cpu", "threads": 2})
    info = campaign_row().corpus
    assert info is not None
    info = info.model_copy(update={"vocab_size": 50257 if is_slow else 1024})
    assert bool(slow_on_cpu(chosen, settings, info)) == is_slow
    clock = settings.model_copy(update={"budget": Budget(unit="seconds", amount=60)})
    assert slow_on_cpu(chosen, clock, info) == ""


class LongWork:
    """An experiment that takes this long."""

    def __init__(self, hours: float) -> None:
        self.hours = hours

    def expected_left_s(self) -> float:
        return 3600 * self.hours


@pytest.mark.parametrize(
    ("hours", "yes", "seen", "answer", "asks"),
    [
        (0.5, False, True, True, False),
        (2.0, False, True, True, True),
        (2.0, False, True, False, True),
        (2.0, True, True, False, False),
        (2.0, False, False, False, False),
    ],
)
def test_over_an_hour_a_person_at_a_terminal_is_asked(
    hours: float,
    yes: bool,
    seen: bool,
    answer: bool,
    asks: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[str] = []

    def confirm(question: str, **_: object) -> None:
        asked.append(question)
        if not answer:
            raise typer.Abort

    monkeypatch.setattr(experiments, "can_ask", lambda: seen)
    monkeypatch.setattr(experiments.typer, "confirm", confirm)
    with nullcontext() if answer or not asks else pytest.raises(typer.Abort):
        experiments.ask_if_long(LongWork(hours), yes=yes)  # type: ignore[arg-type]
    assert bool(asked) == asks
