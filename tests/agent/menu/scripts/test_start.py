import sys
from dataclasses import replace
from pathlib import Path

import pytest

from agent.menu.files import parse_menu
from agent.menu.scripts.draft import draft_of
from agent.menu.scripts.draft_text import toml_of
from agent.menu.scripts.metrics import Candidate
from agent.menu.scripts.option import Option
from agent.menu.scripts.reading import script_of, text_of
from agent.menu.scripts.reported import Reported
from agent.menu.scripts.start import Start, preloadable, start_of
from trainer.script.editing import script_tree

GUARD = "\nif __name__ == '__main__':\n    main()\n"


def test_only_installed_well_known_modules_are_preloaded() -> None:
    text = (
        "import os, numpy as np, jax, helpers\nfrom torch.utils.data import DataLoader\n"
        "import torch\nfrom . import numpy\nfrom lightgbm_missing import x\n"
        "def main():\n    import pandas\n"
    )
    assert preloadable(script_tree(text)) == ["numpy", "torch.utils.data", "torch"]


SCRIPT = """
import argparse
import torch
def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--lr", type=float, default=1e-3)
    args = parser.parse_args()
    print(f"val loss {args.lr}")
"""


LR = Reported((Option("lr", 1e-3, "--lr={lr}", kind="float"),))


@pytest.mark.parametrize(
    ("text", "main"),
    [
        (SCRIPT + GUARD, "__main__"),
        (SCRIPT + "main()\n", "__main__"),
        (SCRIPT.replace("import torch\n", "") + "main()\n", None),  # nothing to load beforehand
    ],
)
def test_a_draft_starts_the_script_where_its_imports_are_loaded(
    text: str, main: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(Path(sys.executable).parent))
    path = tmp_path / "fit.py"
    path.write_text(text)
    score = Candidate("val loss", "val loss", "minimise")
    draft = replace(draft_of(script_of(path, LR), None), score=score, direction="minimise")
    table = parse_menu(toml_of(draft), "draft").trainer
    assert table is not None
    assert (table.main, table.preload) == (main, ("torch",) if main else ())
    assert table.command[0] == ("{python}" if main else "python")


def test_another_python_runs_a_program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "python").touch(0o755)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    path = tmp_path / "fit.py"
    path.write_text(SCRIPT + GUARD)
    assert draft_of(script_of(path, LR), None).main is None


CLIMBS = "HERE = os.path.dirname(os.path.abspath(__file__))\n"
TWO_UP = "Path(__file__).resolve().parents[1]"
IN_ROOT, IN_OWN = Start(Path(), "src/fit.py"), Start(Path("src"), "fit.py")


@pytest.mark.parametrize("means", ["args", "edit"])
@pytest.mark.parametrize(
    ("text", "start"),
    [
        ("open('data/x.csv')", IN_ROOT),
        ("from beside import x\nopen('./data/x.csv')", IN_ROOT),
        ("import config", IN_ROOT),
        ("DATA_DIR = 'data'", IN_ROOT),
        ("parser.add_argument('--data', default='data')", IN_ROOT),
        ("os.path.join('data', name)", IN_ROOT),
        (f"ROOT = {TWO_UP}\nROOT / 'data' / 'x.csv'", IN_ROOT),
        ("Path(__file__).parent.parent / 'data'", IN_ROOT),
        ("with open(Path(__file__).parent / '..' / 'data' / 'x.csv') as f: ...", IN_ROOT),
        (f"{CLIMBS}ROOT = os.path.dirname(HERE)\nos.path.join(ROOT, 'data')", IN_ROOT),
        (f"{CLIMBS}os.path.join(HERE, '..', 'data')", IN_ROOT),
        (f"{TWO_UP} / 'absent'", IN_OWN),
        ("Path(__file__).parent / 'data'", IN_OWN),
        ("open('own.txt')", IN_OWN),
        ("kind = 'data'", IN_OWN),
        ("open('/etc/passwd')", IN_OWN),
        ("open('../data/x.csv')", Start(Path("src"), "fit.py", reads=("../data/x.csv",))),
        (f"{CLIMBS}os.path.join(os.path.dirname(HERE), 'src', 'own.txt')", IN_ROOT),
    ],
)
def test_a_script_is_started_where_the_files_are_that_it_names(
    text: str, start: Start, means: str, tmp_path: Path
) -> None:
    for name in ("data/x.csv", "src/own.txt", "own.txt"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    (tmp_path / "src" / "beside.py").write_text("x = 1\n")
    (tmp_path / "src" / "config.py").write_text("WHERE = 'data/x.csv'\n")
    path = tmp_path / "src" / "fit.py"
    path.write_text(f"{SCRIPT}main()\nlr = 0.1\n{text}\n")
    found = start_of(path, text_of(path)[1], edited=means == "edit")
    assert replace(found, folder=found.folder.relative_to(tmp_path)) == start


@pytest.mark.parametrize(
    ("means", "start"),
    [
        ("args", Start(Path(), "fit.py", "src.fit")),
        ("edit", Start(Path(), "src/fit.py", search_path=".")),
    ],
)
@pytest.mark.parametrize("imports", ["from src.beside import x", "import tools.beside"])
def test_a_script_that_imports_from_above_is_started_there(
    imports: str, means: str, start: Start, tmp_path: Path
) -> None:
    for name in ("src", "tools"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "beside.py").touch()
    path = tmp_path / "src" / "fit.py"
    path.write_text(f"{imports}\n{SCRIPT}main()\nlr = 0.1\n")
    found = start_of(path, text_of(path)[1], edited=means == "edit")
    assert replace(found, folder=found.folder.relative_to(tmp_path)) == start


@pytest.mark.parametrize("means", ["args", "edit"])
def test_a_script_in_its_own_package_is_started_where_its_data_lie(
    means: str, tmp_path: Path
) -> None:
    for name in ("data/x.csv", "src/utils.py"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    (tmp_path / "src" / "utils.py").write_text("def load(path='../data/x.csv'): ...\n")
    path = tmp_path / "src" / "fit.py"
    path.write_text("from src.utils import load\nlr = 0.1\n")
    found = start_of(path, text_of(path)[1], edited=means == "edit")
    start = Start(tmp_path / "src", "fit.py", reads=("../data/x.csv",), search_path="..")
    assert found == start


@pytest.mark.parametrize("imports", ["import numpy", "from numpy import linalg, random"])
def test_a_folder_named_after_a_library_is_no_package(imports: str, tmp_path: Path) -> None:
    path = tmp_path / "numpy" / "fit.py"
    path.parent.mkdir()
    path.write_text(f"{imports}\n{SCRIPT}main()\n")
    assert start_of(path, text_of(path)[1]) == Start(path.parent, "fit.py")
