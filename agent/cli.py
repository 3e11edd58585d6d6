"""The ``autoresearch`` command: the list of commands, and how one is called.

Loading the libraries of all commands takes many times as long as most commands run. So the list
that ``--help`` shows is declared here, a command is loaded when it is called, and a test compares
the list with each command's own help.

Exit codes: 0 done, 1 a domain error in one plain sentence, 2 usage, 130 interrupted.
"""

import gc
import sys
from dataclasses import dataclass
from importlib import import_module
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

from autoresearch.closing import gc_paused
from autoresearch.errors import AutoresearchError
from autoresearch.plain_text import plain


@dataclass(frozen=True, slots=True)
class Entry:
    """A command, known before it is loaded."""

    panel: str
    """The title under which ``--help`` lists it."""
    name: str
    place: str
    """``module:attribute`` within ``agent.commands``: its function, or an app of several."""
    summary: str
    """The first paragraph of its help."""

    def load(self) -> Any:
        """Load and return the command."""
        module, attribute = self.place.split(":")
        with gc_paused():
            found = getattr(import_module(f"agent.commands.{module}"), attribute)
        around = typer.Typer(add_completion=False)
        if isinstance(found, typer.Typer):
            around.add_typer(found, name=self.name)
        else:
            around.command(self.name)(found)
        command = typer.main.get_group(around).commands[self.name]
        _reflow(command)
        return command


def _reflow(command: Any) -> None:
    """Join the lines of each paragraph of the help, which typer would break twice."""
    if command.help:
        paragraphs = (" ".join(paragraph.split()) for paragraph in command.help.split("\n\n"))
        command.help = "\n\n".join(paragraphs)
    for inner in getattr(command, "commands", {}).values():
        _reflow(inner)


_ENTRIES = (
    Entry(
        "Search",
        "loop",
        "night.loop:loop",
        "Search for a better config: propose, train, judge, keep, repeat.",
    ),
    Entry(
        "Search",
        "propose",
        "night.propose:propose",
        "Queue a proposal for a campaign's loop, from any terminal.",
    ),
    Entry(
        "Search",
        "status",
        "night.status:status",
        "Show one line per campaign: progress, gain, pace, end.",
    ),
    Entry(
        "Search",
        "top",
        "night.top:top",
        "Rank the best configs, shrunk by the noise, with intervals.",
    ),
    Entry(
        "Search",
        "confirm",
        "night.confirm:confirm",
        "Train the best again on fresh seeds and score them on fresh text.",
    ),
    Entry(
        "Examine",
        "report",
        "record.report:report",
        "Write the campaign as one HTML page, with SVG and PNG figures.",
    ),
    Entry(
        "Examine",
        "serve",
        "record.serve:serve",
        "Show campaigns live: page, JSON, /healthz and /metrics.",
    ),
    Entry(
        "Examine",
        "diff",
        "record.report:diff",
        "Compare two campaigns: protocol, settings, menu and result.",
    ),
    Entry(
        "Examine",
        "sql",
        "record.sql:sql",
        "Query a campaign in SQL: iterations, trials, configs, gains.",
    ),
    Entry(
        "Examine",
        "mcp",
        "record.mcp_server:mcp",
        "Let a coding agent read a campaign and propose, over MCP.",
    ),
    Entry(
        "Examine",
        "stress",
        "launch.long_runs:stress",
        "Train the best for a full schedule and report which survive.",
    ),
    Entry(
        "Examine",
        "ladder",
        "launch.long_runs:ladder",
        "Train the winner at several sizes to see whether its lead lasts.",
    ),
    Entry(
        "Examine",
        "calibrate",
        "night.calibrate:calibrate",
        "Replicate the baseline and report how noisy a single run is.",
    ),
    Entry(
        "Examine",
        "attribute",
        "launch.long_runs:attribute",
        "Measure what each of the winner's changes is worth.",
    ),
    Entry(
        "Examine",
        "compare",
        "machine.compare:compare",
        "Train the baseline with each backend: speed, memory, loss.",
    ),
    Entry(
        "Launch",
        "handoff",
        "launch.handoff:handoff",
        "Write the launch plan: recipe, scripts, layout, cost, forecast.",
    ),
    Entry(
        "Launch",
        "verify",
        "launch.handoff:verify",
        "Compare the loss of a cloud run with the plan's forecast.",
    ),
    Entry(
        "Launch",
        "cost",
        "launch.cost:cost",
        "Compute the cost of a search here and in the cloud, and payoff.",
    ),
    Entry(
        "Set up",
        "doctor",
        "machine.doctor:doctor",
        "Check whether this machine is ready, and say what to fix.",
    ),
    Entry("Set up", "menu", "night.menu:app", "Show, draft and check menus of knobs."),
    Entry(
        "Set up", "data", "machine.data:app", "List and prepare the texts that proxies train on."
    ),
    Entry(
        "Set up",
        "envelope",
        "machine.envelope:envelope",
        "Measure speed and memory by batch, sequence length and precision.",
    ),
    Entry(
        "Set up",
        "import",
        "record.exchange:import_",
        "Turn another tool's trajectory into a read-only campaign.",
    ),
    Entry(
        "Set up",
        "export",
        "record.exchange:export",
        "Write a campaign as an Optuna study, table, MLflow or chat data.",
    ),
    Entry(
        "Set up",
        "reindex",
        "record.sql:reindex",
        "Rebuild the history index from trajectory.jsonl.",
    ),
    Entry(
        "Set up",
        "check",
        "night.propose:check",
        "Read raw replies on stdin and print the rails' verdict for each.",
    ),
)

ENTRIES = {entry.name: entry for entry in _ENTRIES}
"""Entries by name, in the order of ``--help``."""


class LoadedWhenUsed(TyperGroup):
    """A group of the entries that loads a command when it is called, not when it is listed."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.commands = {
            entry.name: TyperCommand(entry.name, help=entry.summary, rich_help_panel=entry.panel)
            for entry in ENTRIES.values()
        }

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Load and return the command of that name; None if there is none."""
        return ENTRIES[cmd_name].load() if cmd_name in ENTRIES else None

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Format the help of a plain group with the same names and summaries."""
        listed = TyperGroup(
            name=self.name, help=self.help, params=self.params, commands=dict(self.commands)
        )
        listed.rich_markup_mode = self.rich_markup_mode
        listed.format_help(ctx, formatter)


def _say_version(asked: bool) -> None:
    if asked:
        from importlib.metadata import version  # noqa: PLC0415 (slow to load, and rarely asked for)

        typer.echo(f"autoresearch {version('autoresearch')}")
        raise typer.Exit


app = typer.Typer(
    name="autoresearch",
    cls=LoadedWhenUsed,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


@app.callback()
def root(
    _: Annotated[
        bool,
        typer.Option(
            "--version", callback=_say_version, is_eager=True, help="Show the version and exit."
        ),
    ] = False,
) -> None:
    """The overnight recipe lab for pretraining."""


def main() -> None:
    """Run the console command."""
    # Loaded modules stay, so the garbage collector need not scan them again.
    gc.freeze()
    try:
        app()
    except AutoresearchError as error:
        sys.stderr.write(f"error: {plain(str(error))}\n")
        sys.exit(1)
    except OSError as error:
        # The path given to some command cannot be accessed.
        where = f"{str(error.filename)[:200]}: " if error.filename else ""
        why = error.strerror or str(error)
        said = f"error: {where}{why}; choose another path, or make that one usable"
        sys.stderr.write(f"{plain(said)}\n")
        sys.exit(1)
    except KeyboardInterrupt:
        sys.exit(130)
