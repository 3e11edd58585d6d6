"""First directory on the path of a Python that reports its script's options and ends."""

MARK = "\x1eautoresearch-option "
"""Begins each line that reports an option."""
FAILED = "\x1eautoresearch-failed "
"""Begins the line that says why a script reached no parser."""
