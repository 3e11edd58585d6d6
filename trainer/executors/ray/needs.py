"""A command of the head on a node: what must be there for it, and its paths there.

The script's directory is sent. The Python that runs autoresearch, and any program beside it, is the
node's own. Any other program, and each path that the menu declares, must be there under the same
path as on the head.
"""

from __future__ import annotations

import importlib.util
import re
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path

from autoresearch.errors import SpecError
from trainer.command.program import environment_of
from trainer.spec import Command

_BEFORE_A_PATH = r"""(?:(?<![^\s'"=:,;|{@])|(?<=^-[A-Za-z]))"""
"""The context before a path ``/p`` in a word: ``--root=/p``, ``/a:/p``, ``{big:/p/a|/p/b}`` and
``-I/p``, but not ``/mnt/p``."""
_BEHIND_IT = r"""(?![^\s'"/:,;|}])(?!/\.\.(?:/|$))"""
"""The context after a path: not ``/p/../q``, whose target on the node is unknown here."""


@dataclass(frozen=True)
class Needs:
    """A command as it runs on the head."""

    command: Command
    python: str = sys.executable
    """The head's Python."""

    def lacking(self) -> str:
        """Return what is missing on this machine, and what to do; empty if nothing is."""
        command = self.command
        is_sent = command.programs == command.argv[:1] and Path(command.argv[0]).is_relative_to(
            command.directory
        )
        program = self._program(command.argv[0], None)
        if not is_sent and shutil.which(program) is None:
            return _no_program(program)
        for path in command.reads:
            if not Path(path).exists():
                return (
                    f"there is no {path}, which [trainer] reads names; put it there, under the"
                    " same path"
                )
        for name in command.preload:
            if importlib.util.find_spec(name.partition(".")[0]) is None:
                return (
                    f"its Python, {sys.executable}, has no {name}, which [trainer] preload names;"
                    " install it there"
                )
        return ""

    def on_node(self, tree: Path) -> Command:
        """Return the command with this machine's paths, in argv, environment and edits.

        :param tree: the script's directory here.
        :raises SpecError: if the program is not here.
        """
        command = self.command
        program = self._program(command.argv[0], tree)
        if shutil.which(program) is None:
            raise SpecError(_no_program(program))
        pattern = re.compile(_BEFORE_A_PATH + re.escape(command.directory) + _BEHIND_IT)

        def moved(word: str) -> str:
            return pattern.sub(lambda _: str(tree), word)

        return command.model_copy(
            update={
                "argv": (str(program), *map(moved, command.argv[1:])),
                "env": tuple((name, moved(text)) for name, text in command.env),
                "edits": tuple((name, moved(text)) for name, text in command.edits),
                "directory": str(tree),
                "programs": tuple(map(str, environment_of(program))),
            }
        )

    def _program(self, named: str, tree: Path | None) -> Path:
        """Return this machine's path of a program: its own Python or one beside it, one that came
        with the script, or the same path."""
        program, python, ours = Path(named), Path(self.python), Path(sys.executable)
        if program.parent == python.parent:
            return ours if program == python else ours.parent / program.name
        if tree is not None and program.is_relative_to(self.command.directory):
            sent = tree / program.relative_to(self.command.directory)
            if sent.exists():
                return sent
        return program


def _no_program(program: Path) -> str:
    return (
        f"there is no program {program}, with which [trainer] command begins; put it there,"
        " under the same path, or begin with {python}, the Python that autoresearch runs on"
    )
