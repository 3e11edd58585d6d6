"""Test the contract of every kind of domain, and the particulars of each.

A new kind needs a strategy in KINDS_DRAWN, and nothing else, to be tested against the contract.
"""

import inspect
import math
import tomllib
from collections.abc import Iterator
from itertools import pairwise
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from optuna.distributions import (
    BaseDistribution,
    CategoricalDistribution,
    FloatDistribution,
    IntDistribution,
)

from autoresearch.domains import KINDS, domain_keys, read_domain
from autoresearch.domains.base import MAX_CHOICES, Bin, Domain
from autoresearch.domains.choices import Choices, OrderedChoices
from autoresearch.domains.ranges import MAX_WHOLE, RealRange, WholeRange
from autoresearch.values import Scalar
from tests.support.present import known


@st.composite
def whole_ranges(draw: st.DrawFn) -> Domain:
    if draw(st.booleans()):
        low = draw(st.integers(1, MAX_WHOLE - 1))
        return WholeRange(low=low, high=draw(st.integers(low + 1, MAX_WHOLE)), scale="log")
    low, step = draw(st.integers(-(2**50), 2**50)), draw(st.integers(1, 2**20))
    return WholeRange(low=low, high=low + step * draw(st.integers(1, MAX_CHOICES - 1)), step=step)


@st.composite
def wide_whole_ranges(draw: st.DrawFn) -> Domain:
    """Draw a range with more values than a schema lists, each a multiple of the step."""
    step = draw(st.integers(1, 1000))
    low, count = step * draw(st.integers(-1000, 1000)), draw(st.integers(MAX_CHOICES, 2**30))
    return WholeRange(low=low, high=low + step * count, step=step)


@st.composite
def real_ranges(draw: st.DrawFn) -> Domain:
    is_log = draw(st.booleans())
    ends = st.floats(1e-30, 1e30) if is_log else st.floats(-1e30, 1e30)
    low, high = sorted(draw(st.lists(ends, min_size=2, max_size=2, unique=True)))
    return RealRange(low=low, high=high, scale="log" if is_log else "linear")


def lists_of(values: st.SearchStrategy[Any]) -> st.SearchStrategy[tuple[Any, ...]]:
    return st.lists(values, min_size=2, max_size=12, unique=True).map(tuple)


KINDS_DRAWN: dict[type[Domain], st.SearchStrategy[Domain]] = {
    Choices: st.one_of(
        st.just(Choices(choices=(True, False))),
        lists_of(st.text(max_size=8)).map(lambda found: Choices(choices=found)),
    ),
    OrderedChoices: st.one_of(
        st.builds(
            OrderedChoices,
            type=st.sampled_from(["int", "choice"]),
            choices=lists_of(st.integers(-3, 3) | st.integers(-(10**9), 10**9)),
        ),
        lists_of(st.floats(-1e30, 1e30)).map(lambda found: OrderedChoices(choices=found)),
    ),
    WholeRange: st.one_of(whole_ranges(), wide_whole_ranges()),
    RealRange: real_ranges(),
}
"""Domains of every kind, such as a menu may have."""

DOMAINS = st.one_of(*KINDS_DRAWN.values())
RNGS = st.integers(0, 2**32).map(Random)


@st.composite
def domains_and_values(draw: st.DrawFn) -> tuple[Domain, list[Any]]:
    """Draw a domain with values inside it, just outside it, and of other types."""
    domain = draw(DOMAINS)
    inside = domain.draw(draw(RNGS))
    near: list[Any] = [inside, *domain.ends]
    near += [f(n) for n in near if type(n) in (int, float) for f in (_up, _down, float, str, bool)]
    near += [int(n) for n in near if isinstance(n, float)]
    anything = st.one_of(
        st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False), st.text(max_size=3)
    )
    return domain, [*near, True, False, draw(anything)]


def _up(number: float) -> float:
    return number + 1 if isinstance(number, int) else math.nextafter(number, math.inf)


def _down(number: float) -> float:
    return number - 1 if isinstance(number, int) else math.nextafter(number, -math.inf)


