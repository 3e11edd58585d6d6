"""Write what a surrogate predicts, for a language model: of candidates, and of single knobs."""

from __future__ import annotations

import heapq
from collections.abc import Iterator

import numpy as np

from agent.proposers.base import Memory
from agent.proposers.contrasts import contrast
from agent.proposers.llm.config_lines import assignments, short
from agent.proposers.llm.reply_form import listed
from agent.proposers.slates import Slate
from agent.proposers.surrogate.promise import Promise
from trajectory.ranking import Noise

NEAREST = 2
SCANNED = 200
"""Number of latest measured configs among which the nearest are sought."""
VISIBLE = 0.5
"""Predicted effect of a knob, in its standard deviations, that is worth a line."""


def slate_lines(memory: Memory, slate: Slate) -> Iterator[str]:
    """Yield ``A: lr=0.003, norm=rmsnorm; predicted -12±30; nearest #12 -31±14, #7 +5±20``."""
    evidence, measure = memory.evidence, memory.menu.measure
    reference = evidence.configs.get(memory.reference.config_hash)
    noise = Noise.of(evidence.tally)
    space = slate.promise.space
    measured = [entry for entry in evidence.configs.values() if entry.scores][-SCANNED:]
    known = [(entry, memory.menu.knob_values(entry.config)) for entry in measured]
    known = [(entry, values) for entry, values in known if space.contains(values)]
    points_NP = space.points([values for _, values in known])
    edited_MP = space.edited(slate.promise.now, [one.changes for one in slate.candidates])
    for name, candidate, point_P in zip(slate.names, slate.candidates, edited_MP, strict=True):
        distance_N = np.linalg.norm(points_NP - point_P, axis=1).tolist()
        near = heapq.nsmallest(NEAREST, range(len(known)), key=distance_N.__getitem__)
        parts = []
        for entry in (known[place][0] for place in near):
            against = contrast(entry, reference, noise)
            if entry is not reference and against is not None:
                label = f"#{entry.iter}" if entry.iter else "the baseline"
                parts.append(f"{label} {against.text(measure)}")
        predicted = measure.counted(candidate.delta, candidate.sd)
        line = f"{name}: {assignments(candidate.changes)}; predicted {predicted}"
        yield f"{line}; nearest {', '.join(parts)}" if parts else line


def belief_lines(memory: Memory, promise: Promise) -> Iterator[str]:
    """Yield ``lr: best 0.003 -42±21, worst 0.03 +900±300``, the most promising knob first, then the
    knobs without a visible effect."""
    measure = memory.menu.measure
    visible: list[tuple[float, str]] = []
    flat = []
    for name, domain in memory.menu.domains.items():
        values = [value for value in listed(domain) if value != promise.now[name]]
        if not values:
            continue
        delta_M, sd_M = promise.effects([{name: value} for value in values])
        order = sorted(range(len(values)), key=delta_M.__getitem__)
        best, worst = order[0], order[-1]
        if max(abs(delta_M[end]) / sd_M[end] for end in (best, worst)) < VISIBLE:
            flat.append(name)
            continue
        ends = (("best ", best), ("worst ", worst)) if len(values) > 1 else (("", best),)
        said = ", ".join(
            f"{word}{short(values[end])} {measure.counted(delta_M[end], sd_M[end])}"
            for word, end in ends
        )
        visible.append((delta_M[best] / sd_M[best], f"{name}: {said}"))
    yield from (line for _, line in sorted(visible))
    if flat:
        yield f"no visible effect so far: {', '.join(flat)}"
