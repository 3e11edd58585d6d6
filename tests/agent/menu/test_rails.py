import json
from dataclasses import dataclass
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.menu.files import load_menu, parse_menu
from agent.menu.rails import Checked, Rails
from autoresearch.errors import MenuError
from autoresearch.values import Scalar
from trainer.schema import Budget, Config
from trajectory.proposals import Proposal

MENU = load_menu("cpu-tiny")
SPARK = load_menu("spark-354m")
BASELINE = MENU.baseline
RAILS = Rails(MENU, budget=MENU.campaign.budget, max_changes=3)
GOOD = '{"changes": {"lr": 0.002}, "reason": "a larger step"}'
OTHER = GOOD.replace("0.002", "0.003")


def reply(changes: object, reason: object = "why not") -> str:
    return json.dumps({"changes": changes, "reason": reason})


def check(raw: str) -> Checked:
    return RAILS.check(raw, BASELINE)


def refused_by(rail: str, raw: str, *seen: str, rails: Rails = RAILS) -> Checked:
    """Check that a rail refuses a reply in one plain sentence that names what was seen."""
    checked = rails.check(raw, rails.menu.baseline)
    verdict = checked.verdict
    assert (verdict.allowed, verdict.rail, checked.config) == (False, rail, None), verdict
    assert verdict.why.isascii() or "…" in verdict.why
    assert 0 < len(verdict.why) < 400
    assert "\n" not in verdict.why
    for value in seen:
        assert value in verdict.why
    return checked


@pytest.mark.parametrize(
    "raw",
    [
        GOOD,
        f"  \n{GOOD}\n\n",
        f"```json\n{GOOD}\n```",
        f"<think>Let me see: {{}} ``` and more\n</think>\n{GOOD}",
        f"the template opened it {{}} {OTHER}</think>{GOOD}",
        f"<think>a</think><think>{OTHER}</think>{GOOD}",
        f"<thinking>{OTHER}</thinking>\n{GOOD}<think>late {OTHER}",
        f"[THINK]{OTHER}[/THINK]{GOOD}",
        f"◁think▷{OTHER}◁/think▷{GOOD}",
        f"<seed:think>{OTHER}</seed:think>{GOOD}<|end|>",
        f"<|START_THINKING|>{OTHER}<|END_THINKING|><|START_RESPONSE|>{GOOD}<|END_RESPONSE|>",
        f"<|channel>thought\n{OTHER}<channel|>{GOOD}",
        f"<|channel|>analysis<|message|>{OTHER}<|end|><|start|>assistant<|channel|>final"
        f"<|message|>{GOOD}<|return|>",
        f"```json {GOOD}```",
        f"```\n```json\n{GOOD}\n```\n```",
        f"Sure, {{so}}:\n```json\n{GOOD}\n```\nHope this helps",
        f"{GOOD} {GOOD},",
        f"\ufeff{GOOD}",
        '{"reason": "a larger step", "changes": {"lr": 2e-3}}',
        f"[{GOOD}]",
        GOOD.replace(": ", ":\u00a0"),
        f"\u200b{GOOD}\u202f",
        GOOD.replace("changes", "Changes").replace("reason", "REASON"),
        GOOD.replace('"lr"', '"LR"'),
        GOOD.replace('{"lr": 0.002}', '{"lr": 0.002, "weight_decay": null}'),
        GOOD.replace('{"lr": 0.002}', '[["lr", 0.002]]'),
        GOOD.replace('{"lr": 0.002}', '[{"lr": 0.002}]'),
        GOOD.replace('{"lr": 0.002}', '[{"name": "lr", "value": 0.002}]'),
        GOOD.replace('{"lr": 0.002}', '[{"Parameter": "lr", "new_value": 0.002}]'),
        GOOD.replace('{"lr": 0.002}', '{"knob": "lr", "value": 0.002}'),
        GOOD.replace(
            '{"lr": 0.002}', '[{"knob": "lr", "value": 0.002}, {"knob": "d", "value": null}]'
        ),
        GOOD.replace('{"lr": 0.002}', json.dumps('{"lr": 0.002}')),
        f'<tool_call>\n{{"name": "propose", "arguments": {GOOD}}}\n</tool_call>',
        f'[TOOL_CALLS][{{"name": "propose", "arguments": {GOOD}, "id": "a1"}}]',
        f'{{"name": "propose", "parameters": {json.dumps(GOOD)}}}',
        f'{{"type": "function", "function": {{"name": "f", "arguments": {json.dumps(GOOD)}}}}}',
        f"<function=propose>{GOOD}</function>",
        f'{{"proposal": {GOOD}}}',
        "<tool_call><function=propose><parameter=changes>\n"
        '[{"knob": "lr", "value": 0.002}]\n</parameter>'
        "<parameter=reason>a larger step</parameter></function></tool_call>",
        '<tool_call>propose\n<arg_key>changes</arg_key>\n<arg_value>{"lr": 0.002}</arg_value>\n'
        "<arg_key>reason</arg_key><arg_value>a larger step</arg_value></tool_call>",
        f"<|channel|>commentary<|message|>{OTHER}<|end|><|start|>assistant<|channel|>final"
        f"<|message|>{GOOD}<|return|>",
        "<|channel|>commentary to=functions.propose <|constrain|>json<|message|>"
        + GOOD
        + "<|call|>",
    ],
)
def test_an_object_is_found_whatever_models_wrap_around_it(raw: str) -> None:
    checked = check(raw)
    assert checked.verdict.allowed, checked.verdict.why
    assert checked.verdict.rail is None
    assert checked.proposal == Proposal(changes={"lr": 0.002}, reason="a larger step")
    assert checked.config == MENU.apply(BASELINE, {"lr": 0.002})


