"""The rooms and the arrows between them, checked on every import statement in the source."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

from tests.support.places import ROOT

HOUSE = ("autoresearch", "agent", "funnel", "trainer", "trajectory")
PLAIN = {"trainer.spec"}
"""What ``trajectory`` may know of ``trainer``: data."""
MOST_FILES = 16
"""On one floor: more than a reader takes in at a glance."""


def modules() -> dict[str, Path]:
    """Every module of the product, by name; a package by its own."""
    found = {}
    for room in HOUSE:
        for path in sorted((ROOT / room).rglob("*.py")):
            parts = path.relative_to(ROOT).with_suffix("").parts
            found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


MODULES = modules()


def imported(path: Path) -> Iterator[str]:
    """The modules of the product that a file imports, wherever in it the import stands."""
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in MODULES)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            for alias in node.names:
                submodule = f"{node.module}.{alias.name}"
                if submodule in MODULES:
                    yield submodule
                elif node.module in MODULES:
                    yield node.module


IMPORTS = {name: set(imported(path)) for name, path in MODULES.items()}


def room_of(module: str) -> str:
    """``agent.search`` for ``agent.search.loop``; the cellar is one room."""
    parts = module.split(".")
    return parts[0] if parts[0] == "autoresearch" else ".".join(parts[:2])


def circle(arrows: dict[str, set[str]]) -> list[str]:
    """A way round that comes back to where it began; empty where there is none."""
    try:
        TopologicalSorter(arrows).prepare()
    except CycleError as error:
        return list(error.args[1])
    return []


@pytest.mark.parametrize(
    ("house", "may"),
    [
        ("autoresearch", {"autoresearch"}),
        ("agent", {"autoresearch", "agent", "trainer", "trajectory"}),
        ("funnel", {"autoresearch", "agent", "funnel", "trainer", "trajectory"}),
        ("trajectory", {"autoresearch", "trajectory", *PLAIN}),
        ("trainer", {"autoresearch", "trainer"}),
    ],
)
def test_rooms_import_only_along_the_arrows(house: str, may: set[str]) -> None:
    """The commands alone look into the funnel; the door into the program alone into the agent."""
    for module in (name for name in MODULES if name.split(".")[0] == house):
        allowed = may
        if room_of(module) == "agent.commands":
            allowed = may | {"funnel"}
        if module in {"autoresearch", "autoresearch.__main__"}:
            allowed = may | {"agent"}
        for other in IMPORTS[module]:
            along = other.split(".")[0] in allowed or room_of(other) in allowed
            assert along, f"{module} imports {other}"


def test_no_circle_of_modules() -> None:
    """Imports inside functions count too: a circle is one, whenever it is walked."""
    assert circle(IMPORTS) == []


def test_a_room_imports_only_what_stands_above_it_in_the_table() -> None:
    """The table is docs/architecture.md's, and every room has its line there."""
    text = (ROOT / "docs" / "architecture.md").read_text("utf-8")
    table = text.split("## Packages and imports")[1].split("\n## ")[0]
    order = re.findall(r"^\| `([\w.]+)` \|", table, re.MULTILINE)
    assert len(order) == len(set(order))
    rooms = {room_of(name) for name in MODULES} - set(HOUSE[1:])
    assert set(order) == rooms
    for module in MODULES.keys() - {"autoresearch.__main__", *HOUSE}:
        for other in IMPORTS[module]:
            stands_above = order.index(room_of(other)) <= order.index(room_of(module))
            assert stands_above, f"{module} imports {other}, whose room is below its own"


def test_no_floor_is_crowded() -> None:
    floors = Counter(str(path.parent.relative_to(ROOT)) for path in MODULES.values())
    for floor, files in floors.items():
        assert files <= MOST_FILES + 1, f"{floor} has {files} files"  # and its __init__


def test_prompts_hold_no_python_logic() -> None:
    for path in sorted((ROOT / "proposer_prompts").rglob("*.py")):
        body = ast.parse(path.read_text("utf-8")).body
        assert all(isinstance(node, ast.Expr) for node in body), path


def test_the_environment_is_read_in_one_module() -> None:
    """A child's process gets an allowlist of it, and a home that the sandbox sets; everything else
    goes through agent.settings, and what is redacted is read where it is."""
    readers = {
        name
        for name, path in MODULES.items()
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.Attribute) and node.attr in {"environ", "getenv", "environb"}
    }
    assert readers <= {
        "autoresearch.redaction",
        "trainer.machine.environment",
        "trainer.isolation.kernel.sandbox",
    }


@pytest.mark.parametrize("module", ["trainer.spec", "trajectory.rows", "trajectory.history.store"])
def test_what_remembers_does_not_load_torch(module: str) -> None:
    code = f"import sys, {module}; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
