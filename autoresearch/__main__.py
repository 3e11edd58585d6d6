"""The console command's first step, which Ctrl-C may cut short too.

Loading the program takes a second or more; an interruption meanwhile is answered like any other.
"""

from __future__ import annotations

import sys

from autoresearch.garbage_collection import collector_at_rest


def main() -> None:
    """Load the program and run it."""
    try:
        with collector_at_rest():
            from agent.cli import main as run  # noqa: PLC0415

        run()
    except KeyboardInterrupt:
        sys.exit(130)


if __name__ == "__main__":
    main()
