"""A campaign's memory in lines that a language model reads, the most useful first.

Text that earlier proposals or trials wrote (reasons, failure messages) is untrusted: it goes on
one line, cut short, in quotation marks, and the prompt says what that means.
"""

from __future__ import annotations

import heapq
import json
import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, islice, zip_longest
from statistics import fmean

from agent.knob import Knob
from agent.priors import Finding
from agent.proposers.base import Memory
from agent.wording import changes_text, scalar_text
from trainer.spec import Scalar
from trajectory.evidence import ConfigEvidence

BEST = 10
FAILURES = 8
HISTORY = 400
"""Most lines of the rest of history that any budget is offered, by rank and by date each."""
SCANNED = 10_000
"""Latest configs that averages are taken over."""
BINS = 4
"""Of a knob's domain, where it has more values than :data:`LISTED`."""
LISTED = 8
QUOTED_CHARACTERS = 120


@dataclass(frozen=True, slots=True)
class Digest:
    """Every section's lines in full; what does not fit is cut from the last section first."""

    best: tuple[str, ...]
    failures: tuple[str, ...]
    effects: tuple[str, ...]
    untouched: tuple[str, ...]
    """One line, or none."""
    priors: tuple[str, ...]
    """What earlier campaigns found."""
    history: tuple[str, ...]
    configs: int
    failed: int

    @classmethod
    def of(cls, memory: Memory) -> Digest:
        entries = memory.evidence.configs
        measured = (entry for entry in entries.values() if entry.scores)
        ranked = heapq.nsmallest(BEST + HISTORY, measured, key=_mean)
        failed = [entry for entry in entries.values() if entry.failures]
        shown = {entry.config_hash for entry in ranked[:BEST]}
        latest = islice(reversed(entries.values()), HISTORY)
        rest = _first_of_each(chain.from_iterable(_in_turn(ranked[BEST:], latest)), shown)
        recent = list(islice(entries.values(), max(0, len(entries) - SCANNED), None))
        return cls(
            best=tuple(_line(memory, entry, with_reason=True) for entry in ranked[:BEST]),
            failures=tuple(_failure(memory, entry) for entry in reversed(failed[-FAILURES:])),
            effects=tuple(_effects(memory, [entry for entry in recent if entry.scores])),
            untouched=tuple(_untouched(memory, recent)),
            priors=tuple(_priors(memory)),
            history=tuple(_line(memory, entry) for entry in rest),
            configs=len(entries),
            failed=len(failed),
        )


def quoted(text: str) -> str:
    """Somebody else's words: printable, on one line, cut short, in quotation marks."""
    printable = "".join(c if c.isprintable() else " " for c in text[: 10 * QUOTED_CHARACTERS])
    words = " ".join(printable.split())
    if len(words) > QUOTED_CHARACTERS:
        words = words[: QUOTED_CHARACTERS - 1] + "…"
    return json.dumps(words, ensure_ascii=False)


def changed_from_baseline(memory: Memory, entry: ConfigEvidence) -> str:
    """``lr=0.003 n_layer=4``, or ``the baseline``."""
    baseline = memory.menu.knob_values(memory.menu.baseline)
    values = memory.menu.knob_values(entry.config)
    changes = {name: value for name, value in values.items() if value != baseline[name]}
    return changes_text(changes) or "the baseline"


# --- one line each ------------------------------------------------------------------------------


def _line(memory: Memory, entry: ConfigEvidence, *, with_reason: bool = False) -> str:
    when = f"#{entry.iter}" if entry.iter else "baseline"
    result = f"{entry.mean:.4f} n={entry.n}" if entry.scores else "no result"
    if entry.failures:
        result += f", failed: {entry.failures[-1].status}"
    action = f" {entry.action}" if entry.action != "none" else ""
    line = f"{when} {result}{action}: {changed_from_baseline(memory, entry)}"
    return f"{line} {quoted(entry.reason)}" if with_reason and entry.reason else line


def _failure(memory: Memory, entry: ConfigEvidence) -> str:
    last = entry.failures[-1]
    steps = f" after {last.steps} steps" if last.steps is not None else ""
    what = f"#{entry.iter} {last.status}{steps}: {changed_from_baseline(memory, entry)}"
    return f"{what} {quoted(last.message)}"


# --- what each knob did -------------------------------------------------------------------------


