"""The list of commands, each loaded when it is called.

Every command needs other libraries, and loading those of all takes many times as long as most of
them take to do their work. So what ``--help`` says of a command stands here, and a test holds it to
the command's own help.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup

from autoresearch.garbage_collection import collector_at_rest


@dataclass(frozen=True, slots=True)
class Entry:
    """A command, known before it is loaded."""

    name: str
    place: str
    """``module:attribute`` within ``agent.commands``: its function, or an app of several."""
    summary: str
    """The first paragraph of its help."""

    def load(self) -> Any:
        """The command, whole."""
        module, attribute = self.place.split(":")
        with collector_at_rest():
            found = getattr(import_module(f"agent.commands.{module}"), attribute)
        around = typer.Typer(add_completion=False)
        if isinstance(found, typer.Typer):
            around.add_typer(found, name=self.name)
        else:
            around.command(self.name)(found)
        return typer.main.get_group(around).commands[self.name]


_ENTRIES = (
    Entry(
        "loop",
        "night.loop:loop",
        "Propose, train, measure, keep or discard, until the campaign has had ITERS iterations, "
        "TRIALS trials or HOURS of work, whichever is given and comes first.",
    ),
    Entry(
        "top",
        "night.top:top",
        "The K best distinct configs, by posterior mean shrunk by the noise.",
    ),
    Entry(
        "confirm",
        "night.confirm:confirm",
        "Train the best configs and the baseline on fresh seeds, and score them on fresh text.",
    ),
    Entry(
        "stress",
        "launch.stress:stress",
        "Train the best distinct configs for a full schedule: which stand it?",
    ),
    Entry(
        "ladder",
        "launch.ladder:ladder",
        "Train the winner and the baseline at several sizes and lengths: does the lead last?",
    ),
    Entry(
        "calibrate",
        "night.calibrate:calibrate",
        "Replicate the baseline and say how noisy one run is: what decisions are measured against.",
    ),
    Entry(
        "attribute",
        "launch.attribute:attribute",
        "Take each of the winner's changes back alone, on fresh seeds: what was it worth?",
    ),
    Entry("check", "night.check:check", "Read raw replies on stdin, print a verdict for each."),
    Entry(
        "envelope",
        "machine.envelope:envelope",
        "Measure speed and memory of the menu's baseline at each batch, sequence and precision.",
    ),
    Entry(
        "compare",
        "machine.compare:compare",
        "Train the menu's baseline with each backend, and set speed, memory and loss side by side.",
    ),
    Entry(
        "import",
        "record.import_:import_",
        "Make a read-only campaign of a trajectory: for top, report, export and loop --prior.",
    ),
    Entry(
        "export",
        "record.export:export",
        "Write a campaign as an Optuna study, a table, MLflow runs or training data.",
    ),
    Entry(
        "handoff",
        "launch.handoff:handoff",
        "Write the launch plan of a campaign's finalists: recipe, scripts, layout, money, "
        "forecast.",
    ),
    Entry(
        "verify",
        "launch.verify:verify",
        "Compare the loss of a cloud run with the forecast of its launch plan.",
    ),
    Entry(
        "preflight",
        "launch.preflight:preflight",
        "A few steps of a recipe at toy width, under torchrun, in every parallelism.",
    ),
    Entry(
        "report",
        "record.report:report",
        "Write the campaign as one HTML page that needs no network, and its figures as SVG "
        "and PNG.",
    ),
    Entry(
        "reindex",
        "record.reindex:reindex",
        "Delete the history and rebuild it from trajectory.jsonl, which is the truth.",
    ),
    Entry(
        "serve",
        "record.serve:serve",
        "Show campaigns as they run: a page, a JSON interface, events, /healthz and /metrics.",
    ),
    Entry(
        "doctor",
        "machine.doctor:doctor",
        "Check Python, torch, device, Megatron-Core, sandbox, disk, corpus and endpoint; and with "
        "--menu its command, and what that may read.",
    ),
    Entry(
        "cost",
        "launch.cost:app",
        "What a search costs on the desk and in the cloud, and when it pays.",
    ),
    Entry("data", "machine.data:app", "The texts that proxies are trained and measured on."),
    Entry("menu", "night.menu:app", "The menus of knobs that a search may turn."),
)

ENTRIES = {entry.name: entry for entry in _ENTRIES}
"""By name, in the order of ``--help``."""


class LoadedWhenUsed(TyperGroup):
    """A group of the entries, each loaded when it is called and not when it is listed."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.commands = {
            entry.name: TyperCommand(entry.name, help=entry.summary) for entry in ENTRIES.values()
        }

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """The command of that name, loaded; None where there is none."""
        return ENTRIES[cmd_name].load() if cmd_name in ENTRIES else None

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """The help of a plain group with the same names and summaries."""
        listed = TyperGroup(
            name=self.name, help=self.help, params=self.params, commands=dict(self.commands)
        )
        listed.rich_markup_mode = self.rich_markup_mode
        listed.format_help(ctx, formatter)
