"""Collect the facts of a prompt for a language model: the campaign's evidence in lines, the most
useful first, and what is measured and how.

The prompt for one function to write gets its contract, the function in use and every variant tried.
"""

from __future__ import annotations

import heapq
import json
from collections import defaultdict
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain, groupby, islice, zip_longest
from operator import attrgetter
from typing import Any

from agent.judge import kept_when
from agent.menu.replies import read_code_reply
from agent.menu.reply_objects import ReplyError
from agent.proposers.base import SearchView
from agent.proposers.contrasts import effects
from agent.proposers.llm.config_lines import FAILED, ConfigLines, quoted, short
from agent.proposers.llm.reply_form import ASKED_REASON_CHARACTERS
from agent.proposers.priors import Finding
from agent.proposers.surrogate.promise import provable
from autoresearch.values import Scalar
from autoresearch.words import changes_text, counted
from trainer.schema import AnyConfig
from trajectory.evidence import ConfigEvidence
from trajectory.ranking import Noise

BEST = 10
OUTCOMES = 12
"""Most reasons to quote."""
FAILURES = 8
USED_UP = 4
"""Most knobs whose tried values are listed after refusals."""
HISTORY = 400
"""Most lines of further history, by rank and by date each."""
SCANNED = 10_000
"""Number of latest configs to read effects from."""
EFFECTS = 8
"""Most effects of one knob."""


@dataclass(frozen=True, slots=True)
class Digest:
    """All lines of every section; lines that do not fit are cut from the last section first."""

    sections: Mapping[str, Sequence[str]]
    configs: int
    """Number of configs tried, without the reference, which has a section of its own."""
    failed: int

    @classmethod
    def of(cls, view: SearchView, beliefs: Iterable[str] = ()) -> Digest:
        entries = view.evidence.configs
        lines = ConfigLines.of(view)
        others = [entry for entry in entries.values() if entry is not lines.reference]
        ranked = heapq.nsmallest(
            BEST + HISTORY, (e for e in others if e.scores), key=attrgetter("mean")
        )
        failed = [entry for entry in others if entry.failures and not entry.scores]
        failures = list(reversed(failed[-FAILURES:]))
        best = sorted(_first_of_each([*ranked[:BEST], *lines.bases], set()), key=attrgetter("mean"))
        shown = {entry.config_hash for entry in (*best, *failures)}
        latest = islice(reversed(others), HISTORY)
        # one of the best, one of the latest, and so on
        alternating = chain.from_iterable(zip_longest(ranked[BEST:], latest))
        rest = _first_of_each((one for one in alternating if one is not None), shown)
        # A config with many changed knobs says little about any of them, and takes the space of
        # three others.
        nearer_first = sorted(rest, key=lines.is_far)
        recent = list(islice(entries.values(), max(0, len(entries) - SCANNED), None))
        baseline = view.menu.knob_values(view.menu.baseline)
        untouched = [
            name
            for name, value in baseline.items()
            if all(view.menu.knob_value(entry.config, name) == value for entry in recent)
        ]
        findings = (
            [_finding(number, finding) for finding in prior.findings]
            for number, prior in enumerate(view.priors, start=1)
        )
        # the best of each prior in rotation, so that a short prompt covers all of them
        priors = chain.from_iterable(zip_longest(*findings))
        sections: dict[str, Iterable[str]] = {
            "best": map(lines.best, best),
            # reasons that models and people gave, the latest first, with what became of them
            "outcomes": islice(lines.outcomes(reversed(others)), OUTCOMES),
            "failures": map(lines.failed, failures),
            "beliefs": beliefs,  # a surrogate's predictions for each knob
            "effects": _effects(view, recent, lines.noise),
            "untouched": [", ".join(untouched)] if untouched else [],
            "priors": filter(None, priors),  # findings of earlier campaigns
            "history": map(lines.of_either, nearer_first),
        }
        all_lines = {name: tuple(section) for name, section in sections.items()}
        return cls(all_lines, configs=len(others), failed=len(failed))