def test_a_reason_may_be_500_characters_and_no_more() -> None:
    assert check(reply({"lr": 0.002}, "é" * 500)).verdict.allowed
    assert check(reply({"lr": 0.002}, "")).verdict.allowed
    refused_by("schema", reply({"lr": 0.002}, "é" * 501), "501", "500")


PAIR = {"knob": "lr", "value": 0.002}


@pytest.mark.parametrize(
    "raw",
    [
        " \n\t",
        " " * 10_000_000,
        f"<think>{GOOD}",
        "<|channel|>analysis<|message|>" + GOOD,
        f"a {GOOD}</think>",
        f"{GOOD} or {OTHER}",
        "Try a larger learning rate.",
        "{'changes': {'lr': 0.002}, 'reason': 'x'}",
        '{"changes": {"lr": 0.002,}, "reason": "x"}',
        '{"changes": {"lr": 0.002}, "reason": "x\ny"}',
        "null",
        f"[{GOOD}, {OTHER}]",
        f'<tool_call>{{"name": "f", "arguments": {GOOD}}}</tool_call>'
        f'<tool_call>{{"name": "f", "arguments": {OTHER}}}</tool_call>',
        '{"Changes": {"lr": 0.1}, "reason": "x", "changes": {"lr": 0.002}}',
        '{"reason": "x"}',
        '{"changes": {"lr": 0.002}}',
        '{"changes": {"lr": 0.002}, "reason": "x", "seed": 3}',
        '{"changes": {"lr": 0.1}, "reason": "x", "changes": {"lr": 0.002}}',
        '{"changes": {"lr": 0.1, "l\\u0072": 0.002}, "reason": "x"}',
        reply({}),
        reply([]),
        reply([["lr", 0.002], ["lr", 0.003]]),
        reply([["lr", 0.002, 0.003]]),
        reply([{"name": "lr", "value": 0.002, "reason": "x"}]),
        reply([{"knob": "lr", "value": 0.003}, PAIR]),
        reply([{"knob": "tie", "value": True}, {"knob": "tie", "value": 1}]),
        reply([{"knob": "lr"}]),
        reply([{**PAIR, "why": "x"}]),
        reply("lr=0.002"),
        reply({"lr": None}),
        reply({"lr": {"value": 0.002}}),
        reply({"lr": 0.002}, None),
        reply({"lr": 0.002}, "\x1b[2J"),
        reply({"lr": 0.002}, "a\x85b"),
        '{"changes": {"lr": NaN}, "reason": "x"}',
        '{"changes": {"lr": 0.002}, "reason": "\\ud800"}',
        "\ud800" + GOOD,
        "[" * 99_000,
        '{"a":' * 19_000,
        '{"changes": {"lr": ' + "9" * 5000 + '}, "reason": "x"}',
    ],
)
def test_what_is_not_exactly_one_proposal_is_refused_by_schema(raw: str) -> None:
    assert refused_by("schema", raw).proposal is None


