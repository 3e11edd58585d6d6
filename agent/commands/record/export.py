"""``autoresearch export``: write a campaign in other tools' formats."""

from __future__ import annotations

import json
import shlex
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Literal, TypeAlias

import typer
from pydantic import Field
from rich.console import Console
from rich.text import Text

from agent.commands.options import takes
from agent.exports.base import Exported, Subject
from agent.workbench.places import (
    CampaignOption,
    existing_campaign,
    foreign_campaign,
    latest_campaign,
)
from autoresearch.errors import FormatError
from autoresearch.layout import EXPORT_DIR, HISTORY_FILE, IMPORTED_FILE, JOURNAL_FILE, SETTINGS_FILE
from autoresearch.options import AsOption
from autoresearch.values import Frozen

Form: TypeAlias = Literal["optuna", "csv", "parquet", "mlflow", "chat-jsonl", "jsonl"]
FILES: dict[Form, str] = {
    "optuna": "optuna.sqlite",
    "csv": "trials.csv",
    "parquet": "trials.parquet",
    "mlflow": "mlflow.sqlite",
    "chat-jsonl": "chat.jsonl",
    "jsonl": JOURNAL_FILE,
}


class Asked(Frozen):
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
    overwrite: Annotated[bool, AsOption("--overwrite")] = Field(
        False, description="Replace a csv, parquet or jsonl file."
    )
    accepted_only: Annotated[bool, AsOption("--accepted-only/--all-replies")] = Field(
        True,
        description="For chat-jsonl: only accepted replies, or also refused ones with weight 0.",
    )


@takes(Asked)
def export(
    *,
    campaign: CampaignOption = None,
    asked: Asked,
    as_json: Annotated[bool, typer.Option("--json")] = False,
) -> None:
    """Write a campaign as an Optuna study, table, MLflow or chat data."""
    directory = campaign or latest_campaign()
    foreign = foreign_campaign(directory)
    if foreign is None:
        directory = existing_campaign(campaign)
    _refuse_own_files(directory, asked.out or "")
    where = asked.out or str(directory / EXPORT_DIR / FILES[asked.to])
    exported = _export(Subject(directory, foreign), asked, where)
    if as_json:
        typer.echo(json.dumps(asdict(exported)))
        return
    console = Console()
    for line in (
        f"{exported.count} {exported.of} written to {exported.where}",
        *exported.notes,
        *_next(asked.to, exported),
    ):
        console.print(Text(line), soft_wrap=True, highlight=False)


def _refuse_own_files(directory: Path, out: str) -> None:
    """
    :raises FormatError: if writing would overwrite a file of the campaign itself.
    """
    own = {directory / name for name in (JOURNAL_FILE, IMPORTED_FILE, HISTORY_FILE, SETTINGS_FILE)}
    if Path(out).resolve() in {path.resolve() for path in own}:
        raise FormatError(f"{out} is a file of the campaign itself; choose another with --out")


def _export(subject: Subject, asked: Asked, where: str) -> Exported:
    # Each format needs a library that the others do not.
    if asked.to == "optuna":
        from agent.exports.optuna_study import export_optuna  # noqa: PLC0415

        return export_optuna(subject, where)
    if asked.to == "mlflow":
        from agent.exports.base import export_mlflow  # noqa: PLC0415

        return export_mlflow(subject, where)
    if asked.to == "chat-jsonl":
        from agent.exports.chat import export_chat  # noqa: PLC0415

        return export_chat(
            subject, Path(where), overwrite=asked.overwrite, accepted_only=asked.accepted_only
        )
    from agent.exports.base import export_csv, export_jsonl, export_parquet  # noqa: PLC0415

    writers = {"csv": export_csv, "parquet": export_parquet, "jsonl": export_jsonl}
    return writers[asked.to](subject, Path(where), overwrite=asked.overwrite)


def _next(to: Form, exported: Exported) -> list[str]:
    """Return a command for viewing the export, if that takes another program."""
    address = exported.where if "://" in exported.where else f"sqlite:///{exported.where}"
    if to == "optuna":
        return [f"look with optuna-dashboard {shlex.quote(address)}"]
    if to == "mlflow":
        return [f"look with mlflow ui --backend-store-uri {shlex.quote(address)}"]
    return []
