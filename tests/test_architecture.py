"""The arrows between rooms, checked on every import statement in the source."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
ROOMS = ("agent", "trainer", "trajectory", "proposer_prompts", "tests", "bench")
PLAIN = {"trainer.spec", "trainer.errors"}
"""What ``trajectory`` may know of ``trainer``: data, and the root of the exceptions."""


def imported(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            yield node.module or ""


def sources(room: str) -> list[Path]:
    return sorted((ROOT / room).rglob("*.py"))


@pytest.mark.parametrize(
    ("room", "may"),
    [
        ("agent", {"agent", "trainer", "trajectory"}),
        ("trajectory", {"trajectory", *PLAIN}),
        ("trainer", {"trainer"}),
    ],
)
def test_rooms_import_only_along_the_arrows(room: str, may: set[str]) -> None:
    assert sources(room)
    for path in sources(room):
        for module in imported(path):
            if module.split(".")[0] in ROOMS:
                allowed = module.split(".")[0] in may or module in may
                assert allowed, f"{path.relative_to(ROOT)} imports {module}"


def test_prompts_hold_no_python_logic() -> None:
    for path in sources("proposer_prompts"):
        body = ast.parse(path.read_text("utf-8")).body
        assert all(isinstance(node, ast.Expr) for node in body), path


def test_the_environment_is_read_in_one_module() -> None:
    """A child's process is made from an allowlist of the environment, in the sandbox; everything
    else goes through agent.settings."""
    readers = {
        str(path.relative_to(ROOT))
        for room in ("agent", "trainer", "trajectory")
        for path in sources(room)
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.Attribute) and node.attr in {"environ", "getenv", "environb"}
    }
    assert readers <= {"trainer/sandbox.py", "trainer/supervisor.py"}


@pytest.mark.parametrize("module", ["trainer.spec", "trajectory.rows", "trajectory.history"])
def test_what_remembers_does_not_load_torch(module: str) -> None:
    code = f"import sys, {module}; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
