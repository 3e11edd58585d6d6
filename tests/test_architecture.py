"""Check the packages and the arrows between them on every import statement in the source."""

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

from tests.support.places import ROOT

HOUSE = ("autoresearch", "agent", "funnel", "trainer", "trajectory")
MOST_LINES = 600
"""Maximum length of a file."""
MOST_LINES_OF_A_FUNCTION = 50


def modules() -> dict[str, Path]:
    """Return every module of the product, by name; a package by its own name."""
    found = {}
    for room in HOUSE:
        for path in sorted((ROOT / room).rglob("*.py")):
            parts = path.relative_to(ROOT).with_suffix("").parts
            found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


MODULES = modules()


@cache
def imports() -> dict[str, set[str]]:
    """Return what each module imports."""
    return {name: set(imported(path)) for name, path in MODULES.items()}


def imported(path: Path) -> Iterator[str]:
    """Yield the product's modules that a file imports, anywhere in the file."""
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


def room_of(module: str) -> str:
    """Return ``agent.search`` for ``agent.search.loop``; the base package is one unit."""
    parts = module.split(".")
    return parts[0] if parts[0] == "autoresearch" else ".".join(parts[:2])


def circle(arrows: dict[str, set[str]]) -> list[str]:
    """Return a cycle of imports, or an empty list."""
    try:
        TopologicalSorter(arrows).prepare()
    except CycleError as error:
        return list(error.args[1])
    return []


def test_imports_that_the_table_does_not_tell() -> None:
    """It forbids the other imports."""
    for module, others in imports().items():
        house = module.split(".")[0]
        for other in others:
            if module in {"autoresearch", "autoresearch.__main__"}:
                assert other.startswith(("autoresearch", "agent")), f"{module} imports {other}"
            if house == "trajectory" and other.startswith("trainer"):
                assert room_of(other) == "trainer.schema", f"{module} imports {other}"
            if house != "funnel" and other.startswith("funnel"):
                assert room_of(module) == "agent.commands", f"{module} imports {other}"


def test_no_circle_of_modules() -> None:
    """Imports inside functions count too, although they run later."""
    assert circle(imports()) == []


def test_a_room_imports_only_what_stands_above_it_in_the_table() -> None:
    """The table is in docs/architecture.md, and every package has a line there."""
    text = (ROOT / "docs" / "architecture.md").read_text("utf-8")
    table = text.split("## Packages and imports")[1].split("\n## ")[0]
    order = re.findall(r"^\| `([\w.]+)` \|", table, re.MULTILINE)
    assert len(order) == len(set(order))
    rooms = {room_of(name) for name in MODULES} - set(HOUSE[1:])
    assert set(order) == rooms
    for module in MODULES.keys() - {"autoresearch.__main__", *HOUSE}:
        for other in imports()[module]:
            stands_above = order.index(room_of(other)) <= order.index(room_of(module))
            assert stands_above, f"{module} imports {other}, whose room is below its own"


def test_files_and_functions_are_short() -> None:
    functions = (ast.FunctionDef, ast.AsyncFunctionDef)
    for path in MODULES.values():
        text = path.read_text()
        assert len(text.splitlines()) <= MOST_LINES, path
        for one in ast.walk(ast.parse(text)):
            if isinstance(one, functions):
                lines = (one.end_lineno or 0) - one.lineno + 1
                assert lines <= MOST_LINES_OF_A_FUNCTION, f"{path}: {one.name}"


def test_prompts_hold_no_python_logic() -> None:
    for path in sorted((ROOT / "proposer_prompts").rglob("*.py")):
        body = ast.parse(path.read_text("utf-8")).body
        assert all(isinstance(node, ast.Expr) for node in body), path


def test_the_environment_is_read_in_one_module() -> None:
    """A child process gets an allowlist of the environment, and a home that the sandbox sets.
    Everything else goes through agent.settings, and redacted values are read where they are."""
    readers = {
        name
        for name, path in MODULES.items()
        if "env" in (source := path.read_text("utf-8"))
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Attribute) and node.attr in {"environ", "getenv", "environb"}
    }
    assert readers <= {
        "autoresearch.limited",
        "autoresearch.safe_text",
        "trainer.machine.environment",
        "trainer.isolation.kernel.sandbox",
    }


def test_the_large_libraries_are_loaded_by_those_that_use_them() -> None:
    """A process that imports torch may come to hold a CUDA context; all of these import slowly."""
    code = """
import sys
import agent.cli, trainer.executors.choice, trainer.machine.ceiling
import trainer.schema, trainer.telemetry
import trajectory.history.store, trajectory.live.app, trajectory.report.report, trajectory.rows
sys.exit(not {'torch', 'pynvml', 'matplotlib', 'ray'}.isdisjoint(sys.modules))
"""
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
