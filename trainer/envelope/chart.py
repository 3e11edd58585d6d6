"""An envelope as one self-contained SVG: throughput and memory against the tokens of a step."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import resources

from jinja2 import Environment, StrictUndefined

from trainer.envelope.envelope import Envelope
from trainer.envelope.points import EnvelopePoint

TEMPLATE = "chart.svg.j2"
COLOURS = {"fp32": "#7f7f7f", "bf16": "#1f77b4", "fp8": "#d62728"}
_LEFT, _TOP, _WIDTH, _HEIGHT, _GAP = 70, 80, 380, 260, 90
_SOLID, _DASHED = "none", "5 4"


@dataclass(frozen=True, slots=True)
class _Mark:
    x: float
    y: float
    colour: str
    label: str
    failed: bool


@dataclass(frozen=True, slots=True)
class _Line:
    x1: float
    y1: float
    x2: float
    y2: float
    colour: str
    dash: str
    label: str


@dataclass(frozen=True, slots=True)
class _Panel:
    title: str
    x: int
    x_ticks: list[tuple[float, str]]
    y_ticks: list[tuple[float, str]]
    marks: list[_Mark]
    lines: list[_Line]
    y: int = _TOP
    width: int = _WIDTH
    height: int = _HEIGHT


def chart(envelope: Envelope) -> str:
    """The SVG. A cross at the lower edge is a point that failed; it says why when pointed at."""
    template = (resources.files("trainer.envelope") / TEMPLATE).read_text("utf-8")
    environment = Environment(undefined=StrictUndefined, autoescape=True)
    present = [p for p in COLOURS if any(point.precision == p for point in envelope.points)]
    settings = envelope.settings
    return environment.from_string(template).render(
        width=_LEFT + 2 * _WIDTH + _GAP + 20,
        height=_TOP + _HEIGHT + 50,
        left=_LEFT,
        title=f"{settings.menu} · {settings.backend} on {_device_name(envelope)}",
        colours=[(precision, COLOURS[precision]) for precision in present],
        panels=[_throughput(envelope), _memory(envelope)],
    )


def _device_name(envelope: Envelope) -> str:
    names = (point.device_name for point in envelope.points if point.device_name)
    return next(names, envelope.settings.device)


def _throughput(envelope: Envelope) -> _Panel:
    scale = _Scale.over(envelope.points, [p.tokens_per_s or 0.0 for p in envelope.points])
    marks = [scale.mark(point, point.tokens_per_s, "{:,.0f} tokens/s") for point in envelope.points]
    return scale.panel("tokens/s", _LEFT, marks, [])


def _memory(envelope: Envelope) -> _Panel:
    points, limit = envelope.points, envelope.limit
    peaks_gib = [p.peak_mem_gib or 0.0 for p in points if p.status == "ok"]
    limit_is_near = limit.gib < 1.5 * max(peaks_gib, default=0.0)
    scale = _Scale.over(points, [*peaks_gib, limit.gib] if limit_is_near else peaks_gib)
    measured = [p.peak_mem_gib if p.status == "ok" else None for p in points]
    marks = [
        scale.mark(point, peak_gib, "{:.2f} GiB")
        for point, peak_gib in zip(points, measured, strict=True)
    ]
    lines = [
        scale.line(
            fit.predict_gib,
            COLOURS[fit.precision],
            _SOLID,
            f"{fit.precision}: {fit.fixed_gib:.2f} GiB + {fit.per_token_mib:.3f} MiB a token",
        )
        for fit in envelope.fits
    ]
    if limit_is_near:
        label = f"limit {limit.gib:.1f} GiB"
        lines.append(scale.line(lambda _: limit.gib, "#000", _DASHED, label))
    return scale.panel("peak memory, GiB", _LEFT + _WIDTH + _GAP, marks, lines)


@dataclass(frozen=True, slots=True)
class _Scale:
    """From tokens and a value to places in a panel; both axes start at nothing."""

    most_tokens: float
    most: float

    @classmethod
    def over(cls, points: Sequence[EnvelopePoint], values: Sequence[float]) -> _Scale:
        return cls(
            most_tokens=1.05 * max((p.tokens_per_step for p in points), default=1),
            most=1.1 * max(values, default=0.0) or 1.0,
        )

    def x(self, tokens: float) -> float:
        return round(_WIDTH * tokens / self.most_tokens, 1)

    def y(self, value: float) -> float:
        return round(_HEIGHT * (1 - value / self.most), 1)

    def mark(self, point: EnvelopePoint, value: float | None, template: str) -> _Mark:
        said = point.status if value is None else template.format(value)
        return _Mark(
            x=self.x(point.tokens_per_step),
            y=self.y(value or 0.0),
            colour=COLOURS[point.precision],
            label=f"{point.cell}: {said}",
            failed=value is None,
        )

    def line(self, value: Callable[[float], float], colour: str, dash: str, label: str) -> _Line:
        """Drawn as far as it stays below the upper edge."""
        end, height = self.most_tokens, value(self.most_tokens)
        if height > self.most:
            end *= (self.most - value(0)) / (height - value(0))
        return _Line(
            self.x(0), self.y(value(0)), self.x(end), self.y(value(end)), colour, dash, label
        )

    def panel(self, title: str, x: int, marks: list[_Mark], lines: list[_Line]) -> _Panel:
        return _Panel(
            title=title,
            x=x,
            x_ticks=[(self.x(tick), f"{tick:,.0f}") for tick in _ticks(self.most_tokens)],
            y_ticks=[(self.y(tick), f"{tick:,g}") for tick in _ticks(self.most)],
            marks=marks,
            lines=lines,
        )


def _ticks(most: float) -> list[float]:
    """Three to eight round values from nothing to ``most``."""
    unit = 10.0 ** math.floor(math.log10(most))
    step = next(unit * s for s in (0.2, 0.5, 1, 2) if most / (unit * s) <= 7)
    return [round(k * step, 6) for k in range(int(most / step) + 1)]
