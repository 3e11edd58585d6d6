"""A report on disk: the page, which is one HTML file that fetches nothing, and its figures.

The page's content-security policy allows, by their hashes, only the style sheet and the script that
it contains: no other script, no network, no frames, no form. The template escapes every text. The
script makes text nodes only, and the policy forbids anything else.
"""

import base64
import hashlib
import json
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import jinja2
from markupsafe import Markup

from autoresearch.campaign_files import make_folder, replacing
from autoresearch.layout import FIGURES_DIR, REPORT_PAGE
from autoresearch.words import counted, duration_text
from trainer.schema import BPB, Measure
from trajectory.formats.importing import ImportedCampaign
from trajectory.formats.standings import Standings
from trajectory.report import svg, wording
from trajectory.report.canvas import Picture
from trajectory.report.figures import SECTIONS, WHO, Figure
from trajectory.report.figures.coverage import coverage
from trajectory.report.figures.curves import learning_curves, long_runs, rank_fidelity
from trajectory.report.figures.knob_effects import knob_effects
from trajectory.report.figures.phases import phases
from trajectory.report.figures.progress import progress, progress_picture
from trajectory.report.figures.progress_points import Point
from trajectory.report.figures.time_and_energy import time_and_energy
from trajectory.report.findings import Findings
from trajectory.report.iterations import ReportedIteration
from trajectory.report.ledger import Proposers
from trajectory.report.svg import Drawing
from trajectory.report.wording import cut, label, shown, value_text
from trajectory.statistics.intervals import RunNoise, of_runs

FIGURES: tuple[Callable[[Findings], Figure | None], ...] = (
    *(progress, knob_effects, coverage, learning_curves),
    *(long_runs, rank_fidelity, time_and_energy, phases),
)
"""The report's figures, in the page's order."""


def figures_of(found: Findings) -> tuple[Figure, ...]:
    """Return the figures that the page mentions, whether or not they have data to draw yet."""
    return tuple(figure for make in FIGURES if (figure := make(found)) is not None)


@dataclass(frozen=True, slots=True)
class Report:
    """Paths of the files of a report."""

    page: Path
    figures: tuple[Path, ...]
    """Two files for each figure: SVG and PNG."""


def write_report(findings: Findings, out: Path) -> Report:
    """Write a campaign's report into a folder, which is created if it is missing.

    :raises OSError: if the folder cannot be written.
    """
    figures = figures_of(findings)
    pictures = [figure.draw for figure in figures if figure.draw]
    return write_page(
        out, pictures, lambda drawn: render(findings, figures, drawn, datetime.now(UTC))
    )


def write_imported(campaign: ImportedCampaign, title: str, out: Path) -> Report:
    """Write the report of an imported campaign into a folder, which is created if it is missing.

    :param title: the campaign's name.
    :raises OSError: if the folder cannot be written.
    """
    found, provenance = Standings.of(campaign.runs), campaign.provenance
    measure = Measure(unit=provenance.measure[:40])
    points = [
        Point(run.iter, "failed", None)
        if run.score is None
        else Point(
            run.iter,
            "keep" if run.action == "keep" else "discard",
            of_runs(run.score, 1, found.noise),
        )
        for run in campaign.runs
    ]
    baseline = found.baseline_estimate()
    ranked = found.top(len(found.configs))
    kept = sorted((one.iter, one.objective) for one in ranked if one.entry.action == "keep")
    draw = partial(progress_picture, points, measure, baseline, found.noise, kept)

    def page(drawings: Sequence[Drawing]) -> str:
        return html(
            "imported.html.j2",
            measure,
            drawings,
            datetime.now(UTC),
            title=title,
            measure=measure,
            provenance=provenance,
            runs=campaign.runs,
            found=found,
            ranked=ranked,
        )

    return write_page(out, [draw] if ranked else [], page)


def write_page(
    out: Path,
    draws: Sequence[Callable[[], Picture]],
    page_of: Callable[[Sequence[Drawing]], str],
) -> Report:
    """Draw figures, and write them with their page.

    Either all files appear or none. Each is first written to a temporary file beside its
    destination. Once all are written, they are moved into place, the page last.

    :param page_of: returns the page with these drawings.
    :raises OSError: if the folder cannot be written.
    """
    drawn = [svg.draw(draw) for draw in draws]
    page = page_of(drawn)
    make_folder(out, FIGURES_DIR)
    files = {
        f"{FIGURES_DIR}/{name}": data for drawing in drawn for name, data in drawing.files.items()
    }
    _replace_all(out, {**files, REPORT_PAGE: page.encode()})
    return Report(out / REPORT_PAGE, tuple(out / name for name in files))


def _replace_all(out: Path, files: dict[str, bytes]) -> None:
    """Write temporary files beside the destinations, then move them into place in the given
    order."""
    with ExitStack() as places:
        for name, data in reversed(files.items()):  # an ExitStack exits in reverse order
            file = places.enter_context(replacing(out, name))
            file.write(data)
            file.flush()


TEMPLATES = Path(__file__).with_name("templates")


