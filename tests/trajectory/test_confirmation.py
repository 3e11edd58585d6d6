"""Confirmation runs agree with formulas by hand, and their intervals have the stated coverage."""

import math
import random
from statistics import fmean, stdev, variance

import pytest

from tests.support.confirmed import told
from tests.support.rows import failed, ok
from trainer.schema import Measure, ScoredText, TextPart, TextScore
from trajectory.confirmation import FreshRuns, gains
from trajectory.confirmed import (
    OWN_SCORE,
    SEARCH_TEXT,
    Confirmed,
    ConfirmedConfig,
    FreshGain,
    latest_of,
)
from trajectory.statistics.intervals import student_t


def text(*sizes: int, sha256: str = "a" * 64) -> ScoredText:
    parts = tuple(TextPart(tokens=size + 1, bytes=size) for size in sizes)
    return ScoredText(name="fresh", path="/t", sha256=sha256, parts=parts)


def runs(scores: list[float], parts: list[list[float]] | None = None) -> FreshRuns:
    """Return runs on the seeds 800, 801, …, with ``parts`` of the text whose hash is all a."""
    results = {}
    for place, score in enumerate(scores):
        said = (
            ()
            if parts is None
            else (
                TextScore(
                    sha256="a" * 64,
                    val_bpb=1,
                    val_bytes=1,
                    val_tokens=1,
                    parts_bpb=tuple(parts[place]),
                ),
            )
        )
        results[800 + place] = ok(score, texts=said)
    return FreshRuns(results)


def test_on_the_search_s_text_it_is_the_paired_t_interval() -> None:
    ours, theirs = [2.9, 2.8, 3.1, 2.7], [3.0, 3.1, 3.15, 2.95]
    (found,) = gains(runs(ours), runs(theirs), [], finalists=3)
    differences = [a - b for a, b in zip(ours, theirs, strict=True)]
    stderr = stdev(differences) / 2
    assert found.text == SEARCH_TEXT
    assert found.holds_for == "this text"
    assert (found.seeds, found.dof) == (4, 3)
    assert found.delta == pytest.approx(fmean(differences))
    assert found.hi - found.delta == pytest.approx(stderr * student_t(0.975, 3))
    assert found.all_hi - found.delta == pytest.approx(stderr * student_t(1 - 0.05 / 6, 3))
    assert found.delta - found.lo == pytest.approx(found.hi - found.delta)


def test_on_a_fresh_text_the_spread_of_its_parts_is_in_the_interval() -> None:
    sizes, seeds = [20, 30, 50], 3
    d = [[-0.10, -0.02, -0.06], [-0.14, -0.05, -0.09], [-0.12, -0.01, -0.10]]
    baseline = [[3.0, 3.1, 3.2]] * seeds
    ours = [[b + x for b, x in zip(baseline[s], d[s], strict=True)] for s in range(seeds)]
    found = gains(runs([2.0] * 3, ours), runs([2.1] * 3, baseline), [text(*sizes)], finalists=2)[1]
    w = [0.2, 0.3, 0.5]
    by_seed = [sum(a * b for a, b in zip(w, row, strict=True)) for row in d]
    by_part = [fmean(column) for column in zip(*d, strict=True)]
    delta = fmean(by_seed)
    of_seeds = variance(by_seed) / 3
    unbiased = 0.38 / (0.38 - 2 * 0.16 + 0.38**2)
    of_text = unbiased * sum((a * (b - delta)) ** 2 for a, b in zip(w, by_part, strict=True))
    dof = (of_seeds + of_text) ** 2 / (of_seeds**2 / 2 + of_text**2 / (1 / 0.38 - 1))
    assert found.holds_for == "text like it"
    assert found.delta == pytest.approx(delta)
    assert found.dof == pytest.approx(dof)
    both = math.sqrt(of_seeds + of_text) * student_t(0.975, dof)
    text_alone = math.sqrt(of_text) * student_t(0.975, 1 / 0.38 - 1)
    assert text_alone > both
    assert found.hi - found.delta == pytest.approx(text_alone)


