"""Define a command that trains: its arguments, where its score is found, and what it may read."""

from __future__ import annotations

import re
from typing import Annotated, ClassVar, Literal, TypeAlias

from pydantic import AfterValidator, Field

from autoresearch.values import Frozen, NonNegativeInt, PlainText
from trainer.api import Trainer
from trainer.schema.measure import NATS_PER_TOKEN, Measure


def _compiled(pattern: str) -> str:
    try:
        re.compile(pattern)
    except (re.error, RecursionError, OverflowError) as error:
        raise ValueError(f"{pattern!r} is not a valid regular expression ({error})") from error
    return pattern


Module = Annotated[str, Field(pattern=r"^[A-Za-z_]\w*(\.[A-Za-z_]\w*)*$", max_length=200)]
"""Importable module name."""
Pattern = Annotated[str, Field(min_length=1, max_length=500), AfterValidator(_compiled)]
"""Regular expression, searched for in each line of the command's output."""
Take: TypeAlias = Literal["last", "first", "lowest", "highest"]
SentBy: TypeAlias = Literal["args", "env", "json", "toml"]


class ScoreRule(Frozen):
    """Location of the score: in the command's output, or in a file that it writes."""

    pattern: Pattern | None = None
    """Its one group is the number."""
    label: PlainText | None = Field(None, exclude_if=lambda label: label is None)
    """The words from which the menu made the pattern."""
    file: Annotated[PlainText, Field(min_length=1, max_length=200)] | None = None
    """File name relative to the trial's directory. It is a table with a header if it ends in
    ``.csv`` or ``.tsv``, JSON lines if in ``.jsonl``, else JSON."""
    key: Annotated[PlainText, Field(min_length=1, max_length=200)] | None = None
    """Key of the number in the file, with dots for nested keys, or the column of a table."""
    take: Take = "last"
    """Match to use if there are several."""


class CurveRule(Frozen):
    """Location of the learning curve in the command's output."""

    pattern: Pattern
    """Two groups: step and loss, in this order or named so."""


class Check(Frozen):
    """A second command, which scores what a training command left behind."""

    argv: tuple[str, ...]
    """Arguments with placeholders; the first is the program's absolute path."""
    programs: tuple[str, ...] = ()
    score: ScoreRule
    """Location of the trial's score: in this command's output, or in a file in its directory."""


_COMPILER_MODULES = ("torch._dynamo", "torch._inductor.compile_fx", "sympy.physics.units")
"""Modules that a process's first compilation, and in part its first optimizer, imports in some
seconds, which the fork server spends once."""


class Command(Trainer):
    """A command line, its environment, and the rules that read its result."""

    entry: ClassVar[str] = "trainer.command.child:run_command"
    reads_corpus: ClassVar[bool] = False
    is_watched: ClassVar[bool] = True

    argv: tuple[str, ...]
    """Arguments with placeholders such as ``{lr}``; the first is the program's absolute path."""
    directory: str
    """Absolute path of the script's directory, which the trial may read."""
    sent_by: SentBy = "args"
    """How it receives knobs and constants, besides the placeholders."""
    edited: str | None = None
    """Script whose constants are rewritten in a copy, relative to the directory."""
    edits: tuple[tuple[str, str], ...] = ()
    """Further constants to rewrite, with placeholders."""
    slots_only: bool = Field(False, exclude_if=lambda only: not only)
    """Rewrite the code of the script's slots alone, and no constant."""
    env: tuple[tuple[str, str], ...] = ()
    """Further environment variables, with placeholders."""
    reads: tuple[str, ...] = ()
    """Absolute paths that the menu declares."""
    shared_memory: bool = False
    """Use the machine's /dev/shm where the trial cannot have one of its own."""
    programs: tuple[str, ...] = ()
    """Absolute paths of the interpreter's environment, if it differs from this process's."""
    score: ScoreRule
    curve: CurveRule | None = None
    measure: Measure
    oom: tuple[Pattern, ...] = ()
    """Patterns printed when it is out of memory, besides those of common frameworks."""
    preload: tuple[Module, ...] = ()
    """Modules that the fork server imports before a trial starts."""
    main: str | None = None
    """Function of the script that the fork server's child calls, instead of starting a new
    Python."""
    check: Check | None = Field(None, exclude_if=lambda check: check is None)
    """Command whose score is the trial's score, in place of this one's."""

    is_tried: bool = Field(False, exclude_if=lambda tried: not tried)
    """Whether it runs for a draft: it needs no score, and tells the numbers in its files."""

    @property
    def prunes(self) -> bool:
        """See :attr:`Trainer.prunes`. The curve is assumed to be in the unit of the score."""
        return self.measure.unit == NATS_PER_TOKEN

    def caches_code(self, device: str) -> bool:
        """See :meth:`Trainer.caches_code`: whether a command compiles is unknown."""
        return True

    def imports(self, backend: str, device: str) -> tuple[str, ...]:
        """See :meth:`Trainer.imports`."""
        uses_torch = any(name.split(".")[0] == "torch" for name in self.preload)
        return (*self.preload, *(_COMPILER_MODULES if uses_torch else ()))

    @property
    def checking(self) -> Command | None:
        """The check as a command of its own, which runs the script's unedited files."""
        if self.check is None:
            return None
        plain = {"edited": None, "edits": (), "curve": None, "main": None, "preload": ()}
        own = {"argv": self.check.argv, "programs": self.check.programs, "score": self.check.score}
        return self.model_copy(update={**plain, **own, "check": None})


class ScriptInfo(Frozen):
    """The script a campaign measures with, as its first row records it."""

    directory: str
    sha256: str
    """Hash of the names and contents of its code."""
    files: NonNegativeInt
    """Number of code files."""
    command: tuple[str, ...]
    """The command as the menu states it."""
    check: tuple[str, ...] = Field((), exclude_if=lambda words: not words)
    """The command that scores what the first left, if there is one."""
