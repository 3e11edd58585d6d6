"""``autoresearch import``: import trajectories of other tools and other campaigns."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.text import Text

from agent.menu.files import load_menu
from agent.search.first_row import read_campaign_row
from agent.settings.environment import read_environment
from autoresearch.layout import HISTORY_FILE, JOURNAL_FILE
from autoresearch.words import counted
from trajectory.formats.foreign import Provenance
from trajectory.formats.imported import read_imported
from trajectory.formats.importing import import_campaign, imported_count
from trajectory.formats.standings import Retold
from trajectory.formats.trackers.recorded import Wanted
from trajectory.history.store import reindex

SHOWN_SKIPPED = 20


def import_(
    file: Annotated[
        Path, typer.Argument(help="The file or folder to import, or another campaign's directory.")
    ],
    campaign: Annotated[
        Path | None,
        typer.Option("--campaign", help="A new directory for it. Default: runs/imported-NAME."),
    ] = None,
    menu: Annotated[
        str | None,
        typer.Option(help="Menu with the knobs of the other tool's loop."),
    ] = None,
    metric: Annotated[
        str | None,
        typer.Option(help="A tracker's metric that is the score; lower must be better."),
    ] = None,
    study: Annotated[
        str | None, typer.Option(help="The Optuna study or MLflow experiment to import.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json")] = False,
) -> None:
    """Turn another tool's trajectory into a read-only campaign.

    It reads karpathy/autoresearch's results.tsv, pi-autoresearch's autoresearch.jsonl, the JSONL of
    the published single-knob loop, our own journals, Optuna studies, MLflow stores, the CSV of
    Weights & Biases and TensorBoard's event files.
    """
    knobs = list(load_menu(menu).knobs) if menu else None
    path = file.resolve()
    name = path.stem if path.suffix else path.name
    directory = campaign or Path("runs") / f"imported-{name}"
    provenance = import_campaign(file, directory, Wanted(metric, study))
    if provenance.format == "journal" and read_environment().history_url is None:
        # In a shared database, the index under a campaign's id belongs to the original.
        reindex(directory / HISTORY_FILE, directory / JOURNAL_FILE)
    count, noun = imported_count(directory)
    imported = read_imported(directory)
    retold = Retold.of(imported.runs, knobs) if imported.is_foreign else None
    if as_json:
        taken = provenance.model_dump(mode="json", by_alias=True) | {
            "count": count,
            "of": noun,
            "loop": retold.model_dump(mode="json") if retold else None,
        }
        typer.echo(json.dumps(taken))
        return
    console = Console()
    for line in _lines(provenance, directory, counted(count, noun), retold):
        console.print(Text(line), soft_wrap=True, highlight=False)


def _lines(provenance: Provenance, directory: Path, taken: str, retold: Retold | None) -> list[str]:
    row, measure = read_campaign_row(directory), f"{provenance.measure}, lower is better"
    if row is not None:  # this tool wrote it, perhaps with another direction
        measure = f"{row.measured_in.name}, {row.measured_in.better}"
    lines = [
        f"line {skipped.line} was left out: {skipped.why}"
        for skipped in provenance.skipped[:SHOWN_SKIPPED]
    ]
    if more := provenance.skipped[SHOWN_SKIPPED:]:
        lines.append(f"and {len(more)} more lines were left out; --json names them all")
    return [
        *lines,
        f"imported  {taken} of {provenance.source} ({provenance.format}) into {directory}",
        f"measure   {measure}",
        *(retold.lines() if retold else ()),
        f"look with autoresearch top --campaign {directory}",
    ]
