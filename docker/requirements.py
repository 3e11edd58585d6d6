"""Tell the Dockerfile what an image has and what is to be installed.

``held`` prints the installed packages that must stay as they are, one ``name==version`` a line, as
pip's constraints. ``wanted [EXTRA ...]`` prints the dependencies of pyproject.toml, those of the
extras included, without the held ones that are installed: a container's own builds of torch carry
versions that no range admits. pip brings the rest into our ranges. ``unchanged FILE`` prints
nothing, or exits with code 1 and names the constraints of FILE that no longer hold. ``imports``
imports the modules of every command. ``script`` prints where pip put the command, for a Python
whose scripts are not on PATH.
"""

from __future__ import annotations

import re
import sys
import tomllib
from importlib import import_module
from importlib.metadata import distribution, distributions
from pathlib import Path
from pkgutil import walk_packages

HELD = re.compile(
    r"torch|torchao|triton|transformer[-_]engine.*|megatron[-_]core|nvidia[-_].*|numpy"
)
PYPROJECT = Path(__file__).parent.parent / "pyproject.toml"


def held() -> list[str]:
    """Constraints that keep the container's own builds."""
    # A local build's file has no index to come from, and a constraint on it holds all the same.
    found = {dist.metadata["Name"]: dist.version for dist in distributions()}
    return sorted(f"{name}=={number}" for name, number in found.items() if HELD.fullmatch(name))


def wanted(extras: list[str]) -> list[str]:
    """Return the requirements for pip: all but those that are held at the image's version."""
    project = tomllib.loads(PYPROJECT.read_text("utf-8"))["project"]
    lines = list(project["dependencies"])
    for extra in extras:
        lines += project["optional-dependencies"][extra]
    there = {line.partition("==")[0] for line in held()}
    return [line for line in lines if re.split(r"[^A-Za-z0-9._-]", line)[0] not in there]


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


def imports() -> list[str]:
    """Import what the commands, the page and a trial import; print nothing.

    :raises ImportError: where the image's packages do not go together.
    """
    for package in ("agent.commands", "trajectory.live"):
        for module in walk_packages(import_module(package).__path__, f"{package}."):
            import_module(module.name)
    for name in ("agent.cli", "trainer.training.child", "trainer.isolation.forkserver"):
        import_module(name)
    return []


if __name__ == "__main__":
    command, *rest = sys.argv[1:]
    lines = {
        "held": held,
        "wanted": lambda: wanted(rest),
        "unchanged": lambda: unchanged(Path(rest[0])),
        "imports": imports,
        "script": script,
    }[command]()
    print("\n".join(lines))  # noqa: T201
