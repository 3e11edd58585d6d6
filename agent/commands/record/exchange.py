"""``autoresearch import`` and ``export``: trajectories of other tools in, and for them out."""

import shlex
from dataclasses import asdict
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Annotated, Literal, TypeAlias

import typer
from pydantic import Field

from agent.commands.options import takes
from agent.exports.forms import Exported
from agent.search.campaign_start import read_campaign_row
from agent.session.console import answer
from agent.session.places import CampaignOption, existing_campaign
from autoresearch.campaign_files import check_database, make_folder
from autoresearch.errors import FormatError
from autoresearch.layout import EXPORT_DIR, HISTORY_FILE, JOURNAL_FILE, SETTINGS_FILE
from autoresearch.options import AsOption
from autoresearch.program import quote
from autoresearch.values import Frozen
from autoresearch.words import counted
from trajectory.formats.foreign import Provenance
from trajectory.formats.importing import import_campaign
from trajectory.formats.source import SourcePart
from trajectory.history.tables import sqlite_url
from trajectory.journal import read_rows

SHOWN_SKIPPED = 20


def import_(
    file: Annotated[
        Path, typer.Argument(help="The file or folder to import, or another campaign's directory.")
    ],
    campaign: Annotated[
        Path | None,
        typer.Option("--campaign", help="A new directory for it. Default: runs/imported-NAME."),
    ] = None,
    metric: Annotated[
        str | None,
        typer.Option(help="The metric or column that is the score; lower must be better."),
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
    path = file.resolve()
    name = path.stem if path.suffix else path.name
    directory = campaign or Path("runs") / f"imported-{name}"
    imported = import_campaign(file, directory, SourcePart(metric, study))
    provenance, count, noun = imported.provenance, len(imported.runs), "run"
    if not imported.is_foreign:
        count, noun = sum(1 for _ in read_rows(directory / JOURNAL_FILE)), "row"
    fields = provenance.model_dump(mode="json", by_alias=True) | {"count": count, "of": noun}
    answer(fields, _lines(provenance, directory, counted(count, noun)), as_json=as_json)


def _lines(provenance: Provenance, directory: Path, taken: str) -> list[str]:
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
        f"look with autoresearch top --campaign {quote(directory)}",
    ]


Form: TypeAlias = Literal["optuna", "csv", "parquet", "mlflow", "chat-jsonl", "jsonl"]
_FORMS: dict[Form, tuple[str, str, str | None]] = {
    "optuna": ("optuna.sqlite", "optuna_study:export_optuna", "optuna-dashboard"),
    "csv": ("trials.csv", "forms:export_csv", None),
    "parquet": ("trials.parquet", "forms:export_parquet", None),
    "mlflow": ("mlflow.sqlite", "forms:export_mlflow", "mlflow ui --backend-store-uri"),
    "chat-jsonl": ("chat.jsonl", "forms:export_chat", None),
    "jsonl": (JOURNAL_FILE, "forms:export_jsonl", None),
}
"""Each form's usual file, its module and function, which are loaded when used because each needs a
library of its own, and the command of another program that shows it at an address."""


class ExportOptions(Frozen):
    """Options of an export."""

    to: Form = Field(
        description="optuna: a study for optuna-dashboard. csv, parquet: a line per trial. mlflow: "
        "a run per trial. chat-jsonl: the model's exchanges. jsonl: the rows, for import."
    )
    out: str | None = Field(
        None,
        description="A file; for optuna also a SQLAlchemy URL, for mlflow a tracking URI. "
        "Default: a file in the campaign's export folder.",
    )
    accepted_only: Annotated[bool, AsOption("--accepted-only/--all-replies")] = Field(
        True,
        description="For chat-jsonl: only accepted replies, or also refused ones with weight 0.",
    )


def _own_place(directory: Path, name: str) -> str:
    """Return the path of a file in the campaign's export folder.

    :raises FormatError: if something else is there, such as a link.
    """
    try:
        make_folder(directory, EXPORT_DIR)
        check_database(directory, f"{EXPORT_DIR}/{name}")
    except OSError as error:
        raise FormatError(
            f"{directory / EXPORT_DIR / name} cannot be written: {error.strerror}; remove it, or "
            "choose another place with --out"
        ) from error
    return str(directory / EXPORT_DIR / name)


@takes(ExportOptions)
def export(
    *,
    campaign: CampaignOption = None,
    asked: ExportOptions,
    as_json: Annotated[bool, typer.Option("--json")] = False,
) -> None:
    """Write a campaign as an Optuna study, table, MLflow or chat data."""
    directory = existing_campaign(campaign)
    usual_name, place, viewer = _FORMS[asked.to]
    where = asked.out or _own_place(directory, usual_name)
    own = {directory / name for name in (JOURNAL_FILE, HISTORY_FILE, SETTINGS_FILE)}
    if Path(where).resolve() in {path.resolve() for path in own}:
        raise FormatError(f"{where} is a file of the campaign itself; choose another with --out")
    module, name = place.split(":")
    write = getattr(import_module(f"agent.exports.{module}"), name)
    if asked.to == "chat-jsonl":
        write = partial(write, accepted_only=asked.accepted_only)
    exported: Exported = write(directory, where)
    lines = [f"{exported.count} {exported.of} written to {exported.where}", *exported.notes]
    if viewer is not None:
        address = exported.where if "://" in exported.where else sqlite_url(exported.where)
        lines.append(f"look with {viewer} {shlex.quote(address)}")
    answer(asdict(exported), lines, as_json=as_json)
