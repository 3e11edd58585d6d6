"""What a command needs on a node besides its script, which is sent there.

The program and what the menu reads are the node's own. ``{python}``, and whatever lies beside it,
is the Python that runs autoresearch there; any other program, and each declared path, must be there
under the path that it has here.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Self

from autoresearch.errors import SpecError
from autoresearch.plain_text import plain
from autoresearch.values import Frozen
from trainer.command.program import environment_of
from trainer.spec import Command
from trainer.spec.command import Module

_PYTHON = "{python}"
_BESIDE_IT = "{bin}/"
_OF_THE_SCRIPT = "{script}/"
_BEFORE_A_PATH = r"""(?:(?<![^\s'"=:,;|{@])|(?<=^-[A-Za-z]))"""
"""In a word: ``--root=/p``, ``/a:/p``, ``{big:/p/a|/p/b}``, ``-I/p``, and not ``/mnt/p``."""
_BEHIND_IT = r"""(?![^\s'"/:,;|}])(?!/\.\.(?:/|$))"""
"""Of ``/p/../q`` nobody knows here where it leads there."""
_ABSOLUTE = re.compile(_BEFORE_A_PATH + r"""(/[^\s'":,;|{}]*)""")


class Needs(Frozen):
    """What must be on a node before a lane for a command is opened there."""

    program: str
    """As :func:`portable_program` says it."""
    reads: tuple[str, ...] = ()
    """Absolute paths that the menu declares."""
    preload: tuple[Module, ...] = ()

    @classmethod
    def of(cls, command: Command) -> Self:
        """Those of a command as it runs on this machine."""
        return cls(program=portable_program(command), reads=command.reads, preload=command.preload)

    def lacking(self) -> str:
        """What of it is not on this machine, and what to do; empty where all is."""
        try:
            if not self.program.startswith(_OF_THE_SCRIPT):
                _found(program_here(self.program, None))
        except SpecError as error:
            return plain(f"{error}")
        for path in self.reads:
            if not Path(path).exists():
                return plain(
                    f"there is no {path}, which [trainer] reads names; put it there, under the"
                    " same path"
                )
        for name in self.preload:
            if importlib.util.find_spec(name.partition(".")[0]) is None:
                return plain(
                    f"its Python, {sys.executable}, has no {name}, which [trainer] preload names;"
                    " install it there"
                )
        return ""


def portable_program(command: Command) -> str:
    """A command's program as another machine can find it: its own Python, what lies beside that,
    what comes with the script, or an absolute path."""
    program, python = Path(command.argv[0]), Path(sys.executable)
    if program == python:
        return _PYTHON
    if program.parent == python.parent:
        return _BESIDE_IT + program.name
    within = os.path.relpath(program, command.directory)
    goes_along = (
        command.programs == (str(program),)  # it is of no Python's environment
        and not any(part.startswith(".") for part in Path(within).parts)
        and os.path.realpath(program) == os.path.normpath(program)
    )
    return _OF_THE_SCRIPT + within if goes_along else str(program)


def program_here(portable: str, tree: Path | None) -> Path:
    """The program of that name on this machine.

    :param tree: where the script's directory is here; None where it has not come.
    """
    python = Path(sys.executable)
    if portable == _PYTHON:
        return python
    if portable.startswith(_BESIDE_IT):
        return python.parent / portable.removeprefix(_BESIDE_IT)
    if portable.startswith(_OF_THE_SCRIPT) and tree is not None:
        return tree / portable.removeprefix(_OF_THE_SCRIPT)
    return Path(portable)


def command_here(command: Command, portable: str, tree: Path) -> Command:
    """A command with this machine's paths.

    :param command: as it runs where its script is from.
    :param tree: the script's directory here.
    :raises SpecError: where the program is not here.
    """
    program = program_here(portable, tree)
    _found(program)

    update = {
        **_worded(command, _moved({command.directory}, tree)),
        "directory": str(tree),
        "programs": tuple(map(str, environment_of(program))),
    }
    return command.model_copy(update={**update, "argv": (str(program), *update["argv"][1:])})


def in_one_spelling(command: Command) -> Command:
    """A command whose words call the script's directory as the command itself does, where they come
    to it by links or another way: only here is known where these lead."""
    real = os.path.realpath(command.directory)
    known = {command.directory, real}
    for text in (*command.argv[1:], *dict(command.env).values(), *dict(command.edits).values()):
        known.update(path for path in _paths_in(text) if os.path.realpath(path) == real)
    update = _worded(command, _moved(known, Path(command.directory)))
    return command.model_copy(update=update)


def _paths_in(text: str) -> Iterator[str]:
    """The absolute paths in a word, each with all that it leads through."""
    for found in _ABSOLUTE.finditer(text):
        path = Path(found[1])
        yield from map(str, (path, *path.parents))


def _moved(known: set[str], to: Path) -> Callable[[str], str]:
    """What writes ``to`` for any of those paths in a word, alone or with more behind it."""
    longest_first = sorted(known, key=len, reverse=True)
    either = "|".join(map(re.escape, longest_first))
    pattern = re.compile(f"{_BEFORE_A_PATH}(?:{either}){_BEHIND_IT}")
    return lambda word: pattern.sub(lambda _: str(to), word)


def _worded(command: Command, moved: Callable[[str], str]) -> dict[str, Any]:
    """All that paths may stand in, but for the program."""
    return {
        "argv": (command.argv[0], *map(moved, command.argv[1:])),
        "env": tuple((name, moved(text)) for name, text in command.env),
        "edits": tuple((name, moved(text)) for name, text in command.edits),
    }


def _found(program: Path) -> None:
    """
    :raises SpecError: where this machine has no such program.
    """
    if shutil.which(program) is None:
        raise SpecError(
            f"there is no program {program}, with which [trainer] command begins; put it there,"
            " under the same path, or begin with {python}, the Python that autoresearch runs on"
        )