# --- what was refused ---------------------------------------------------------------------------

REFUSED = {
    "schema": "were not in the form of the answer",
    "menu": "set a name that is not a knob, or too many knobs",
    "range": "gave a value outside a knob's domain",
    "code": "held code that the static rails refuse",
    "cross": "broke a constraint",
    "memory": "needed more memory than there is",
    "novelty": "were tried before, or changed nothing",
    "code_run": "held code that failed a check when it ran on small tensors",
}


def refusal_lines(view: SearchView) -> Iterator[str]:
    """Yield what was wrong with refused proposals, and which values are used up."""
    refusals = view.evidence.refusals
    for rail, count in sorted(refusals.items(), key=lambda each: (-each[1], each[0])):
        yield f"{count} {REFUSED.get(rail, rail)}"
    if refusals["novelty"]:
        yield from islice(tried_values(view), USED_UP)


def tried_values(view: SearchView, names: Container[str] | None = None) -> Iterator[str]:
    """Yield ``8 values of lr alone have been tried from this reference: 0.001, …``, the most tried
    knob first.

    :param names: only these knobs.
    """
    now = view.menu.knob_values(view.reference)
    tried: dict[str, set[Scalar]] = defaultdict(set)
    for entry in view.evidence.configs.values():
        values = view.menu.knob_values(entry.config)
        changed = [name for name in now if values[name] != now[name]]
        if len(changed) == 1 and (names is None or changed[0] in names):
            tried[changed[0]].add(values[changed[0]])
    for name, found in sorted(tried.items(), key=lambda each: -len(each[1])):
        listed = ", ".join(map(short, sorted(found, key=_order)))
        noun = counted(len(found), "value")
        yield f"{noun} of {name} alone tried from this reference: {listed}"


# --- what each knob did -------------------------------------------------------------------------


def _effects(
    view: SearchView, entries: Sequence[ConfigEvidence], noise: Noise | None
) -> Iterator[str]:
    """Yield a line per knob that was changed alone: ``lr: from 0.001: 0.003 -31±14, 0.01 +5±20;
    from 0.003: 0.004 -2±14``."""
    measured = [entry for entry in entries if entry.scores]
    for name, found in effects(view.menu, measured, noise).items():
        best_known = sorted(found[:EFFECTS], key=lambda effect: _order(effect.before))
        parts = []
        for before, group in groupby(best_known, key=lambda effect: effect.before):
            afters = [
                f"{short(effect.after)} {effect.contrast.text(view.menu.measure)}"
                for effect in sorted(group, key=lambda effect: _order(effect.after))
            ]
            parts.append(f"from {short(before)}: {', '.join(afters)}")
        yield f"{name}: {'; '.join(parts)}"


def _order(value: Scalar) -> tuple[float, str]:
    """Return a sort key for a knob's values, which are all numbers or all words."""
    return (0.0, value) if isinstance(value, str) else (float(value), "")


# --- what earlier campaigns found ----------------------------------------------------------------


def _finding(number: int, finding: Finding) -> str:
    gain = "gain unknown" if finding.gain is None else f"{finding.gain:+.1f} sd"
    action = f" {finding.action}" if finding.action != "none" else ""
    line = f"campaign {number}: {gain} n={finding.n}{action}: {quoted(finding.said)}"
    return f"{line} {quoted(finding.reason)}" if finding.reason else line


# --- order ------------------------------------------------------------------------------------


def _first_of_each(entries: Iterable[ConfigEvidence], seen: set[str]) -> Iterator[ConfigEvidence]:
    for entry in entries:
        if entry.config_hash not in seen:
            seen.add(entry.config_hash)
            yield entry


SHOWN_PENDING = 16
"""Most configs in flight to show, the latest."""


def in_flight(view: SearchView) -> Iterator[str]:
    """Yield the configs now in training, each as its difference from the reference."""
    now = view.menu.knob_values(view.reference)
    for config in view.pending[-SHOWN_PENDING:]:
        values = view.menu.knob_values(config)
        changes = {name: value for name, value in values.items() if value != now[name]}
        yield changes_text(changes) or "as the reference"