def test_refused_nests_do_not_wear_the_rails_out() -> None:
    for _ in range(50):
        refused_by("schema", "[" * 99_000)
    assert check(GOOD).verdict.allowed


REFUSED = {
    "menu": [
        ('{"lr_warmpu": 5}', "lr_warmpu"),
        ('{"": 1}', '""'),
        ('{"lr": 0.002, "LR": 0.003}', "LR"),
        ('{"precision": "fp32"}', "precision"),
        ('{"precision": "bf16", "lr": 0.002}', "precision"),
        ('{"seed": 3}', "seed"),
        ('{"\\u001b[2J": 3}', "\\u001b[2J"),
        ('{"lr": 0.002, "beta1": 0.8, "beta2": 0.9, "d_ff": 256}', "at most 3"),
        (f'{{"{"x" * 50_000}": 3}}', "xxx"),
    ],
    "range": [
        ('{"n_layer": 7}', "n_layer = 7"),
        ('{"n_layer": 4.5}', "4.5"),
        ('{"n_layer": "3.5"}', "3.5"),
        ('{"n_layer": true}', "true"),
        ('{"n_layer": true, "lr": 0.002}', "n_layer"),
        ('{"d_model": 100}', "d_model"),
        ('{"lr": "3e-4 or so"}', "3e-4 or so"),
        ('{"lr": "nan"}', "nan"),
        ('{"lr": 0}', "lr"),
        ('{"lr": 1e999}', "lr"),
        ('{"weight_decay": -1e-300}', "weight_decay"),
        ('{"activation": "relu"}', "relu"),
        ('{"activation": 0}', "activation"),
        ('{"tie_embeddings": 1}', "tie_embeddings"),
        ('{"n_layer": ' + "9" * 4000 + "}", "n_layer"),
        ('{"lr": 0.002, "n_layer": 7}', "n_layer"),
    ],
    "cross": [('{"batch_size": 16}', "batch_size = 16"), ('{"batch_size": 16}', "seq_len = 128")],
    "novelty": [
        (f'{{"lr": {BASELINE.lr}}}', "changes nothing"),
        ('{"grad_clip": 1, "norm": "layernorm"}', "changes nothing"),
    ],
}


@pytest.mark.parametrize(
    ("rail", "changes", "seen"),
    [(rail, changes, seen) for rail, rows in REFUSED.items() for changes, seen in rows],
)
def test_changes_are_refused_by_the_rail_they_break(rail: str, changes: str, seen: str) -> None:
    checked = refused_by(rail, f'{{"changes": {changes}, "reason": "x"}}', seen)
    if checked.proposal is not None:
        assert Proposal.model_validate_json(checked.proposal.model_dump_json()) == checked.proposal


def test_max_changes_is_the_campaigns_to_choose_and_else_every_knob_may_be_turned() -> None:
    one, free = (Rails(MENU, budget=MENU.campaign.budget, max_changes=most) for most in (1, None))
    refused_by("menu", reply({"lr": 0.002, "beta1": 0.8}), "at most 1", rails=one)
    drawn = {name: domain.draw(Random(0)) for name, domain in MENU.domains.items()}
    changes = {name: value for name, value in drawn.items() if value != MENU.defaults[name]}
    assert len(changes) > 10
    assert free.check(reply(changes), MENU.baseline).verdict.rail != "menu"


def test_the_trainers_own_checks_are_a_rail() -> None:
    toml = MENU.toml.replace("choices = [2, 4, 8]", "choices = [2, 4, 6]")
    rails = Rails(parse_menu(toml, "odd"), budget=MENU.campaign.budget)
    refused_by("cross", reply({"n_head": 6}), "d_model 128", "n_head 6", rails=rails)
    fits = reply({"n_head": 6, "d_model": 192, "n_layer": 2})
    assert rails.check(fits, BASELINE).verdict.allowed


def test_a_constraint_on_steps_follows_the_campaigns_budget() -> None:
    short = Rails(SPARK, budget=Budget(amount=30))
    clock = Rails(SPARK, budget=Budget(unit="seconds", amount=30))
    raw = reply({"lr_warmup": 26})
    refused_by("cross", raw, "budget_steps = 30", "lr_warmup = 26", rails=short)
    assert clock.check(raw, SPARK.baseline).verdict.allowed