def test_every_kind_is_held_to_the_contract() -> None:
    def below(kind: type[Domain]) -> Iterator[type[Domain]]:
        for child in kind.__subclasses__():
            yield child
            yield from below(child)

    # Sources of code, which other packages define, are no numbers and have tests of their own.
    own = (kind for kind in below(Domain) if kind.__module__.startswith("autoresearch."))
    concrete = {kind for kind in own if not inspect.isabstract(kind)}
    assert concrete == KINDS_DRAWN.keys()
    assert set(KINDS.values()) <= KINDS_DRAWN.keys()


@given(DOMAINS, RNGS, st.floats(0, 1, exclude_max=True))
def test_what_is_chosen_is_contained(domain: Domain, rng: Random, share: float) -> None:
    for value in (domain.draw(rng), domain.at(share), *domain.ends):
        assert domain.contains(value), value
        assert domain.contains(domain.rounded(value)), value
        assert domain.normal(value) == value
        assert domain.normal(domain.normal(value)) == domain.normal(value)


@given(domains_and_values())
def test_a_value_is_contained_or_there_is_a_clause_why_not(both: tuple[Domain, list[Any]]) -> None:
    domain, values = both
    for value in values:
        clause = domain.why_not(value)
        assert (clause is None) == domain.contains(value)
        assert clause is None or (f" is not {domain}" in clause and "\n" not in clause)


@given(domains_and_values())
def test_the_schema_accepts_exactly_what_is_contained(both: tuple[Domain, list[Any]]) -> None:
    domain, values = both
    schema = domain.json_schema()
    for value in values:
        assert accepts(schema, value) == domain.contains(value), value


@given(DOMAINS)
def test_a_menu_that_holds_it_reads_it_again(domain: Domain) -> None:
    assert domain.problem() is None
    lines = list(domain.toml_lines())
    again = read_domain(tomllib.loads("\n".join(lines)))
    assert (type(again), again) == (type(domain), domain)
    assert domain.table().keys() <= set(domain_keys())


@given(DOMAINS, RNGS)
def test_every_value_survives_the_optimizer(domain: Domain, rng: Random) -> None:
    value = domain.rounded(domain.draw(rng))
    again = domain.rounded(value)
    assert (again, type(again)) == (value, type(value))
    assert holds(domain.distribution(), value)


@given(DOMAINS, RNGS)
def test_whatever_the_optimizer_sets_is_contained(domain: Domain, rng: Random) -> None:
    assert domain.contains(drawn_from(domain.distribution(), rng))


@given(DOMAINS, RNGS)
def test_the_cells_part_the_domain(domain: Domain, rng: Random) -> None:
    cells = domain.cells
    for value in (domain.draw(rng), *domain.ends):
        cell = cells[known(domain.place(value))]
        assert cell.holds(value) if isinstance(cell, Bin) else cell == value
    bins = [cell for cell in cells if isinstance(cell, Bin)]
    if not bins:
        assert all(domain.contains(value) for value in cells)
        assert [domain.place(value) for value in cells if not isinstance(value, Bin)] == list(
            range(len(cells))
        )
        return
    assert len(bins) == len(cells)
    assert (bins[0].low, bins[-1].high) == domain.ends
    for before, after in pairwise(bins):
        gap = 1 if isinstance(after.low, int) else 0
        assert after.low - before.high == gap
        assert before.low <= before.high
        assert domain.place(after.low) == bins.index(after) or after.low == after.high


@given(domains_and_values())
def test_a_value_beyond_the_ends_has_no_place(both: tuple[Domain, list[Any]]) -> None:
    domain, values = both
    numeric = all(type(end) in (int, float) for end in domain.ends)
    for value in values:
        beyond = type(value) in (int, float) and numeric
        beyond = beyond and not min(domain.ends) <= value <= max(domain.ends)
        if beyond or (isinstance(value, bool | str) and not domain.contains(value)):
            assert domain.place(value) is None
    assert domain.place(None) is None


def accepts(schema: dict[str, Any], value: object) -> bool:
    """Return whether JSON Schema accepts a value, except 4.0, which it calls an integer. Replies
    are parsed literally, and no server that holds a model to a schema writes 4.0 for one."""
    types = {"boolean": (bool,), "integer": (int,), "number": (int, float), "string": (str,)}
    known = {"type", "enum", "minimum", "maximum", "multipleOf"}
    assert schema.keys() <= known, "teach this reader the new keyword"
    if type(value) not in types[schema["type"]]:
        return False
    if "enum" in schema and not any(value == one and _alike(value, one) for one in schema["enum"]):
        return False
    if not isinstance(value, int | float) or isinstance(value, bool):
        return True
    if "multipleOf" in schema and value % schema["multipleOf"]:
        return False
    return bool(schema.get("minimum", value) <= value <= schema.get("maximum", value))


