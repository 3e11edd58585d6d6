"""What is said to a person at a terminal, one line at a time."""

from __future__ import annotations

from rich.console import Console
from rich.text import Text


def say(console: Console, text: str, style: str = "") -> None:
    """One line as it is, whatever brackets a path or a model's name has."""
    console.print(Text(text, style=style), soft_wrap=True)
