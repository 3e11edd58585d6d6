"""How a benchmark of its own is run: what a person should mend is one sentence and exit code 1."""

from __future__ import annotations

import sys
from collections.abc import Callable

import typer

from autoresearch.errors import AutoresearchError


def run(main: Callable[..., None]) -> None:
    """A function of Typer's options, as the program."""
    try:
        typer.run(main)
    except AutoresearchError as error:
        typer.echo(str(error), err=True)
        sys.exit(1)
