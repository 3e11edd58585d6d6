"""The report's page: one HTML file that fetches nothing.

Its content-security policy allows, by their hashes, only the style sheet and the script that it
contains: no other script, no network, no frames, no form. The template escapes every text. The
script makes text nodes only, and the policy forbids anything else.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path

import jinja2
from markupsafe import Markup

from autoresearch.words import counted, duration_text
from trajectory.report.drawing import svg
from trajectory.report.drawing.svg import Drawing
from trajectory.report.figures.figure import Figure
from trajectory.report.figures.sections import SECTIONS
from trajectory.report.findings import Findings
from trajectory.report.words import wording
from trajectory.report.words.table import changed_text, columns
from trajectory.report.words.text import cut, label, shown

TEMPLATES = Path(__file__).with_name("templates")


def render(
    found: Findings, figures: Sequence[Figure], drawings: Sequence[Drawing], made_at: datetime
) -> str:
    """Return the page's HTML.

    :param figures: the figures that the page mentions.
    :param drawings: drawings of the figures that have data: a wide one each, and for some a narrow
        one.
    """
    spoken_of = {figure.section for figure in figures}
    css, script = _style_sheet(), (TEMPLATES / "report.js").read_text("utf-8")
    return (
        _environment(wording.Scores(found.about.scoring))
        .get_template("report.html.j2")
        .render(
            found=found,
            about=found.about,
            sections=[one for one in SECTIONS if one.always or one in spoken_of],
            figures={figure.name: figure for figure in figures},
            drawings={drawing.name: Markup(drawing.inline) for drawing in drawings},
            policy=_policy(css, script),
            css=Markup(css),
            script=Markup(script),
            table=columns(found.iterations, found.noise, found.about.scoring),
            made_at=f"{made_at:%Y-%m-%d %H:%M} UTC",
        )
    )


def _environment(scores: wording.Scores) -> jinja2.Environment:
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


def _style_sheet() -> str:
    """Return the figures' colors in both color schemes, their classes, and the page's own rules."""
    light, dark = svg.variables("light"), svg.variables("dark")
    return (
        f":root{{{light}}}\n"
        f"@media screen and (prefers-color-scheme:dark){{:root{{{dark}}}}}\n"
        f"{svg.rules()}\n{(TEMPLATES / 'report.css').read_text('utf-8')}"
    )


def _policy(css: str, script: str) -> str:
    return (
        f"default-src 'none'; style-src '{_source(css)}'; script-src '{_source(script)}'; "
        "base-uri 'none'; form-action 'none'; require-trusted-types-for 'script'"
    )


def _source(text: str) -> str:
    """Return a hash source, as defined in Content Security Policy Level 3."""
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode('ascii')}"
