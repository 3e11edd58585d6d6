"""A config's hash stays the same when the schema gains fields."""

from __future__ import annotations

from typing import Any

import pytest

from autoresearch.errors import SpecError
from tests.support.configs import config
from trainer.spec import difference

LATER: dict[str, Any] = {
    "qk_norm": True,
    "norm_place": "output",
    "rope_base": 500_000,
    "init_scale": 0.5,
    "schedule": "wsd",
    "decay_share": 0.1,
    "mup_base_width": 64,
    "mup_base_depth": 2,
}
"""Fields with a default, each with another value."""


def test_hashes_of_older_configs_stand() -> None:
    """The expected hashes are those of version 0.2.0."""
    assert (
        config().config_hash == "a18c54706faf6fad93cfe2add3038a9300dd5e93fa0d8e229527b47d6d23e9d3"
    )
    assert (
        config(n_kv_head=2, activation="swiglu").config_hash
        == "dbb45af11e2f498823b14b9e139c46a8994ad1e656076f123780141df25712ad"
    )


@pytest.mark.parametrize("name", LATER)
def test_a_later_field_is_said_only_where_it_is_set(name: str) -> None:
    assert name not in config().canonical()
    changed = config(**{name: LATER[name]})
    assert changed.canonical()[name] == LATER[name]
    assert changed.config_hash != config().config_hash
    default = getattr(config(), name)
    assert config(**{name: default}) == config()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("activation", "relu"),
        ("qk_norm", 1),
        ("norm_place", "post"),
        ("rope_base", 0),
        ("init_scale", -1),
        ("schedule", "constant"),
        ("decay_share", 0),
        ("decay_share", 1.5),
        ("mup_base_width", 0),
        ("mup_base_depth", 1.5),
    ],
)
def test_no_other_value_is_taken(name: str, value: object) -> None:
    with pytest.raises(SpecError, match=name):
        config(**{name: value})


@pytest.mark.parametrize("name", LATER)
def test_going_back_to_a_default_is_a_difference_too(name: str) -> None:
    changed = config(**{name: LATER[name]})
    assert difference(changed, config()) == {name: LATER[name]}
    default = getattr(config(), name)
    assert difference(config(), changed) == ({} if default is None else {name: default})
    assert difference(changed, changed) == {}
    assert difference(config(), None) == config().canonical()