def _effects(memory: Memory, entries: Sequence[ConfigEvidence]) -> Iterator[str]:
    """A line per turned knob: mean val_bpb and number of configs by value or range of values,
    and where the best tenth lies, which is how a TPE sees it."""
    if len(entries) < 2:
        return
    means = [entry.mean for entry in entries]
    tenth = heapq.nsmallest(math.ceil(len(entries) / 10), range(len(entries)), means.__getitem__)
    for name, knob in memory.menu.knobs.items():
        values = [getattr(entry.config, name) for entry in entries]
        if all(value == values[0] for value in values):
            continue
        groups: dict[str, list[float]] = defaultdict(list)
        for value, mean in zip(values, means, strict=True):
            groups[_group(knob, value)].append(mean)
        parts = [
            f"{group} {fmean(groups[group]):.3f} ({len(groups[group])})"
            for group in _group_names(knob, groups)
        ]
        best = _span([values[index] for index in tenth])
        yield f"{name}: {', '.join(parts)}; best tenth {best}"


def _group(knob: Knob, value: Scalar) -> str:
    if _values(knob) or isinstance(value, bool | str):
        return scalar_text(value)
    edges = _edges(knob)
    place = sum(value >= edge for edge in edges[1:-1])
    return _range(edges, place)


def _values(knob: Knob) -> Sequence[Scalar]:
    """All of a knob's values, where they are few."""
    if knob.type == "int" and not knob.choices:
        values = range(int(knob.low or 0), int(knob.high or 0) + 1, knob.step)
        return values if len(values) <= LISTED else ()
    return knob.choices


def _group_names(knob: Knob, groups: Mapping[str, object]) -> Iterable[str]:
    """The groups that hold anything, in the order of their values."""
    if values := _values(knob):
        names = [scalar_text(value) for value in values]
    else:
        edges = _edges(knob)
        names = [_range(edges, place) for place in range(len(edges) - 1)]
    return [name for name in names if name in groups]


def _edges(knob: Knob) -> list[float]:
    """Of equal bins over the knob's domain on its scale."""
    assert knob.low is not None
    assert knob.high is not None
    low, high = knob.low, knob.high
    if knob.scale == "log":
        ratio = high / low
        return [low * ratio ** (place / BINS) for place in range(BINS + 1)]
    return [low + (high - low) * place / BINS for place in range(BINS + 1)]


def _range(edges: Sequence[float], place: int) -> str:
    return f"{edges[place]:.3g}..{edges[place + 1]:.3g}"


def _span(values: Sequence[Scalar]) -> str:
    """``0.001..0.004`` for numbers, ``rmsnorm x3, layernorm x1`` for the rest."""
    if any(isinstance(value, bool | str) for value in values):
        counts = {value: values.count(value) for value in dict.fromkeys(values)}
        return ", ".join(f"{scalar_text(value)} x{count}" for value, count in counts.items())
    low, high = scalar_text(min(values)), scalar_text(max(values))
    return low if low == high else f"{low}..{high}"


def _untouched(memory: Memory, entries: Sequence[ConfigEvidence]) -> Iterator[str]:
    baseline = memory.menu.knob_values(memory.menu.baseline)
    names = [
        name
        for name, value in baseline.items()
        if all(getattr(entry.config, name) == value for entry in entries)
    ]
    if names:
        yield ", ".join(names)


# --- what earlier campaigns found ----------------------------------------------------------------


def _priors(memory: Memory) -> Iterator[str]:
    """The best of each prior in turn, so that a short prompt has something of all of them."""
    findings = [
        [_finding(number, finding) for finding in prior.findings]
        for number, prior in enumerate(memory.priors, start=1)
    ]
    for turn in zip_longest(*findings):
        yield from (line for line in turn if line is not None)


def _finding(number: int, finding: Finding) -> str:
    gain = "gain unknown" if finding.gain is None else f"{finding.gain:+.1f} sd"
    action = f" {finding.action}" if finding.action != "none" else ""
    line = f"campaign {number}: {gain} n={finding.n}{action}: {quoted(finding.said)}"
    return f"{line} {quoted(finding.reason)}" if finding.reason else line


# --- order ------------------------------------------------------------------------------------


def _mean(entry: ConfigEvidence) -> float:
    return entry.mean


def _in_turn(
    ranked: Iterable[ConfigEvidence], latest: Iterable[ConfigEvidence]
) -> Iterator[Sequence[ConfigEvidence]]:
    """One from the best, one from the latest, and so on."""
    by_rank, by_date = iter(ranked), iter(latest)
    while turn := [*islice(by_rank, 1), *islice(by_date, 1)]:
        yield turn


def _first_of_each(entries: Iterable[ConfigEvidence], seen: set[str]) -> Iterator[ConfigEvidence]:
    for entry in entries:
        if entry.config_hash not in seen:
            seen.add(entry.config_hash)
            yield entry
