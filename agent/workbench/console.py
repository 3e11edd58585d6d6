"""Print messages to the user's terminal, one line at a time."""

from __future__ import annotations

from rich.console import Console
from rich.text import Text


def say(console: Console, text: str, style: str = "") -> None:
    """Print one line unchanged, even if a path or a model's name contains brackets."""
    console.print(Text(text, style=style), soft_wrap=True)
