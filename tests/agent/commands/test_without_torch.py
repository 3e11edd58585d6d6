"""The commands that only look start where torch is not installed; the search says what to run."""

import subprocess
import sys
from pathlib import Path

WITHOUT_TORCH = """
import sys
class Missing:
    def find_spec(self, name, path=None, target=None):
        if name == "torch" or name.startswith("torch."):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Missing())
import importlib.util
found = importlib.util.find_spec
importlib.util.find_spec = lambda name, *rest: None if name == "torch" else found(name, *rest)
"""
LOOK = "status top sql diff mcp propose report cost verify menu check"


def run(code: str, *words: str, place: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", WITHOUT_TORCH + code, *words],
        capture_output=True,
        text=True,
        check=False,
        cwd=place,
        env={"PYTHONPATH": str(Path(__file__).parents[3]), "PATH": "/usr/bin:/bin", "HOME": "/tmp"},
    )


def test_commands_that_only_look_load_without_torch(tmp_path: Path) -> None:
    code = f"""
from agent.cli import ENTRIES
for name in {LOOK.split()}:
    ENTRIES[name].load()
assert "torch" not in sys.modules and "matplotlib" not in sys.modules
"""
    done = run(code, place=tmp_path)
    assert done.returncode == 0, done.stderr


def test_a_search_without_torch_says_the_line_to_run(tmp_path: Path) -> None:
    code = "from autoresearch.__main__ import main\nmain()"
    done = run(code, "loop", "--iters", "1", place=tmp_path)
    assert done.returncode == 1
    assert "pip install" in done.stderr + done.stdout
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "runs").exists()
