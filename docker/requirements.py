"""What an image has already and what it still lacks, for the Dockerfile.

``held``: the installed packages that must stay as they are, one ``name==version`` a line: pip's
constraints. ``missing [EXTRA ...]``: the dependencies in pyproject.toml, those of the extras
included, that are not installed at all; an installed one counts as there whatever its version, as a
container's own builds of torch carry versions that no range admits. ``unchanged FILE``: nothing, or
exit code 1 and which of the constraints in FILE no longer holds. ``script``: where pip put the
command, for a Python whose scripts are not on PATH.
"""

from __future__ import annotations

import re
import sys
import tomllib
from importlib.metadata import PackageNotFoundError, distribution, distributions, version
from pathlib import Path

HELD = re.compile(
    r"torch|torchao|triton|transformer[-_]engine.*|megatron[-_]core|nvidia[-_].*|numpy"
)
PYPROJECT = Path(__file__).parent.parent / "pyproject.toml"


def held() -> list[str]:
    """Constraints that keep the container's own builds."""
    # A local build's file has no index to come from, and a constraint on it holds all the same.
    found = {dist.metadata["Name"]: dist.version for dist in distributions()}
    return sorted(f"{name}=={number}" for name, number in found.items() if HELD.fullmatch(name))


def missing(extras: list[str]) -> list[str]:
    """Requirements that nothing installed stands for."""
    project = tomllib.loads(PYPROJECT.read_text("utf-8"))["project"]
    wanted = list(project["dependencies"])
    for extra in extras:
        wanted += project["optional-dependencies"][extra]
    return [requirement for requirement in wanted if not _installed(requirement)]


def unchanged(constraints: Path) -> list[str]:
    """Nothing; what is held and was not there before is no change.

    :raises SystemExit: naming what is gone or of another version.
    """
    lost = set(constraints.read_text("utf-8").split()) - set(held())
    if lost:
        raise SystemExit(f"the base image's {', '.join(sorted(lost))} was replaced or removed")
    return []


def script() -> list[str]:
    """The installed command's path, which only the installer's record knows for certain."""
    files = distribution("autoresearch").files or []
    return [str(file.locate().resolve()) for file in files if file.name == "autoresearch"]


def _installed(requirement: str) -> bool:
    name = re.match(r"[A-Za-z0-9._-]+", requirement)
    if name is None:
        raise SystemExit(f"pyproject.toml: {requirement!r} names no package")
    try:
        version(name[0])
    except PackageNotFoundError:
        return False
    return True


if __name__ == "__main__":
    command, *rest = sys.argv[1:]
    lines = {
        "held": held,
        "missing": lambda: missing(rest),
        "unchanged": lambda: unchanged(Path(rest[0])),
        "script": script,
    }[command]()
    print("\n".join(lines))  # noqa: T201
