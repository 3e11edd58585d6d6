"""First directory on the path of a Python that reports its script's options and ends."""

MARK = "\x1eautoresearch-option "
"""Begins each line that reports an option."""
LATE = "\x1eautoresearch-late"
"""Added after the lines of a script that reached no parser in time."""
