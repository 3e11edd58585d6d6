"""Name the program as it was started, so that a printed command can be copied."""

import re
import shlex
import shutil
import sys
from importlib import metadata
from pathlib import Path

from autoresearch.safe_text import plain

NAME = "autoresearch"
COMMANDS = frozenset(
    "loop status top show confirm report serve menu propose calibrate diff sql mcp doctor data"
    " envelope compare stress attribute ladder handoff verify cost import export reindex"
    " check space".split()
)
_HINT = re.compile(rf"(?<![\w./-]){NAME} (?=(?:{'|'.join(sorted(COMMANDS))})\b)(?<!-m {NAME} )")


def started_as() -> str:
    """Return the words that start this program in the same shell: its name if that is on PATH."""
    if shutil.which(NAME) is not None:
        return NAME
    program = Path(sys.argv[0])
    if program.name == NAME and program.is_file():
        return shlex.quote(str(program))
    if program.name == "__main__.py" and program.parent.name == NAME:
        return f"{shlex.quote(sys.executable)} -m {NAME}"
    return NAME


def copyable(text: str) -> str:
    """Return text in which each command of this program begins as the program was started."""
    if NAME not in text:
        return text
    words = started_as()
    return text if words == NAME else _HINT.sub(lambda _: f"{words} ", text)


def quote(path: Path) -> str:
    """Return a path as one word of a printed command, which somebody else may have named."""
    return shlex.quote(plain(str(path)))


def install_command(extra: str) -> str:
    """Return the command that installs the packages of an extra: the packages themselves, since no
    index has this project."""
    try:
        listed = metadata.requires(NAME) or []
    except metadata.PackageNotFoundError:
        listed = []
    is_of_extra = re.compile(rf"""extra\s*==\s*['"]{re.escape(extra)}['"]""")
    packages = [one.partition(";")[0].strip() for one in listed if is_of_extra.search(one)]
    installer = [sys.executable, "-m", "pip", "install"]
    # Its metadata, since setuptools' hook takes a search for pip itself for an installation.
    if not any(metadata.distributions(name="pip")):  # an environment that uv made
        installer = ["uv", "pip", "install", "--python", sys.executable]
    return shlex.join([*installer, *(packages or [f".[{extra}]"])])