def test_a_budget_under_which_nothing_could_pass_is_refused_at_once() -> None:
    with pytest.raises(MenuError, match="budget_steps"):
        Rails(SPARK, budget=Budget(amount=9))


@dataclass(frozen=True)
class PerToken:
    """A device of 8 GiB on which a step takes this much memory per token, if known."""

    gib_per_token: float | None
    limit_gib: float = 8.0

    def predict_gib(self, config: Config) -> float | None:
        return self.gib_per_token and self.gib_per_token * config.tokens_per_step


def test_what_will_not_fit_is_refused_by_memory() -> None:
    tight = Rails(SPARK, budget=SPARK.campaign.budget, memory=PerToken(1 / 2048))
    unknown = Rails(SPARK, budget=SPARK.campaign.budget, memory=PerToken(None))
    large, fitting = reply({"seq_len": 2048, "n_layer": 8}), reply({"lr": 1e-3})
    refused_by("memory", large, "16.00 GiB", "8.00 GiB", rails=tight)
    assert tight.check(fitting, SPARK.baseline).verdict.allowed
    assert unknown.check(large, SPARK.baseline).verdict.allowed


def test_a_config_already_tried_is_refused() -> None:
    config = check(GOOD).config
    assert config is not None
    again = RAILS.check(GOOD, BASELINE, {config.config_hash})
    assert (again.verdict.rail, again.config) == ("novelty", None)
    assert config.config_hash[:12] in again.verdict.why


def test_the_same_config_by_another_edit_is_not_new() -> None:
    tried = {MENU.apply(BASELINE, {"lr": 0.002, "n_layer": 3}).config_hash}
    reference = MENU.apply(BASELINE, {"n_layer": 3})
    assert RAILS.check(GOOD, reference, tried).verdict.rail == "novelty"
    assert RAILS.check(GOOD, BASELINE, tried).verdict.allowed
    zero = {MENU.apply(BASELINE, {"weight_decay": 0}).config_hash}
    assert RAILS.check(reply({"weight_decay": -0.0}), BASELINE, zero).verdict.rail == "novelty"


def test_restated_values_are_no_changes_and_are_named_apart() -> None:
    said = {"lr": 0.002, "beta1": BASELINE.beta1, "n_layer": 4, "norm": "layernorm", "grad_clip": 1}
    checked = check(reply(said))
    assert checked.verdict.allowed, "five knobs are named, and one is turned"
    assert checked.config == MENU.apply(BASELINE, {"lr": 0.002})
    assert checked.proposal is not None
    assert checked.proposal.changes == {"lr": 0.002}
    assert checked.proposal.restated == {k: v for k, v in said.items() if k != "lr"}


def test_what_is_restated_is_the_references_and_not_the_menus_default() -> None:
    reference = MENU.apply(BASELINE, {"lr": 0.002})
    back = RAILS.check(reply({"lr": BASELINE.lr}), reference)
    assert back.verdict.allowed
    same = RAILS.check(reply({"lr": 0.002}), reference)
    assert same.verdict.rail == "novelty"
    assert same.proposal is not None
    assert (same.proposal.changes, same.proposal.restated) == ({}, {"lr": 0.002})


@pytest.mark.parametrize(
    ("knob", "said", "value"),
    [
        ("lr", "0.002", 0.002),
        ("lr", " 3e-4", 3e-4),
        ("n_layer", 3.0, 3),
        ("n_layer", "3", 3),
        ("n_layer", "3.0", 3),
        ("tie_embeddings", "true", True),
        ("tie_embeddings", "False", False),
    ],
)
def test_a_value_is_read_as_its_knobs_type(knob: str, said: object, value: Scalar) -> None:
    proposal = check(reply({knob: said})).proposal
    assert proposal is not None
    taken = (proposal.changes | proposal.restated)[knob]
    assert (taken, type(taken)) == (value, type(value))


