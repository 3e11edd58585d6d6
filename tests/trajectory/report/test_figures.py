"""Figures are legible: everything lies within the axes, and every axis has numbers."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from tests.support.reports import findings, simulated
from trajectory.report.drawing.canvas import (
    BASE,
    DISCARD,
    FAILED,
    PALETTE,
    PAPER,
    RULE,
    SERIES,
    style,
)
from trajectory.report.figures.coverage import Coverage, KnobCoverage
from trajectory.report.figures.knob_effects import KnobEffect, KnobEffects, ValueEffect
from trajectory.report.figures.long_runs import LongRun, LongRunCurves
from trajectory.report.figures.progress import Progress
from trajectory.report.figures.progress_points import Point
from trajectory.report.reading.curves import LearningCurve
from trajectory.report.statistics import Estimate
from trajectory.rows import StressOutcome, StressVerdict


@pytest.fixture(autouse=True)
def _inked() -> Iterator[None]:
    with style():
        yield


def visible(figure: Figure) -> list[Axes]:
    return [axes for axes in figure.axes if axes.get_visible()]


def numbers(axes: Axes) -> list[str]:
    """Return the visible labels of the x axis."""
    return [t.label1.get_text() for t in axes.xaxis.get_major_ticks() if t.label1.get_visible()]


@pytest.mark.parametrize("light", ["light", "dark"])
def test_every_ink_stands_out_from_paper(light: str) -> None:
    for ink in PALETTE:
        least = 1.0 if ink in (PAPER, RULE) else 3.0 if ink in (DISCARD, *SERIES) else 4.5
        assert contrast(getattr(ink, light), getattr(PAPER, light)) >= least, ink.name


def contrast(one: str, other: str) -> float:
    """Return the contrast ratio of two ``#rrggbb`` colors, by WCAG 2.2."""
    bright, dark = sorted((luminance(one), luminance(other)), reverse=True)
    return (bright + 0.05) / (dark + 0.05)


def luminance(colour: str) -> float:
    channels = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def effect(name: str, *values: Estimate) -> KnobEffect:
    return KnobEffect(
        name,
        tuple(ValueEffect(f"{name}{i}", score, i == 0, False) for i, score in enumerate(values)),
    )


def one(value: float, n: int = 1) -> Estimate:
    return Estimate(value, None, None, n)


def many(value: float) -> Estimate:
    return Estimate(value, value - 0.1, value + 0.1, 9)


def test_each_column_of_knobs_has_numbers_under_its_last_panel() -> None:
    effects = tuple(effect(name, many(3.0), many(3.2)) for name in "abcd")
    figure = KnobEffects(effects, 3.1).draw().figure
    a, b, c, d = visible(figure)
    assert numbers(a) == [], "d stands below it"
    for axes in (b, c, d):
        assert numbers(axes)


def test_a_knob_s_long_name_takes_no_room_of_others() -> None:
    name = "a_knob_of_another_tool_with_a_name_that_goes_on"
    panels = visible(KnobEffects((effect(name, many(3.0), many(3.2)),), 3.1).draw().figure)
    assert panels[0].get_title(loc="left") == "a_knob_of_another_tool_…"
    knob = KnobCoverage(name, ("1",), (1,), 1, 0, None)
    (axes,) = visible(Coverage((knob,), 1).draw().figure)
    assert axes.get_yticklabels()[0].get_text() == "a_knob_of_another_t…  1/1"


def test_no_knob_value_is_better_than_the_scale_goes() -> None:
    effects = (effect("d_model", many(3.0), one(2.5)), effect("lr", many(3.1), one(9.0)))
    figure = KnobEffects(effects, 3.05).draw().figure
    low, high = visible(figure)[0].get_xlim()
    assert low < 2.5
    assert high < 4, "what went wrong once does not flatten the rest"


def test_of_very_many_values_the_most_used_are_drawn_and_counted() -> None:
    scores = [one(3.0, n) for n in range(1, 61)]
    figure = KnobEffects((effect("kernel", *scores),), None).draw().figure
    (axes,) = visible(figure)
    assert axes.get_title(loc="left") == "kernel: 24 of 60"
    shown = [label.get_text() for label in axes.get_yticklabels()]
    assert shown == [f"kernel{i}" for i in range(36, 60)]


