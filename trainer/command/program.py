"""Find the program of a command, and the parts of its environment that it must read.

The location of a Python environment (a venv, conda's) is read from its files. A program that a menu
names is started only inside a trial, since a menu and a script's directory may be somebody else's.

A ``python`` on PATH may be a shim: a script of pyenv's or asdf's, or a link to mise itself. It
finds the intended Python through its own files and those of the working directory. Inside the
sandbox it could read none of these and would fail with exit code 126. So a shim on the user's own
PATH is asked here, outside the sandbox, which Python it starts, and trials start that one. It is
asked in the root directory, without the script's directory on PATH: files of that directory could
name a program in it, which nothing would confine. Where they choose a version, the menu must give
the Python's own path. A file in the script's own directory is never treated as a shim, whatever
link or PATH leads there.
"""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from autoresearch.errors import SpecError
from trainer.command.open_paths import credentials_at, holds_home
from trainer.machine.environment import allowed_environment

_PATIENCE_S = 60.0
_PYTHON = re.compile(r"python[\d.]*")
"""Names of a Python."""
_HOME = re.compile(r"^home *= *(/[^\0\n]*?)/? *$", re.MULTILINE)
"""Entry of ``pyvenv.cfg`` with the folder of the Python that made a venv."""
_MOST_CHARACTERS = 1 << 16
_VERSION_FILES = ".python-version", ".tool-versions", "mise.toml", ".mise.toml"
"""Files in which version managers find the Python of the working directory."""
_FOR_SHIMS = ("PYENV_", "ASDF_", "MISE_", "HOME")
"""Prefixes of the variables that configure shims."""
_ENVIRONMENTS = ".venv", "venv"
"""Folders in which a project keeps its Python's environment."""
_OF_A_PREFIX = ("bin", "lib", "lib64", "include", "pyvenv.cfg")


def find_program(word: str, directory: Path) -> Path:
    """Return the program that a command's first word names: by a path from the script's directory,
    or on the PATH that trials have.

    A shim stands for the Python that it starts.

    :raises SpecError: if there is none, or trials could not start it: a shim of another program, or
        one that is not on the user's PATH, that starts no Python outside the script's directory, or
        whose version a file of that directory may choose.
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
    is_python = _PYTHON.fullmatch(program.name) is not None
    may_be_shim = is_python or program.parent.name == "shims"
    target = program.resolve().name
    is_another = not target.startswith("python") if is_python else target != program.name
    is_shim = may_be_shim and (is_another or _is_script(program))
    if not is_shim or _leads_below(program, directory):
        return program
    is_the_users = shutil.which(program.name, path=allowed_environment()["PATH"]) == str(program)
    folders = directory.resolve(), *directory.resolve().parents
    inside = [folder for folder in folders if not holds_home(folder)]
    may_choose = any((folder / name).exists() for folder in inside for name in _VERSION_FILES)
    is_asked = is_python and is_the_users and not may_choose
    meant = _started_by(program, directory) if is_asked else None
    if meant is None:
        raise SpecError(
            f"{program} is a shim, which chooses a program that trials cannot find: no trial may "
            "read its files, and version files of the script's directory may name any program; give"
            " [trainer] command the chosen program's own path, or {python} for the Python that "
            "autoresearch runs on"
        )
    return meant


def _leads_below(path: Path, directory: Path) -> bool:
    """Return whether a path, or a link on its way, leads below the directory."""
    places = path, path.parent.resolve(), path.resolve()
    return any(
        place.is_relative_to(one) for place in places for one in (directory, directory.resolve())
    )


def _is_script(program: Path) -> bool:
    """Return whether it begins with ``#!``; it may be executable and not readable."""
    return _text(program).startswith("#!")


def _started_by(shim: Path, directory: Path) -> Path | None:
    """Return the path that the Python which a shim starts reports for itself; None if it does not
    start, or if that is below the directory. It imports nothing that a file or a variable names."""
    environ = allowed_environment(also=_FOR_SHIMS)
    places = map(Path, environ["PATH"].split(os.pathsep))
    safe = (one for one in places if one.is_absolute() and not _leads_below(one, directory))
    try:
        answer = subprocess.run(
            [str(shim), "-I", "-S", "-c", "import sys; print(sys.executable)"],
            env=environ | {"PATH": os.pathsep.join(map(str, safe))},
            cwd="/",
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_PATIENCE_S,
            check=True,
        )
    except (OSError, ValueError, subprocess.SubprocessError):
        return None
    said = Path(answer.stdout.strip())
    is_usable = said.is_absolute() and said.is_file() and not _leads_below(said, directory)
    return said if is_usable else None


def environment_of(program: Path, directory: Path) -> tuple[Path, ...]:
    """Return what a trial must read to run a program, besides the system's directories and this
    Python's own. Nothing is started: files state the location of a Python's environment.

    :param directory: the script's, whose files may be somebody else's. An environment in there
        opens nothing outside but the Python that made it.
    """
    if program.parent == Path(sys.executable).parent:
        return ()
    python = program
    if not _PYTHON.fullmatch(program.name) or _is_script(program):
        python = program.parent / "python"  # of the same environment
        if not python.is_file():
            return (program,)
    paths = {program, *(path for path in _environment(python, directory) if path.exists())}
    resolved = {path.resolve() for path in paths}
    return tuple(
        sorted(path for path in resolved if not (holds_home(path) or credentials_at(path)))
    )


def environments_in(directory: Path) -> Iterator[Path]:
    """Yield what a trial must read to use the environments that lie in the script's directory, as
    ``uv run`` and ``source .venv/bin/activate`` do."""
    for name in _ENVIRONMENTS:
        python = directory / name / "bin" / "python"
        if (directory / name / "pyvenv.cfg").is_file() and python.exists():
            yield from environment_of(python, directory)


def _environment(python: Path, directory: Path) -> Iterator[Path]:
    """Yield the parts of its prefix and of the one below it (a venv's ``home``), and the folders
    that their ``.pth`` files add to ``sys.path``, such as those of editable installations."""
    config = python.parent.parent / "pyvenv.cfg"
    home = _HOME.search(_text(config)) if config.is_file() else None
    bases = {python.resolve().parent.parent} | ({Path(home[1]).parent} if home else set())
    for prefix in (python.parent.parent, *sorted(bases)):
        if next(prefix.glob("bin/python*"), None) is None:
            continue
        yield from (prefix / name for name in _OF_A_PREFIX)
        is_inside = _leads_below(prefix, directory)
        for file in sorted(prefix.glob("lib*/python*/*-packages/*.pth")):
            lines = _text(file).splitlines()
            named = (Path(line) for line in lines if line.startswith("/") and "\0" not in line)
            yield from (path for path in named if not is_inside or _lies_below(path, directory))


def _lies_below(path: Path, directory: Path) -> bool:
    return path.resolve().is_relative_to(directory.resolve())


def _text(path: Path) -> str:
    try:
        with path.open("r", encoding="utf-8", errors="replace") as file:
            return file.read(_MOST_CHARACTERS)
    except OSError:
        return ""
