"""Describe configs for a language model in lines: measured ones, and predicted ones.

Text from earlier proposals or trials (reasons, failure messages) is untrusted. It is put on one
line, cut, and quoted, and the prompt says what the quotation marks mean.
"""

from __future__ import annotations

import heapq
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice

import numpy as np

from agent.proposers.base import SearchView
from agent.proposers.contrasts import Contrast, contrast
from agent.proposers.hybrid import Slate
from agent.proposers.llm.reply_form import listed
from agent.proposers.surrogate.promise import Promise
from autoresearch.safe_text import one_line
from autoresearch.values import Scalar
from autoresearch.words import brief, changes_text
from trajectory.evidence import ConfigEvidence
from trajectory.ranking import Noise

SEARCHES = ("", "sampler", "random")
"""Kinds of proposers whose reasons say nothing."""
BASES = 20
"""Most former references that other configs are described by."""
QUOTED_CHARACTERS = 120
FAILED = {
    "oom": "out of memory",
    "nonfinite": "the loss became infinite or NaN",
    "timeout": "too slow",
    "pruned": "stopped early, far behind",
}
"""Words for failure statuses; others appear unchanged."""
TELLING = {"crash", "killed"}
"""Statuses whose message is more informative than the status."""


def quoted(text: str) -> str:
    """Return untrusted words, printable, on one line, cut, in quotation marks."""
    return json.dumps(one_line(text, QUOTED_CHARACTERS), ensure_ascii=False)


def short(value: Scalar) -> str:
    """Return a value for reading: floats to three significant digits."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return f"{value:.3g}" if isinstance(value, float) else str(value)


def assignments(values: Mapping[str, Scalar]) -> str:
    """Return ``lr=0.003 n_layer=4``."""
    return " ".join(f"{name}={short(brief(name, value))}" for name, value in values.items())


@dataclass(frozen=True, slots=True)
class ConfigLines:
    """Describes configs by differences: their score from the reference's, and their knobs from the
    reference or a closer, earlier kept config."""

    view: SearchView
    reference: ConfigEvidence | None
    """None before it was measured."""
    bases: tuple[ConfigEvidence, ...]
    """Kept configs and the baseline; all of them are among the best lines."""
    values: Mapping[str, Mapping[str, Scalar]]
    """Knob values of the reference and the bases, by hash."""
    noise: Noise | None

    @classmethod
    def of(cls, view: SearchView) -> ConfigLines:
        entries = view.evidence.configs
        own = view.reference.config_hash
        former = (e for e in reversed(entries.values()) if e.action == "keep" or not e.iter)
        bases = tuple(islice((e for e in former if e.config_hash != own and e.scores), BASES))
        known = {own: view.reference} | {base.config_hash: base.config for base in bases}
        return cls(
            view,
            entries.get(own),
            bases,
            {key: view.menu.knob_values(config) for key, config in known.items()},
            Noise.of(view.evidence),
        )

    def against(self, entry: ConfigEvidence) -> Contrast | None:
        """Return a config's difference from the reference."""
        return contrast(entry, self.reference, self.noise)

    def best(self, entry: ConfigEvidence) -> str:
        """Return ``#12 -31±14 kept: lr=0.003``."""
        return f"{self._result(entry)}: {self._from_reference(entry)}"

    def outcomes(self, entries: Iterable[ConfigEvidence]) -> Iterator[str]:
        """Yield ``#12 lr=0.003 "its reason": expected -40, measured -31±14, kept``."""
        measure = self.view.menu.measure
        for entry in entries:
            if entry.kind in SEARCHES or not entry.reason:
                continue
            line = f"{_name(entry)} {changes_text(entry.changes)} {quoted(entry.reason)}: "
            if entry.expected is not None:
                line += f"expected {measure.counted(entry.expected)}, "
            against = self.against(entry)
            if entry.failures and not entry.scores:
                yield line + _failure(entry)
            elif against is not None:
                verdict = "kept" if entry.action == "keep" else "not kept"
                yield f"{line}measured {against.text(measure)}, {verdict}"

    def measured(self, entry: ConfigEvidence) -> str:
        """Return ``#12 -31±14: lr=0.003`` or ``#12 -31±14: #7 but lr=0.003``."""
        return f"{self._result(entry)}: {self._shortest(entry)}"

    def failed(self, entry: ConfigEvidence) -> str:
        """Return ``#12 out of memory: batch_size=64``."""
        last = entry.failures[-1]
        line = f"{_name(entry)} {_failure(entry)}: {self._shortest(entry)}"
        return f"{line} {quoted(last.message)}" if last.status in TELLING else line

    def of_either(self, entry: ConfigEvidence) -> str:
        """Return the line of a measured or failed config."""
        if entry.scores:
            return self.measured(entry)
        if entry.failures:
            return self.failed(entry)
        return f"{_name(entry)} no result: {self._shortest(entry)}"

    def is_far(self, entry: ConfigEvidence) -> bool:
        """Return whether it differs from its nearest base in more knobs than a model is asked to
        change."""
        nearest = min(len(self._differing(entry, key)) for key in self.values)
        return nearest > self.view.asked_changes

    def _result(self, entry: ConfigEvidence) -> str:
        against = self.against(entry)
        measure = self.view.menu.measure
        result = measure.text(entry.mean) if against is None else against.text(measure)
        if entry.action == "keep":
            result += " kept"
        if entry.same_as is not None:
            result += " no effect"
        if entry.failures:
            result += f" (a run: {_failure(entry)})"
        return f"{_name(entry)} {result}"

    def _from_reference(self, entry: ConfigEvidence) -> str:
        own = self.view.reference.config_hash
        return assignments(self._differing(entry, own)) or "as the reference"

    def _shortest(self, entry: ConfigEvidence) -> str:
        bases = {base.config_hash: _name(base) for base in self.bases}
        counts = {key: len(self._differing(entry, key)) for key in self.values}
        # Prefer the reference among equally near bases, then the latest.
        nearest = min(counts, key=counts.__getitem__)
        if nearest not in bases:
            return self._from_reference(entry)
        return f"{bases[nearest]} but {assignments(self._differing(entry, nearest))}"

    def _differing(self, entry: ConfigEvidence, base: str) -> dict[str, Scalar]:
        values = self.view.menu.knob_values(entry.config)
        then = self.values[base]
        return {name: value for name, value in values.items() if value != then[name]}


