"""Edits of a campaign's space: what proposals may set changes, and the evidence stays."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from agent.commands.campaign_view import CampaignView
from agent.menu.edits import edited
from agent.menu.files import parse_menu
from agent.menu.rails import Rails
from agent.proposers.draws import RandomProposer
from agent.proposers.llm.prompt import Prompter
from agent.proposers.llm.reply_form import example_text, proposal_schema
from agent.proposers.sampler import SamplerProposer
from agent.proposers.surrogate.observed import Observed, Scores
from agent.proposers.surrogate.space import Space
from agent.search.stopping import Goal, StopRequest
from autoresearch.errors import CampaignError, MenuError
from tests.support.memories import memory_of
from tests.support.nights import WORLD, work
from trainer.schema import Budget
from trajectory.space import add_edit, edits_in

MENU = WORLD.menu
FREEZE = {"frozen": True}
NEW = {"type": "float", "low": 0.0, "high": 0.5}


def rows(directory: Path, kind: str = "iteration") -> list[dict[str, Any]]:
    lines = (directory / "campaign" / "trajectory.jsonl").read_bytes().splitlines()
    return [row for row in map(json.loads, lines) if row["kind"] == kind]


def test_a_running_loop_takes_edits_up_and_earlier_evidence_stays(tmp_path: Path) -> None:
    campaign = tmp_path / "campaign"
    asked: list[float] = []

    def edit(_trial: str, _stop: StopRequest) -> None:
        if len(rows(tmp_path)) >= 20 and not asked:
            view = CampaignView(campaign)
            reference = view.space()[1]
            now = float(reference.value("lr") or 0)
            asked.append(now)
            heads = sorted({int(reference.value("n_head") or 0), 4, 8})
            narrow = {"low": now / 1.5, "high": now * 1.5}
            decay = {"high": 0.01 + float(reference.value("weight_decay") or 0)}
            knobs = {"lr": narrow, "n_head": {"choices": heads}, "weight_decay": decay}
            view.edit_space(knobs, "ada")
            view.edit_space({"beta2": {"frozen": True}, "lr_min_ratio": NEW}, "bo")

    work(tmp_path, Goal(iterations=50), proposer=SamplerProposer, at_trial=edit)
    (now,), (first, second) = asked, rows(tmp_path, "space")
    assert (first["author"], second["knobs"]) == (
        "ada",
        {"beta2": {"frozen": True}, "lr_min_ratio": NEW},
    )
    assert edits_in(campaign) == []
    lines = [json.loads(one) for one in (campaign / "trajectory.jsonl").read_bytes().splitlines()]
    place = lines.index(second)
    after = [row for row in lines[place:] if row["kind"] == "iteration" and row["config"]]
    assert len(after) >= 20
    assert all(now / 1.5 <= row["config"]["lr"] <= now * 1.5 for row in after)
    kept = {row["config"]["beta2"] for row in after}
    assert len(kept) == 1
    assert len({row["config"]["lr_min_ratio"] for row in after}) > 1
    menu, best = CampaignView(campaign).space()[0], CampaignView(campaign).top(1000)
    values = [
        (name, menu.knob_value(one.config, name))
        for one in best
        for name in ("lr", "n_head", "weight_decay")
    ]
    assert any(not menu.allows(*one) for one in values), "some were measured outside it"
    assert all(menu.domains[name].contains(one) for name, one in values), "and are learned from"
    work(tmp_path, Goal(iterations=56), proposer=SamplerProposer)
    later = [row for row in rows(tmp_path)[50:] if row["config"]]
    assert later
    assert all(now / 1.5 <= row["config"]["lr"] <= now * 1.5 for row in later)
    assert {row["config"]["beta2"] for row in later} == kept


@pytest.mark.parametrize(
    "knobs",
    [
        {"lr": 0.003},
        {"lr": {"low": 2e-3}},  # the reference has 1e-3
        {"lr": {"low": 1e-2, "high": 1e-4}},
        {"lr": {"low": -1.0}},
        {"lr": {"high": float("inf")}},
        {"lr": {"default": 1e-3}},
        {"lr": {"type": "choice", "choices": [1e-3, 1.0]}},
        {"lr": {"frozen": True, "low": 1e-3}},
        {"lr": {"frozen": "yes"}},
        {"activation": {"choices": ["gelu", "no such word"]}},
        {"no_such_knob": {"low": 1}},
        {"lr_min_ratio": {"low": 0.0}},
        {"lr_min_ratio": {"type": "float", "low": 0.2, "high": 0.5}},
        {"lr_min_ratio": {"frozen": True}},
        {name: {"frozen": True} for name in MENU.knobs},
    ],
)
def test_an_edit_that_no_search_could_use_is_refused(knobs: dict[str, Any]) -> None:
    with pytest.raises(MenuError):
        edited(MENU, knobs, MENU.baseline)


def test_the_domain_keeps_what_was_allowed_and_the_baseline_stays() -> None:
    menu = edited(MENU, {"lr": {"high": 1e-1}, "d_model": {"low": 96, "high": 128}})
    menu = edited(menu, {"lr": {"low": 1e-3, "high": 1e-2}, "activation": {"frozen": True}})
    menu = edited(menu, {"batch_size": {"type": "int", "choices": [4, 8]}, "lr_min_ratio": NEW})
    assert (menu.baseline, menu.sha256) == (MENU.baseline, MENU.sha256)
    assert (menu.domains["lr"].table()["low"], menu.domains["lr"].table()["high"]) == (1e-4, 1e-1)
    assert menu.open_domains["lr"].table()["high"] == 1e-2
    assert menu.domains["d_model"] == MENU.domains["d_model"]
    assert "activation" not in menu.open_domains
    assert edited(menu, {"activation": {"frozen": False}}).open_domains.keys() == menu.knobs.keys()
    rails, names = Rails(menu, budget=menu.campaign.budget), []
    for changes in ({"activation": "swiglu"}, {"lr": 2e-2}, {"d_model": 160}, {"batch_size": 2}):
        verdict = rails.check(json.dumps({"changes": changes, "reason": ""}), menu.baseline).verdict
        names.append(verdict.rail)
    assert names == ["menu", "range", "range", "range"]
    new = json.dumps({"changes": {"lr_min_ratio": 0.2, "lr": 2e-3}, "reason": ""})
    assert rails.check(new, menu.baseline).verdict.allowed


def test_a_damaged_file_of_edits_is_refused_and_a_row_written_before_a_kill_counts_once(
    tmp_path: Path,
) -> None:
    work(tmp_path, Goal(iterations=1), baseline_seeds=2)
    campaign = tmp_path / "campaign"
    with pytest.raises(MenuError):
        CampaignView(campaign).edit_space({"no_such_knob": {"frozen": True}})
    assert edits_in(campaign) == []
    CampaignView(campaign).edit_space({"lr": {"frozen": True}}, "ada")
    waiting = (campaign / "space.json").read_bytes()
    work(tmp_path, Goal(iterations=2), baseline_seeds=2)
    (campaign / "space.taken.json").write_bytes(waiting)
    work(tmp_path, Goal(iterations=3), baseline_seeds=2)
    assert len(rows(tmp_path, "space")) == 1
    assert not (campaign / "space.taken.json").exists()
    (campaign / "space.json").write_text("[{}]")
    with pytest.raises(CampaignError):
        CampaignView(campaign).edit_space({"lr": {"frozen": False}})


def test_an_edit_that_the_reference_has_left_is_noted_and_lanes_are_drained(
    tmp_path: Path,
) -> None:
    work(tmp_path, Goal(iterations=1), baseline_seeds=2)
    campaign = tmp_path / "campaign"
    edit = CampaignView(campaign).edit_space({"lr": {"low": 5e-4, "high": 2e-3}}, "ada")
    add_edit(campaign, edit.model_copy(update={"knobs": {"lr": {"low": 5e-3, "high": 1e-2}}}))
    work(tmp_path, Goal(iterations=12), lanes=3, baseline_seeds=2, asks_early=True)
    assert [row["knobs"] for row in rows(tmp_path, "space")] == [edit.knobs]
    assert sum(row["event"] == "note" for row in rows(tmp_path, "event")) == 1
    configs = [row["config"] for row in rows(tmp_path)[1:] if row["config"]]
    assert configs
    assert all(5e-4 <= config["lr"] <= 2e-3 for config in configs)


def test_every_proposer_offers_only_the_edited_space() -> None:
    now = memory_of(40)
    reference = now.reference
    rate, layers = float(reference.value("lr") or 0), int(reference.value("n_layer") or 0)
    choices = {"type": "choice", "choices": sorted({layers, 3, 4})}
    knobs = {"lr": {"low": rate / 1.2, "high": rate * 1.2}, "n_layer": choices, "norm": FREEZE}
    menu = edited(now.menu, {**knobs, "lr_min_ratio": NEW}, reference)
    rails = Rails(menu, budget=Budget())
    allowed = {"lr", "n_layer", "lr_min_ratio"}
    for iteration in range(now.iter, now.iter + 20):
        view = replace(now, menu=menu, iter=iteration)
        assert Scores.of(view, Space.of(menu.domains), Observed.of(view.evidence).measured).values
        for proposer in (SamplerProposer(rails), RandomProposer(rails)):
            changes = proposer.propose(view).reply.changes
            assert "norm" not in changes
            assert all(menu.open_domains[name].contains(one) for name, one in changes.items())
        offered = json.loads(example_text(view, Budget()))["changes"]
        assert all(menu.allows(one["knob"], one["value"]) for one in offered)
    schema = json.dumps(proposal_schema(view))
    assert '"norm"' not in schema
    assert all(f'"{name}"' in schema for name in allowed)
    asked = Prompter(Budget()).prompt(view).messages[0].content
    assert str(menu.open_domains["lr"]) in asked
    assert str(menu.domains["lr"]) not in asked
    learned = Scores.of(view, Space.of(menu.domains), Observed.of(view.evidence).measured)
    assert len(learned.values) == len(Observed.of(view.evidence).measured), "all of them"


def test_a_constant_of_a_command_becomes_a_knob() -> None:
    menu = parse_menu(OWN, "own")
    menu = edited(menu, {"momentum": {"type": "float", "low": 0.5, "high": 0.99}}, menu.baseline)
    rails = Rails(menu, budget=menu.campaign.budget)
    checked = rails.check('{"changes": {"momentum": 0.8}, "reason": ""}', menu.baseline)
    assert checked.config is not None
    assert checked.config.value("momentum") == 0.8


OWN = """
name = "own"
[trainer]
command = "python train.py --lr {lr} --momentum {momentum} --seed {seed}"
score = "val loss"
[constants]
momentum = 0.9
[knobs.lr]
type = "float"
low = 1e-4
high = 1e-2
default = 1e-3
"""
