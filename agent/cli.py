"""The ``autoresearch`` command: parse, call a library function, print.

Exit codes: 0 done, 1 a domain error in one plain sentence, 2 usage, 130 interrupted.
"""

import gc
import sys
from typing import Annotated

import typer

from agent.commands.entries import LoadedWhenUsed
from autoresearch.errors import AutoresearchError
from autoresearch.plain_text import plain


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
