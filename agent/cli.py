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
from autoresearch.program import copyable
from autoresearch.safe_text import plain


@dataclass(frozen=True, slots=True)
class Entry:
    """A command, known before it is loaded."""

    panel: str
    """The title under which ``--help`` lists it."""
    name: str
    place: str
    """``module`` within ``agent.commands`` whose function has the command's name, or
    ``module:attribute`` of another function or an app of several."""
    summary: str
    """The first paragraph of its help."""

    def load(self) -> Any:
        """Load and return the command."""
        module, _, attribute = self.place.partition(":")
        with gc_paused():
            found = getattr(import_module(f"agent.commands.{module}"), attribute or self.name)
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


_PANELS = {
    "Search": (
        ("loop", "night.loop", "Search for a better config: propose, train, judge, keep, repeat."),
        (
            "space",
            "night.space",
            "Show or edit what proposals may set, also while the loop runs.",
        ),
        ("propose", "night.propose", "Queue a proposal for a campaign's loop, also while it runs."),
        ("status", "night.status", "Show one line per campaign: progress, gain, pace, end."),
        ("top", "night.top", "Rank the best configs, shrunk by the noise, with intervals."),
        (
            "show",
            "record.show",
            "Show a config: its result, values, or the command that trains it.",
        ),
        (
            "confirm",
            "night.confirm",
            "Train the best again on fresh seeds and score them on fresh text.",
        ),
    ),
    "Examine": (
        (
            "report",
            "record.report",
            "Write the campaign as one HTML page, with SVG and PNG figures.",
        ),
        ("serve", "record.serve", "Show campaigns live: page, JSON, /healthz and /metrics."),
        ("diff", "record.report", "Compare two campaigns: protocol, settings, menu and result."),
        ("sql", "record.sql", "Query a campaign in SQL: iterations, trials, configs, gains."),
        ("mcp", "record.mcp_server", "Let a coding agent read a campaign and propose, over MCP."),
        (
            "stress",
            "launch.long_runs",
            "Train the best for a full schedule and report which survive.",
        ),
        (
            "ladder",
            "launch.long_runs",
            "Train the winner at several sizes to see whether its lead lasts.",
        ),
        (
            "calibrate",
            "night.calibrate",
            "Replicate the baseline and report how noisy a single run is.",
        ),
        ("attribute", "launch.long_runs", "Measure what each of the winner's changes is worth."),
        (
            "compare",
            "machine.compare",
            "Train the baseline with each backend: speed, memory, loss.",
        ),
    ),
    "Launch": (
        (
            "handoff",
            "launch.handoff",
            "Write the launch plan: recipe, scripts, layout, cost, forecast.",
        ),
        ("verify", "launch.handoff", "Judge a cloud run: learning, stable, where it should be?"),
        ("cost", "launch.cost", "Compute the cost of a search here and in the cloud, and payoff."),
    ),
    "Set up": (
        ("doctor", "machine.doctor", "Check whether this machine is ready, and say what to fix."),
        ("menu", "night.menu:app", "Show, draft and check menus of knobs."),
        ("data", "machine.data:app", "List and prepare the texts that proxies train on."),
        (
            "envelope",
            "machine.envelope",
            "Measure speed and memory by batch, sequence length and precision.",
        ),
        (
            "import",
            "record.exchange:import_",
            "Turn another tool's trajectory into a read-only campaign.",
        ),
        (
            "export",
            "record.exchange",
            "Write a campaign as an Optuna study, table, MLflow or chat data.",
        ),
        ("reindex", "record.sql", "Rebuild the history index from trajectory.jsonl."),
        (
            "check",
            "night.propose",
            "Read raw replies on stdin and print the rails' verdict for each.",
        ),
    ),
}
"""Each command's name, place and summary by the title of its panel, in the order of ``--help``."""

ENTRIES = {
    name: Entry(panel, name, place, summary)
    for panel, listed in _PANELS.items()
    for name, place, summary in listed
}


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
        sys.stderr.write(f"error: {copyable(plain(str(error)))}\n")
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