def render(
    found: Findings, figures: Sequence[Figure], drawings: Sequence[Drawing], made_at: datetime
) -> str:
    """Return the page's HTML.

    :param figures: the figures that the page mentions.
    :param drawings: drawings of the figures that have data.
    """
    proposers = Proposers.of(found.ledger)
    spoken_of = {figure.section for figure in figures} | ({WHO} if proposers else set())
    return html(
        "report.html.j2",
        found.about.scoring,
        drawings,
        made_at,
        found=found,
        about=found.about,
        sections=[one for one in SECTIONS if one.always or one in spoken_of],
        figures={figure.name: figure for figure in figures},
        proposers=proposers,
        table=columns(found.iterations, found.noise, found.about.scoring),
    )


def html(
    template: str,
    scoring: Measure,
    drawings: Sequence[Drawing],
    made_at: datetime,
    **values: Any,
) -> str:
    """Return a page from its template, which sees these values besides."""
    light, dark = svg.variables("light"), svg.variables("dark")
    css = (
        f":root{{{light}}}\n"
        f"@media screen and (prefers-color-scheme:dark){{:root{{{dark}}}}}\n"
        f"{svg.rules()}\n{(TEMPLATES / 'report.css').read_text('utf-8')}"
    )
    script = (TEMPLATES / "report.js").read_text("utf-8")
    policy = (
        f"default-src 'none'; style-src '{_source(css)}'; script-src '{_source(script)}'; "
        "base-uri 'none'; form-action 'none'; require-trusted-types-for 'script'"
    )
    return (
        _environment(wording.ScoreFormat(scoring))
        .get_template(template)
        .render(
            **values,
            drawings={drawing.name: Markup(drawing.inline) for drawing in drawings},
            policy=policy,
            css=Markup(css),
            script=Markup(script),
            made_at=f"{made_at:%Y-%m-%d %H:%M} UTC",
        )
    )


def _environment(scores: wording.ScoreFormat) -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(TEMPLATES),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.policies["json.dumps_kwargs"] = {"separators": (",", ":"), "allow_nan": False}
    environment.policies["json.dumps_function"] = json.dumps
    environment.filters |= {
        "number": wording.number,
        "signed": scores.signed,
        "score": scores.text,
        "size": scores.size,
        "percent": wording.percent,
        "seconds": duration_text,
        "money": wording.money,
        "half_width": scores.half_width,
        "count": counted,
        "rate": wording.rate,
        "shown": shown,
        "label": label,
        "cut": cut,
        "value": wording.value_text,
        "changed": changed_text,
    }
    environment.globals |= {"span": wording.span, "scores": scores.span}
    return environment


def _source(text: str) -> str:
    """Return a hash source, as defined in Content Security Policy Level 3."""
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode('ascii')}"


MOST_CHARACTERS = 160
"""The most characters of a row's changes; the row's details show all of them."""


def columns(
    iterations: Sequence[ReportedIteration], noise: RunNoise | None, measure: Measure = BPB
) -> dict[str, Any]:
    """Return a list for each column, with one entry for each iteration.

    ``kind`` and ``outcome`` hold indices into ``kinds`` and ``outcomes``, and ``half`` the half
    interval of a mean by its number of runs. Scores have one decimal more than the page shows.
    ``digits`` says how many it shows if these are not four. A column without any value is empty.
    """
    kinds = sorted({iteration.kind for iteration in iterations})
    outcomes = sorted({iteration.outcome for iteration in iterations})
    runs = sorted({iteration.runs for iteration in iterations if iteration.mean is not None})

    def turned(objective: float | None) -> float | None:
        return None if objective is None else measure.score(objective)

    decimals = measure.digits + 1
    return {
        **({} if measure.digits == BPB.digits else {"digits": measure.digits}),
        "kinds": [label(kind, 20) for kind in kinds],
        "iter": [iteration.iter for iteration in iterations],
        "kind": [kinds.index(iteration.kind) for iteration in iterations],
        "outcomes": outcomes,
        "outcome": [outcomes.index(iteration.outcome) for iteration in iterations],
        "bpb": _rounded(iterations, lambda iteration: turned(iteration.mean), decimals),
        "half": {n: round(noise.half_interval(n), decimals) for n in runs} if noise else {},
        "n": [iteration.runs if iteration.mean is not None else None for iteration in iterations],
        "delta": _rounded(iterations, lambda iteration: turned(iteration.delta), decimals),
        "stderr": _rounded(iterations, lambda iteration: iteration.stderr, decimals),
        "seconds": _rounded(iterations, lambda iteration: iteration.spent.total or None, 2),
        "wh": _rounded(iterations, lambda iteration: iteration.energy_wh, 4),
        "changes": [changed_text(iteration) for iteration in iterations],
    }


def changed_text(iteration: ReportedIteration, limit: int = MOST_CHARACTERS) -> str:
    """Return the proposed changes, such as ``lr=0.003 n_layer=4``, valid or not."""
    shown = (f"{label(name, 24)}={value_text(value)}" for name, value in iteration.changed.items())
    return cut(" ".join(shown), limit)


def _rounded(
    iterations: Sequence[ReportedIteration],
    of: Callable[[ReportedIteration], float | None],
    digits: int,
) -> list[float | None]:
    found = [
        None if (value := of(iteration)) is None else round(value, digits)
        for iteration in iterations
    ]
    return [] if all(value is None for value in found) else found