def on_scores(view: SearchView) -> dict[str, Any]:
    """Return what a score is, how noisy it is, and what is kept. ``own`` is the name of a command's
    score."""
    menu, measure, sigma = view.menu, view.menu.measure, view.evidence.sigma
    noise = None
    if sigma is not None:
        difference = 1.96 * 2**0.5 * sigma
        noise = {"sigma": sigma, "difference": difference, "provable": provable(view)}
    return {
        "own": None if menu.trainer is None else measure.name,
        "measure": measure.model_dump(mode="json")
        | {"better": measure.better, "parts": measure.parts},
        "noise": noise,
        "kept_when": kept_when(view.rules) if view.rules else None,
        "max_reason": ASKED_REASON_CHARACTERS,
    }


def point_of(view: SearchView, config: AnyConfig) -> dict[str, Any]:
    """Return a config as the prompt shows it: its mean is an objective, None if unmeasured."""
    entry = view.evidence.configs.get(config.config_hash)
    values = {name: one for name, one in view.menu.knob_values(config).items() if one != ""}
    point = {"values": changes_text(values), "mean": None, "n": 0}
    if entry is None or not entry.scores:
        return point
    score = view.menu.measure.text(entry.mean)
    return {**point, "mean": entry.mean, "score": score, "n": entry.n, "params": entry.params}


def contract(view: SearchView, name: str) -> dict[str, Any]:
    """Return what a code knob asks for, and the function that the reference uses."""
    knob = view.menu.code_knobs[name]
    return {
        "name": name,
        "signature": knob.signature,
        "doc": " ".join(knob.contract.split()),
        "limits": knob.limits,
        "code": view.menu.knob_value(view.reference, name) or knob.built_in(view.reference),
    }


def code_example(view: SearchView, name: str) -> str:
    """Return the form of a reply, with nothing in it that could be trained."""
    code = f"{view.menu.code_knobs[name].signature}:\n    return …"
    return json.dumps({"reason": "…", "code": code}, ensure_ascii=False)


def variants(view: SearchView, name: str) -> Iterator[str]:
    """Yield a block per function tried for a code knob: its result beside the reference, or the
    rail that refused it. The best come first, then failures, then the latest refusals."""
    now = view.menu.knob_value(view.reference, name)
    tried: dict[str, ConfigEvidence] = {}
    entries = view.evidence.configs.values()
    # Of several configs with one function, the one nearest to the reference says most about it.
    for entry in sorted(entries, key=lambda one: -_distance(view, one)):
        source = str(view.menu.knob_value(entry.config, name))
        if source != now and (entry.scores or entry.failures):
            tried[source] = entry
    lines = ConfigLines.of(view)
    ranked = sorted(tried.items(), key=lambda pair: pair[1].mean if pair[1].scores else 1e300)
    for source, entry in ranked:
        shown = source or view.menu.code_knobs[name].built_in(view.reference) or "(built in)"
        more, against = _distance(view, entry) - 1, lines.against(entry)
        beside = f", with {more} other knobs changed" if more else ""
        result = "no result"
        if against is not None:
            kept = ", kept" if entry.action == "keep" else ""
            result = f"{against.text(view.menu.measure)}{kept}"
        elif entry.failures:
            failed = entry.failures[-1]
            result = f"{FAILED.get(failed.status, failed.status)} {quoted(failed.message)}"
        yield f"{result}{beside}:\n{shown}"
    for refused in reversed(view.evidence.refused_code):
        if name in refused.why:
            said = refused.said
            with suppress(ReplyError):
                said, _ = read_code_reply(said)
            yield f"refused, because {quoted(refused.why)}:\n{said}"


def _distance(view: SearchView, entry: ConfigEvidence) -> int:
    there, here = (view.menu.knob_values(one) for one in (entry.config, view.reference))
    return sum(there[knob] != value for knob, value in here.items())