def test_texts_are_told_apart_by_their_hash() -> None:
    ours, theirs = runs([2.0] * 2, [[1.0], [1.0]]), runs([2.5] * 2, [[2.0], [2.0]])
    found = gains(ours, theirs, [text(10)], finalists=1)
    assert [one.delta for one in found] == pytest.approx([-0.5, -1.0])
    assert found[1].holds_for == "this text"
    with pytest.raises(StopIteration):
        gains(ours, theirs, [text(10, sha256="b" * 64)], finalists=1)


def test_only_common_seeds_count_and_one_is_too_few() -> None:
    ours = runs([2.0, 2.1, 2.2])
    theirs = FreshRuns({800: ok(2.5), 801: failed(), 803: ok(2.5)})
    assert gains(ours, theirs, [], finalists=1) == ()
    theirs = FreshRuns({800: ok(2.5), 802: ok(2.9), 801: failed()})
    (found,) = gains(ours, theirs, [], finalists=1)
    assert (found.seeds, found.delta) == (2, pytest.approx(-0.6))
    assert theirs.failed is not None and theirs.failed[0] == 801


@pytest.mark.parametrize(("seed_sd", "text_sd"), [(0.03, 0.0), (0.03, 0.06), (0.0, 0.06)])
def test_intervals_hold_as_often_as_they_say(seed_sd: float, text_sd: float) -> None:
    rng = random.Random(3)
    sizes = [5, 30, 10, 10, 20, 10, 10, 8, 12, 15, 10, 10]
    held = 0
    for _ in range(1500):
        favours = [rng.gauss(0, text_sd) for _ in sizes]
        ours = []
        for _seed in range(6):
            luck = rng.gauss(0, seed_sd)
            ours.append([2.9 + luck + favour + rng.gauss(0, 0.01) for favour in favours])
        theirs = [[3.0] * len(sizes)] * 6
        found = gains(runs([2.9] * 6, ours), runs([3.0] * 6, theirs), [text(*sizes)], finalists=1)
        held += found[1].lo <= -0.1 <= found[1].hi
    assert 0.935 <= held / 1500 <= 0.985


def gain(delta: float, text: str = "fresh") -> FreshGain:
    return FreshGain(
        text=text,
        holds_for="text like it",
        delta=delta,
        lo=delta - 0.1,
        hi=delta + 0.1,
        all_lo=delta - 0.2,
        all_hi=delta + 0.2,
        seeds=6,
        dof=5,
    )


def entry(name: str, *gains_: FreshGain, claimed: float = -0.6) -> ConfirmedConfig:
    trouble = "" if gains_ else "it failed on seed 801 (oom: no memory)"
    return told(name, *gains_, claimed=claimed, trouble=trouble)


def found_of(*configs: ConfirmedConfig) -> Confirmed:
    return Confirmed(seeds=(800, 801), texts=(), configs=configs)


def test_the_headline_is_on_the_first_text_that_the_search_has_not_scored() -> None:
    both = entry("a", gain(-0.5, SEARCH_TEXT), gain(-0.3), gain(-0.2, "other"))
    assert both.headline == gain(-0.3)
    assert both.stands
    assert entry("a", gain(-0.05, SEARCH_TEXT)).headline == gain(-0.05, SEARCH_TEXT)
    assert not entry("a", gain(-0.05, SEARCH_TEXT)).stands
    assert entry("a").headline is None
    assert not entry("a").stands
    said = found_of(both).headline
    assert said.startswith("confirmed: iteration 7, -0.3000 bpb (95 % -0.4000 … -0.2000)")
    assert "(the search claimed -0.6000)" in said
    assert found_of(entry("a")).headline.endswith("it failed on seed 801 (oom: no memory)")