def _alike(one: object, other: object) -> bool:
    """Return whether both values or neither are booleans: True is not 1 in JSON."""
    return isinstance(one, bool) == isinstance(other, bool)


def holds(distribution: BaseDistribution, value: Scalar) -> bool:
    return bool(distribution._contains(distribution.to_internal_repr(value)))


def drawn_from(distribution: BaseDistribution, rng: Random) -> Scalar:
    match distribution:
        case CategoricalDistribution():
            chosen = rng.choice(distribution.choices)
            assert isinstance(chosen, bool | int | float | str)
            return chosen
        case IntDistribution():
            return rng.randrange(distribution.low, distribution.high + 1, distribution.step)
        case FloatDistribution():
            return min(rng.uniform(distribution.low, distribution.high), distribution.high)
    raise AssertionError(f"teach this reader {distribution}")


@pytest.mark.parametrize(
    ("domain", "drawn"),
    [
        (Choices(choices=("gelu", "swiglu")), ["swiglu", "gelu", "swiglu", "gelu"]),
        (OrderedChoices(type="int", choices=(4, 8, 16, 32)), [16, 8, 32, 4]),
        (WholeRange(low=64, high=256, step=32), [128, 96, 160, 224]),
        (WholeRange(low=16, high=4096, scale="log"), [96, 37, 591, 24]),
        (RealRange(low=0.8, high=0.999), [0.8644427202, 0.8300189856, 0.929535960, 0.8144148210]),
        (
            RealRange(low=1e-4, high=3e-2, scale="log"),
            [6.3412229797e-4, 2.3641318558e-4, 4.0967892062e-3, 1.5115881036e-4],
        ),
    ],
)
def test_a_seed_draws_what_it_always_drew(domain: Domain, drawn: list[Scalar]) -> None:
    rng = Random(7)
    found = [domain.draw(rng) for _ in drawn]
    assert found == (pytest.approx(drawn) if isinstance(drawn[0], float) else drawn)


LR = RealRange(low=1e-4, high=1e-1, scale="log")
FEW, MANY = WholeRange(low=2, high=6, step=2), WholeRange(low=0, high=30)
MIXED = Choices(choices=("a", 1, 2.5))


@pytest.mark.parametrize(
    ("domain", "places"),
    [
        (LR, {1e-4: 0, 9.9e-4: 1, 1.1e-3: 2, 1e-1: 5, 1.0: None, "1e-3": None}),
        (FEW, {4: 1}),
        (MANY, {4: 0, 5: 1, 29: 5, 30: 5}),
        (OrderedChoices(choices=(1, 2)), {True: None}),
        (Choices(choices=(True, False)), {True: 0}),
        (Choices(choices=(True, False)), {1: None}),
        (MIXED, {"a": 0, 1: 1, 2.5: 2, "b": None}),
    ],
)
def test_a_value_has_a_place_in_the_cells(domain: Domain, places: dict[Scalar, int | None]) -> None:
    assert {value: domain.place(value) for value in places} == places


def test_a_real_number_is_proposed_to_four_digits_within_its_bounds() -> None:
    narrow = RealRange(low=1.23416, high=1.3)
    assert narrow.rounded(1.28765432) == 1.288
    assert narrow.rounded(1.23417) == 1.23416
    assert WholeRange(low=1, high=10**6, scale="log").rounded(123_456) == 123_456


def test_a_schema_leaves_many_odd_steps_to_the_rails() -> None:
    odd = WholeRange(low=5, high=100_005, step=100)
    assert odd.json_schema() == {"type": "integer", "minimum": 5, "maximum": 100_005}
    assert not odd.contains(6)


def test_what_another_tool_tried_is_a_domain_that_no_menu_may_have() -> None:
    assert MIXED.problem() is not None
    assert Choices(choices=("a",)).problem() is not None