def _name(entry: ConfigEvidence) -> str:
    return f"#{entry.iter}" if entry.iter else "baseline"


def _failure(entry: ConfigEvidence) -> str:
    status = entry.failures[-1].status
    return FAILED.get(status, status)


NEAREST = 2
SCANNED = 200
"""Number of latest measured configs among which the nearest are sought."""
VISIBLE = 0.5
"""Predicted effect of a knob, in its standard deviations, that is worth a line."""


def slate_lines(view: SearchView, slate: Slate) -> Iterator[str]:
    """Yield ``A: lr=0.003, norm=rmsnorm; predicted -12±30; nearest #12 -31±14, #7 +5±20``."""
    lines, measure = ConfigLines.of(view), view.menu.measure
    space = slate.promise.space
    measured = [entry for entry in view.evidence.configs.values() if entry.scores]
    measured = measured[-SCANNED:]
    known = [(entry, view.menu.knob_values(entry.config)) for entry in measured]
    known = [(entry, values) for entry, values in known if space.contains(values)]
    points_NP = space.points([values for _, values in known])
    edited_MP = space.edited(slate.promise.now, [one.changes for one in slate.candidates])
    for name, candidate, point_P in zip(slate.names, slate.candidates, edited_MP, strict=True):
        distance_N = np.linalg.norm(points_NP - point_P, axis=1).tolist()
        near = heapq.nsmallest(NEAREST, range(len(known)), key=distance_N.__getitem__)
        parts = []
        for entry in (known[place][0] for place in near):
            against = lines.against(entry)
            if entry is not lines.reference and against is not None:
                label = f"#{entry.iter}" if entry.iter else "the baseline"
                parts.append(f"{label} {against.text(measure)}")
        predicted = measure.counted(candidate.delta, candidate.sd)
        line = f"{name}: {assignments(candidate.changes)}; predicted {predicted}"
        yield f"{line}; nearest {', '.join(parts)}" if parts else line


def belief_lines(view: SearchView, promise: Promise) -> Iterator[str]:
    """Yield ``lr: best 0.003 -42±21, worst 0.03 +900±300``, the most promising knob first, then the
    knobs without a visible effect."""
    measure = view.menu.measure
    visible: list[tuple[float, str]] = []
    flat = []
    for name, domain in view.menu.open_domains.items():
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