def test_of_a_command_s_text_nothing_is_said() -> None:
    ours, theirs = runs([2.9, 2.8]), runs([3.0, 3.1])
    (own,) = gains(ours, theirs, [], finalists=1, measure=Measure(unit="val loss"))
    assert own.text == OWN_SCORE
    assert not own.is_on_fresh_text
    found = found_of(entry("a", own))
    assert found.basis == f"on 2 fresh seeds, by {OWN_SCORE}"
    earlier = own.model_dump() | {"text": "the script's ruler"}
    assert FreshGain.model_validate(earlier) == own, "as rows named it before"
    assert found_of(entry("a")).basis == "on 2 fresh seeds"
    (usual,) = gains(ours, theirs, [], finalists=1)
    assert not usual.is_on_fresh_text
    assert found_of(entry("a", usual)).basis.endswith(", on the text that the search scored too")
    assert gain(-0.2, "other").is_on_fresh_text


def test_the_newest_word_on_a_config_counts() -> None:
    newer, older = found_of(entry("a", gain(-0.3))), found_of(entry("a"), entry("b"))
    known = latest_of([newer, older])
    assert known == {"a": newer.configs[0], "b": older.configs[1].among_others()}


def test_beside_others_only_the_search_s_choice_has_the_plain_interval() -> None:
    narrow = gain(-0.05).model_copy(update={"lo": -0.09, "hi": -0.01, "all_lo": -0.12})
    narrow = narrow.model_copy(update={"all_hi": 0.02})
    found = found_of(entry("a", narrow), entry("b", narrow))
    known = latest_of([found])
    assert known["a"].stands
    assert not known["b"].stands
    assert str(known["b"].headline) == "-0.0500 (-0.1200 … +0.0200)"


@pytest.mark.parametrize("text_sd", [0.2, 0.5, 1.0])
def test_two_seeds_promise_no_more_for_text_like_it_than_for_this_text(text_sd: float) -> None:
    rng, held, worlds = random.Random(3), 0, 1500
    for _ in range(worlds):
        parts = [rng.gauss(0, 4 * text_sd) for _ in range(16)]
        ours = [
            [100 + luck + part for part in parts] for luck in (rng.gauss(0, 1), rng.gauss(0, 1))
        ]
        theirs = [[90.0] * 16] * 2
        fresh = [text(*[5] * 16)]
        found = gains(runs([1.0] * 2, ours), runs([1.0] * 2, theirs), fresh, finalists=1)[1]
        alone = student_t(0.975, 1) * abs(fmean(ours[0]) - fmean(ours[1])) / 2
        assert found.hi - found.delta >= alone * (1 - 1e-9)
        held += found.lo <= 10 <= found.hi
    assert held >= 0.94 * worlds


@pytest.mark.parametrize(("sizes", "said"), [((50, 50), "text like it"), ((98, 2), "this text")])
def test_a_text_that_is_nearly_one_part_has_no_spread(sizes: tuple[int, int], said: str) -> None:
    ours = runs([2.0] * 2, [[1.0, 1.3], [1.1, 1.2]])
    found = gains(ours, runs([2.5] * 2, [[2.0, 2.0]] * 2), [text(*sizes)], finalists=3)[1]
    assert found.holds_for == said
    assert all(map(math.isfinite, (found.lo, found.hi, found.all_lo, found.all_hi)))


def test_runs_that_differ_by_nothing_are_no_error() -> None:
    (found,) = gains(runs([2.0, 2.1]), runs([2.0, 2.1]), [], finalists=3)
    assert (found.lo, found.delta, found.hi) == (0, 0, 0)


def test_each_look_asks_for_more() -> None:
    ours, theirs = runs([2.0, 2.1, 2.05]), runs([2.2, 2.2, 2.3])
    (first,) = gains(ours, theirs, [], finalists=2)
    (third,) = gains(ours, theirs, [], finalists=2, earlier_analyses=2)
    assert third.delta == first.delta
    half = (first.hi - first.lo) / 2
    wider = student_t(1 - 0.05 / 3 / 2, 2) / student_t(0.975, 2)
    assert (third.hi - third.lo) / 2 == pytest.approx(half * wider)
    assert third.all_hi - third.all_lo > first.all_hi - first.all_lo
