"""A command that trains: what it is told, how its score is found, what it may read."""

from __future__ import annotations

import re
from typing import Annotated, Literal, TypeAlias

from pydantic import AfterValidator, Field

from autoresearch.values import Frozen, NonNegativeInt, PlainText
from trainer.spec.measure import Measure


def _compiled(pattern: str) -> str:
    try:
        re.compile(pattern)
    except (re.error, RecursionError, OverflowError) as error:
        raise ValueError(f"{pattern!r} is no regular expression ({error})") from error
    return pattern


Module = Annotated[str, Field(pattern=r"^[A-Za-z_]\w*(\.[A-Za-z_]\w*)*$", max_length=200)]
"""A name to import, and nothing to call."""
Pattern = Annotated[str, Field(min_length=1, max_length=500), AfterValidator(_compiled)]
"""A regular expression, searched for in each line of what the command prints."""
Take: TypeAlias = Literal["last", "first", "lowest", "highest"]
SentBy: TypeAlias = Literal["args", "env", "json", "toml"]


class ScoreRule(Frozen):
    """Where the score is: in what the command prints, or in a file that it writes."""

    pattern: Pattern | None = None
    """Its one group is the number."""
    file: Annotated[PlainText, Field(min_length=1, max_length=200)] | None = None
    """JSON, or JSON lines where its name ends in ``.jsonl``, or a table with a header where it ends
    in ``.csv`` or ``.tsv``; relative to the trial's directory."""
    key: Annotated[PlainText, Field(min_length=1, max_length=200)] | None = None
    """Of the number in the file, whose dots go deeper; the column of a table."""
    take: Take = "last"
    """Which of several."""


class CurveRule(Frozen):
    """Where the learning curve is, in what the command prints."""

    pattern: Pattern
    """Two groups: the step and the loss; in another order where they are named so."""


class Command(Frozen):
    """What a trial runs and how its end is read."""

    argv: tuple[str, ...]
    """With placeholders such as ``{lr}``; the first is the absolute path of the program."""
    directory: str
    """Absolute: where the script lies, which the trial may read."""
    sent_by: SentBy = "args"
    """How knobs and constants reach it, besides the placeholders."""
    edited: str | None = None
    """The script whose constants are rewritten in a copy; relative to the directory."""
    edits: tuple[tuple[str, str], ...] = ()
    """More of its constants, with placeholders."""
    env: tuple[tuple[str, str], ...] = ()
    """More variables, with placeholders."""
    reads: tuple[str, ...] = ()
    """Absolute paths that the menu declares."""
    shared_memory: bool = False
    """Use the machine's /dev/shm where the trial cannot have one of its own."""
    programs: tuple[str, ...] = ()
    """Absolute paths of the interpreter's environment, where it is not this one's."""
    score: ScoreRule
    curve: CurveRule | None = None
    measure: Measure
    oom: tuple[Pattern, ...] = ()
    """What the command prints when it is out of memory, besides what frameworks print."""
    preload: tuple[Module, ...] = ()
    """Modules that the fork server has loaded before a trial starts."""
    main: str | None = None
    """The function of the script that the fork server's child calls, in place of a new Python."""


class ScriptInfo(Frozen):
    """The script a campaign measures with, as its first row says it."""

    directory: str
    sha256: str
    """Over the names and contents of its code."""
    files: NonNegativeInt
    """How many those are."""
    command: tuple[str, ...]
    """As the menu has it."""