def test_a_knob_with_many_values_goes_on_in_another_line_of_cells() -> None:
    names = tuple(f"a rather long value of it {i}" for i in range(20))
    knob = KnobCoverage("kernel", names, tuple(range(20)), 20, 1, None)
    (axes,) = visible(Coverage((knob,), 20).draw().figure)
    assert axes.get_xlim() == (0, 8)
    assert [label.get_text() for label in axes.get_yticklabels()] == ["kernel  19/20", "", ""]
    texts = [text.get_text() for text in axes.texts]
    assert max(len(text) for text in texts) <= 16
    assert len(texts) == 2 * len(names)


@pytest.mark.parametrize("count", [1, 8])
def test_the_whole_band_of_the_baseline_is_seen_and_iterations_are_whole(count: int) -> None:
    baseline = Estimate(4.29, 4.27, 4.31, 5)
    points = tuple(Point(i, "failed", None) for i in range(1, count + 1))
    figure = Progress(points, (), baseline, 0.05).draw().figure
    (axes,) = visible(figure)
    low, high = axes.get_ylim()
    assert low < 4.27
    assert high > 4.31
    ends = axes.get_xlim()
    assert ends[0] == pytest.approx(count - ends[1]), "as much room at either end"
    assert ends[1] - count <= 0.1 * count
    shown = [float(text.replace("\u2212", "-")) for text in numbers(axes)]
    assert shown == [int(number) for number in shown]


def test_an_iteration_that_ended_before_a_lower_one_is_not_cut_off() -> None:
    baseline = Estimate(4.29, 4.27, 4.31, 5)
    points = tuple(Point(i, "failed", None) for i in (1, 2, 40, 3))
    (axes,) = visible(Progress(points, (), baseline, 0.05).draw().figure)
    assert axes.get_xlim()[1] > 40


def test_the_legend_is_no_wider_than_the_figure(tmp_path: Path) -> None:
    found = Progress.of(findings(tmp_path, simulated(450)))
    picture = replace(found, measure="val_bits_per_token").draw()
    picture.figure.canvas.draw()
    (legend,) = picture.figure.legends
    box = legend.get_window_extent()
    assert box.x0 >= 0
    assert box.x1 <= picture.figure.bbox.width


def test_the_band_is_the_interval_of_the_baseline_s_mean(tmp_path: Path) -> None:
    found = Progress.of(findings(tmp_path, simulated(30)))
    assert found.baseline is not None
    for picture in (found.draw(), found.draw_narrow()):
        (axes,) = visible(picture.figure)
        (band,) = [p for p in axes.patches if p.get_label() == "95 % interval of a mean"]
        (low, high) = band.get_extents().transformed(axes.transData.inverted()).intervaly
        assert (low, high) == pytest.approx((found.baseline.lo, found.baseline.hi))


def test_a_phone_s_figure_is_narrow_and_its_legend_and_last_iteration_are_in_it(
    tmp_path: Path,
) -> None:
    found = Progress.of(findings(tmp_path, simulated(450)))
    figure = found.draw_narrow().figure
    figure.canvas.draw()
    assert figure.get_figwidth() < 3.9
    (axes,), (legend,) = visible(figure), figure.legends
    assert axes.get_xlim()[1] > 450
    for one in (legend, axes):
        box = one.get_tightbbox()
        assert box is not None
        assert box.x0 >= 0
        assert box.x1 <= figure.bbox.width


def long_run(rank: int, purpose: str, outcome: StressOutcome) -> LongRun:
    curve = LearningCurve("h", (1, 2), (3.0, 2.0), 2, 1)
    return LongRun("h", rank, purpose, 1000, 2, None, StressVerdict(outcome=outcome), curve)


def test_no_two_long_runs_look_alike() -> None:
    runs = [long_run(i, "candidate", "survives") for i in range(1, 10)]
    runs += [long_run(10, "baseline", "spikes"), long_run(11, "candidate", "diverges")]
    (axes,) = visible(LongRunCurves(tuple(runs)).draw().figure)
    strokes = [(str(line.get_color()), str(line.get_linestyle())) for line in axes.lines]
    assert len(set(strokes)) == len(runs)
    assert strokes[-2] == (BASE.light, "-")
    assert strokes[-1] == (FAILED.light, "--")
