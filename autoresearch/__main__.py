"""Start the console command, and answer Ctrl-C while it loads.

Loading the program takes a second or more; an interruption meanwhile is answered like any other.
"""

import io
import os
import sys

from autoresearch import screen
from autoresearch.closing import gc_paused


def main() -> None:
    """Load the program and run it."""
    if isinstance(sys.stdout, io.TextIOWrapper):  # a closed one is None
        # a terminal without an ellipsis must not end the run
        sys.stdout.reconfigure(errors="replace")
    screen.protect()
    try:
        os.getcwd()  # noqa: PTH109 (before anything slow is loaded)
    except OSError as error:
        sys.stderr.write(
            f"error: the working directory is gone ({error.strerror}); change directory\n"
        )
        sys.exit(1)
    try:
        with gc_paused():
            from agent.cli import main as run  # noqa: PLC0415

        run()
    except KeyboardInterrupt:
        sys.exit(130)
    finally:
        for lost in screen.losses():
            sys.stderr.write(f"{lost}\n")


if __name__ == "__main__":
    main()
