import json
from itertools import pairwise

import pytest

from agent.menu.files import load_menu, parse_menu
from agent.menu.rails import Rails
from agent.proposers.base import SearchView
from agent.proposers.llm.reply_form import (
    LISTED,
    example_text,
    proposal_schema,
    slate_example,
    slate_schema,
)
from tests.support.memories import MENU, fresh_memory, memory_of
from trainer.schema import Budget


def values_by_knob(schema: dict[str, object]) -> dict[str, dict[str, object]]:
    changes = schema["properties"]["changes"]  # type: ignore[index]
    offered = [each["properties"] for each in changes["items"]["anyOf"]]
    return {each["knob"]["enum"][0]: each["value"] for each in offered}


def test_the_schema_says_what_the_rails_demand() -> None:
    schema = proposal_schema(fresh_memory())
    changes = schema["properties"]["changes"]
    values = values_by_knob(schema)
    assert json.loads(json.dumps(schema)) == schema
    assert list(schema["properties"]) == ["reason", "changes"], "in the order they are to be said"
    assert schema["required"] == ["reason", "changes"]
    assert schema["additionalProperties"] is False
    assert (changes["minItems"], changes["maxItems"]) == (1, 3)
    assert list(values) == list(MENU.knobs)
    assert values["n_layer"] == {"type": "integer", "enum": [2, 3, 5, 6]}
    assert values["batch_size"]["enum"] == [4, 16, 32]
    assert values["d_model"]["enum"] == [64, 96, 160, 192, 224, 256]
    assert values["norm"] == {"type": "string", "enum": ["rmsnorm"]}
    assert values["tie_embeddings"] == {"type": "boolean", "enum": [False]}


def test_floats_are_offered_as_some_values_without_the_references() -> None:
    rates = values_by_knob(proposal_schema(fresh_memory()))["lr"]["enum"]
    assert isinstance(rates, list)
    assert (rates[0], rates[-1]) == (1e-4, 0.03)
    assert rates == sorted(set(rates))
    assert len(rates) in {LISTED - 1, LISTED}
    assert MENU.defaults["lr"] not in rates
    assert max(b / a for a, b in pairwise(rates)) < 1.7, "evenly spaced on the knob's scale"


def test_a_choice_names_a_candidate_and_own_changes_only_where_they_are_allowed() -> None:
    view = fresh_memory()
    only = slate_schema(view, "ABCD", ("pick",))
    assert list(only["properties"]) == ["reason", "pick", "expected_delta"]
    assert only["properties"]["pick"]["enum"] == ["A", "B", "C", "D"]
    both = slate_schema(view, "ABCD", ("pick", "own"))
    assert both["properties"]["pick"]["enum"] == ["A", "B", "C", "D", "own"]
    changes, ideas = both["properties"]["changes"], both["properties"]["ideas"]
    assert changes == proposal_schema(view)["properties"]["changes"]
    assert ideas["items"]["items"] == changes["items"]
    assert (ideas["maxItems"], ideas["items"]["maxItems"]) == (4, 3), "five changes in one reply"
    assert both["required"] == only["required"] == ["reason", "pick", "expected_delta"]


def test_many_steps_are_thinned_out() -> None:
    domain = "low = 2\nhigh = 402\nstep = 4\ndefault = 2"
    toml = MENU.toml.replace("low = 2\nhigh = 6\ndefault = 4", domain)
    view = fresh_memory(parse_menu(toml, "stepped"))
    values = values_by_knob(proposal_schema(view))["n_layer"]["enum"]
    assert isinstance(values, list)
    assert (values[-1], len(values)) == (402, LISTED - 1)
    assert all((value - 2) % 4 == 0 for value in values)


SPARK = load_menu("spark-354m")


@pytest.mark.parametrize(
    "view",
    [*map(memory_of, (0, 3, 40, 100)), fresh_memory(SPARK)],
    ids=["0", "3", "40", "100", "another menu"],
)
def test_the_example_said_word_for_word_passes_the_rails(view: SearchView) -> None:
    budget = view.menu.campaign.budget
    raw = example_text(view, budget)
    rails = Rails(view.menu, budget=budget)
    checked = rails.check(raw, view.reference, view.evidence.configs)
    assert checked.verdict.allowed, checked.verdict.why
    assert checked.proposal is not None
    for name, value in checked.proposal.changes.items():
        assert value != view.menu.knobs[name].default
    assert example_text(view, budget) == raw


def test_the_examples_of_both_replies_change_with_the_iteration() -> None:
    assert len({example_text(memory_of(n), Budget()) for n in range(8)}) > 4
    picks = {json.loads(slate_example(memory_of(n), "ABCD"))["pick"] for n in range(12)}
    assert picks <= set("ABCD")
    assert len(picks) > 2
