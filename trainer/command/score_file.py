"""Read scores from a file that a command wrote: JSON, JSON lines or CSV."""

import csv
import json
import math
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from autoresearch.files import read_given
from trainer.command.printed import number_in
from trainer.spec import ScoreRule

MAX_FILE_BYTES = 8 << 20


def scores_in(out: Path, rule: ScoreRule) -> list[float]:
    """Return the numbers under the rule's key, in the file's order; none if there is no such file.

    No link is followed: this run did not write its target.
    """
    if rule.file is None or rule.key is None:
        return []
    try:
        data = read_given(out / rule.file, MAX_FILE_BYTES, through_links=False)
    except OSError:
        return []
    if rule.file.endswith((".csv", ".tsv")):
        return list(_column(data.decode("utf-8-sig", "replace"), rule.key))
    found = []
    for text in data.splitlines() if rule.file.endswith(".jsonl") else [data]:
        with suppress(ValueError, RecursionError):
            found.append(_under(json.loads(text), rule.key))
    return [number for number in found if number is not None]


def _column(text: str, key: str) -> Iterator[float]:
    """Yield the values of a column that are not empty; nan for invalid numbers."""
    lines = text.splitlines()
    delimiter = max(",\t;", key=lines[0].count) if lines else ","
    for row in csv.DictReader(lines, delimiter=delimiter, skipinitialspace=True):
        value = (row.get(key) or "").strip()
        if value:
            number = number_in(value)
            yield math.nan if number is None else number


def _under(document: object, key: str) -> float | None:
    """Return the number at a key; its dots select nested keys if it is not a key itself."""
    whole = isinstance(document, dict) and key in document
    for part in [key] if whole else key.split("."):
        if not isinstance(document, dict) or part not in document:
            return None
        document = document[part]
    if isinstance(document, bool) or not isinstance(document, int | float):
        return None
    with suppress(OverflowError):
        return float(document)
    return None