def test_a_list_of_changes_is_read_as_an_object_is() -> None:
    """Two of ten replies of a real model of 135 M parameters said one thing twice, with no other
    fault."""
    pairs = [PAIR, {"value": "rmsnorm", "knob": "norm"}, PAIR]
    checked = check(json.dumps({"reason": "x", "changes": pairs}))
    assert checked.proposal is not None
    assert checked.proposal.changes == {"lr": 0.002, "norm": "rmsnorm"}
    assert checked.config == MENU.apply(BASELINE, checked.proposal.changes)


def test_the_first_refusal_wins() -> None:
    everything = {"nope": 1, "n_layer": 99, "batch_size": 32, "lr": BASELINE.lr}
    raw = reply(everything)
    refused_by("schema", raw[:-1])
    refused_by("menu", raw, "nope")
    del everything["nope"]
    refused_by("range", reply(everything), "n_layer = 99")
    del everything["n_layer"]
    refused_by("cross", reply(everything), "batch_size = 32")
    del everything["batch_size"]
    refused_by("novelty", reply(everything))


SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.integers(2, 300),
    st.floats(),
    st.floats(0, 1),
    st.text(max_size=5),
    st.sampled_from(["gelu", "swiglu", "rmsnorm", "rotary", 64, 128, 4, 8, 1e-3, 0.9]),
)
KEYS = st.one_of(st.sampled_from([*MENU.knobs, *MENU.constants, "changes", "reason"]), st.text())
DOCUMENTS = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=4),
    max_leaves=10,
)
KNOBS = st.sampled_from(list(MENU.knobs))
PROPOSALS = st.fixed_dictionaries(
    {
        "changes": st.dictionaries(KNOBS, SCALARS, max_size=4)
        | st.lists(st.fixed_dictionaries({"knob": KNOBS, "value": SCALARS}), max_size=4)
    },
    optional={"reason": st.text(max_size=20)},
)
VALID = st.lists(
    st.sampled_from(list(MENU.knobs.values())), min_size=1, max_size=3, unique_by=lambda k: k.name
).flatmap(
    lambda knobs: st.randoms(use_true_random=False).map(
        lambda rng: {"changes": {k.name: k.domain.draw(rng) for k in knobs}, "reason": "drawn"}
    )
)
FRAMES = ["<think>", "</think>", "<|channel|>analysis<|message|>", "<|end|>", "[/THINK]"]
FRAMES += ["```json\n", "\n```", "{", "}", "[", '"', ":", ",", " ", "\n"]
ODDITIES = ["1e999", "NaN", "-0.0", '"changes"', '"reason"', '"lr"', "\\ud800", "\ud800", "\x00"]
SHREDS = st.lists(st.sampled_from([*FRAMES, *ODDITIES, GOOD]), max_size=12).map("".join)
RAW = st.one_of(
    st.text(),
    st.text(st.characters(min_codepoint=0xD800, max_codepoint=0xDFFF)),
    SHREDS,
    DOCUMENTS.map(json.dumps),
    PROPOSALS.map(json.dumps),
    VALID.map(json.dumps),
)


@given(raw=RAW)
def test_no_reply_raises_and_what_is_allowed_is_inside_the_menu(raw: str) -> None:
    checked = check(raw)
    # The verdict can be serialized and read back in every case.
    assert type(checked.verdict).model_validate_json(checked.verdict.model_dump_json())
    if checked.proposal is not None:
        assert Proposal.model_validate_json(checked.proposal.model_dump_json()) == checked.proposal
    assert (checked.config is not None) is checked.verdict.allowed
    if checked.config is None:
        assert checked.verdict.rail is not None
        assert checked.verdict.why
        return
    assert checked.proposal is not None
    values = MENU.knob_values(checked.config)
    assert [MENU.knobs[name].why_not(value) for name, value in values.items()] == [None] * 16
    assert {n: getattr(checked.config, n) for n in MENU.constants} == dict(MENU.constants)
    assert MENU.broken_constraint(checked.config, MENU.campaign.budget) is None
    turned = {n for n, value in MENU.knob_values(BASELINE).items() if values[n] != value}
    assert turned
    assert turned == set(checked.proposal.changes)
    assert len(turned) <= 3


@given(document=VALID)
def test_what_the_menu_draws_breaks_only_cross_or_novelty(document: dict[str, object]) -> None:
    assert check(json.dumps(document)).verdict.rail in (None, "cross", "novelty")
