"""Draw what a command printed as docs/images/terminal.svg.

COLUMNS=100 make loop ITERS=5 | python docs/images/terminal.py 'make loop ITERS=5'
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from rich.console import Console
from rich.text import Text

LINES, COLUMNS = 28, 100
STYLES = {r"\bkeep\b": "bold green", r"\bdiscard\b": "dim", r"^[a-z]+ ": "bold"}

with Path(os.devnull).open("w") as nowhere:
    console = Console(record=True, width=COLUMNS, file=nowhere)
    console.print(Text(f"$ {sys.argv[1]}", style="bold"))
    for line in sys.stdin.read().splitlines()[: LINES - 1]:
        text = Text(line)
        for pattern, style in STYLES.items():
            text.highlight_regex(pattern, style)
        console.print(text, no_wrap=True, overflow="ellipsis")
    console.save_svg(str(Path(__file__).with_name("terminal.svg")), title="autoresearch")
