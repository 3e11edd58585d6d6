"""The program a command begins with, and what of its environment it needs to read.

A Python of its own environment (a venv, conda's) is asked where that lies, once for a campaign and
outside the sandbox: it is the user's own program, named by the user's own menu.

A ``python`` on PATH may be a shim: a script of pyenv's or asdf's, or a link to mise itself, that
finds out, by files of its own and of the directory it is called in, which Python is meant. Inside
the sandbox it could read none of these and would end with exit code 126. So it is asked here which
one that is, and trials start that one. What lies in the script's own directory is what it is.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from autoresearch.errors import SpecError
from trainer.command.workspace import holds_home
from trainer.machine.environment import allowed_environment

_PATIENCE_S = 60.0
_PYTHON = re.compile(r"python[\d.]*")
"""What a Python is called."""
_QUESTION = (
    "import json, sys; print(json.dumps([[sys.prefix, sys.base_prefix, sys.exec_prefix,"
    " sys.base_exec_prefix], sys.path]))"
)
_FOR_SHIMS = ("PYENV_", "ASDF_", "MISE_", "HOME")
"""Beginnings of the variables by which a shim knows what is meant."""
_OF_A_PREFIX = ("bin", "lib", "lib64", "include", "pyvenv.cfg")


def find_program(word: str, directory: Path) -> Path:
    """The program that a command's first word names: by a path from the script's directory, or on
    the PATH that trials have.

    :raises SpecError: where there is none, or none that trials could start.
    """
    if word == "{python}":
        return Path(sys.executable)
    if "/" in word:
        path = (directory / Path(word).expanduser()).absolute()
        found = str(path) if shutil.which(path) else None
    else:
        found = shutil.which(word, path=allowed_environment()["PATH"])
    if found is None:
        raise SpecError(
            f"there is no program {word!r}, with which [trainer] command begins; give a path, a "
            "program on PATH, or {python} for the Python that autoresearch runs on"
        )
    program = Path(found).absolute()
    return _meant_by(program, directory) if _is_shim(program, directory) else program


def _is_shim(program: Path, directory: Path) -> bool:
    """Whether it looks for another that it stands for."""
    is_python = _PYTHON.fullmatch(program.name) is not None
    if program.is_relative_to(directory) or not (is_python or program.parent.name == "shims"):
        return False
    target = program.resolve().name
    is_another = not target.startswith("python") if is_python else target != program.name
    return is_another or _is_script(program)


def _is_script(program: Path) -> bool:
    try:
        with program.open("rb") as file:
            return file.read(2) == b"#!"
    except OSError:  # it may be run and not read
        return False


def _meant_by(shim: Path, directory: Path) -> Path:
    """The Python that it starts.

    :raises SpecError: where it starts none, or is of another program.
    """
    is_python = _PYTHON.fullmatch(shim.name) is not None
    meant = _executable(shim, directory) if is_python else None
    if meant is None:
        raise SpecError(
            f"{shim} is a shim, a script that looks for the program it stands for, which trials may"
            " not; give [trainer] command that program's own path, or {python} for the Python that"
            " autoresearch runs on"
        )
    return meant


def _executable(shim: Path, directory: Path) -> Path | None:
    """What a Python says that it is; None where it does not start."""
    try:
        answer = subprocess.run(
            [str(shim), "-c", "import sys; print(sys.executable)"],
            env=allowed_environment(also=_FOR_SHIMS),
            cwd=directory,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_PATIENCE_S,
            check=True,
        )
    except (OSError, ValueError, subprocess.SubprocessError):
        return None
    said = Path(answer.stdout.strip())
    return said if said.is_absolute() and said.is_file() else None


def environment_of(program: Path) -> tuple[Path, ...]:
    """What a trial must read to run it, besides the system's directories and this Python's own.

    :raises SpecError: where a Python does not answer.
    """
    if program.parent == Path(sys.executable).parent:
        return ()
    python = _python_of(program)
    if python is None:
        return (program,)
    paths = {program, *(path for path in _asked(python) if path.exists())}
    resolved = {path.resolve() for path in paths}
    return tuple(sorted(path for path in resolved if not holds_home(path)))


def _python_of(program: Path) -> Path | None:
    """The Python of the environment that it belongs to: itself, or one beside it."""
    if _PYTHON.fullmatch(program.name) and not _is_script(program):
        return program
    beside = program.parent / "python"
    return beside if beside.is_file() else None


def _asked(python: Path) -> Iterator[Path]:
    try:
        answer = subprocess.run(
            [str(python), "-c", _QUESTION],
            env=allowed_environment(),
            cwd="/",
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_PATIENCE_S,
            check=True,
        )
        prefixes, path = json.loads(answer.stdout)
        for prefix in prefixes:
            yield from (Path(prefix, name) for name in _OF_A_PREFIX)
        yield from (Path(entry) for entry in path if entry)
    except (OSError, ValueError, TypeError, subprocess.SubprocessError) as error:
        raise SpecError(
            f"{python} does not say where its packages lie ({type(error).__name__}); give a Python "
            "that runs"
        ) from error
