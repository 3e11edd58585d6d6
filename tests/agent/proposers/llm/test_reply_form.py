"""Test the reply form that a model is asked for, and the example in the prompt."""

from __future__ import annotations

import json

import pytest

from agent.menu.files import load_menu, parse_menu
from agent.menu.rails import Rails
from agent.proposers.llm.reply_form import example_text, proposal_schema
from tests.support.memories import MENU, RAILS, fresh_memory, memory_of
from trainer.spec import Budget


def values_by_knob(schema: dict[str, object]) -> dict[str, dict[str, object]]:
    changes = schema["properties"]["changes"]  # type: ignore[index]
    offered = [each["properties"] for each in changes["items"]["anyOf"]]
    return {each["knob"]["enum"][0]: each["value"] for each in offered}


def test_the_schema_says_what_the_rails_demand() -> None:
    schema = proposal_schema(MENU, 3)
    changes = schema["properties"]["changes"]
    values = values_by_knob(schema)

    assert json.loads(json.dumps(schema)) == schema
    assert list(schema["properties"]) == ["reason", "changes"], "in the order they are to be said"
    assert schema["required"] == ["reason", "changes"]
    assert schema["additionalProperties"] is False
    assert (changes["minItems"], changes["maxItems"]) == (1, 3)
    assert list(values) == list(MENU.knobs)
    assert values["n_layer"] == {"type": "integer", "minimum": 2, "maximum": 6}
    assert values["batch_size"]["enum"] == [4, 8, 16, 32]
    assert values["d_model"]["enum"] == [64, 96, 128, 160, 192, 224, 256]
    assert (values["lr"]["type"], values["lr"]["minimum"]) == ("number", 1e-4)
    assert (values["norm"]["type"], values["norm"]["enum"]) == ("string", ["layernorm", "rmsnorm"])
    assert (values["tie_embeddings"]["type"], values["tie_embeddings"]["enum"]) == (
        "boolean",
        [True, False],
    )


@pytest.mark.parametrize(("low", "listed"), [(4, False), (2, True)])
def test_many_steps_are_multiples_or_where_they_are_none_are_listed(low: int, listed: bool) -> None:
    domain = f"low = {low}\nhigh = {low + 400}\nstep = 4\ndefault = {low}"
    toml = MENU.toml.replace("low = 2\nhigh = 6\ndefault = 4", domain)
    values = values_by_knob(proposal_schema(parse_menu(toml, "stepped"), 3))["n_layer"]
    assert values.get("multipleOf") == (None if listed else 4)
    assert values.get("enum") == (list(range(2, 403, 4)) if listed else None)


@pytest.mark.parametrize("iterations", [0, 3, 40, 100])
def test_the_example_said_word_for_word_passes_the_rails(iterations: int) -> None:
    memory = memory_of(iterations)
    raw = example_text(memory, Budget())
    checked = RAILS.check(raw, memory.reference, memory.evidence.configs)
    assert checked.verdict.allowed, checked.verdict.why
    assert checked.proposal is not None
    for name, value in checked.proposal.changes.items():
        assert value != MENU.knobs[name].default
    assert example_text(memory, Budget()) == raw


def test_the_example_is_another_at_each_iteration() -> None:
    examples = {example_text(memory_of(iterations), Budget()) for iterations in range(8)}
    assert len(examples) > 4


def test_the_example_is_of_the_menu_at_hand() -> None:
    menu = load_menu("spark-354m")
    memory = fresh_memory(menu)
    rails = Rails(menu, budget=menu.campaign.budget)
    raw = example_text(memory, menu.campaign.budget)
    assert rails.check(raw, memory.reference, memory.evidence.configs).verdict.allowed
