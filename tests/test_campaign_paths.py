"""No code but `autoresearch.campaign_files` opens, lists or changes a path in a campaign."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.places import ROOT

ROOMS = ("agent", "autoresearch", "funnel", "trainer", "trajectory")
PATH_METHODS = frozenset(
    "open read_text read_bytes write_text write_bytes mkdir touch unlink rename rmdir chmod glob "
    "rglob iterdir exists is_file is_dir is_symlink stat lstat symlink_to hardlink_to".split()
)
FUNCTIONS = frozenset(
    "open os.open os.mkdir os.makedirs os.unlink os.remove os.rename os.replace os.listdir "
    "os.scandir os.walk os.fwalk os.stat os.lstat os.link os.symlink os.truncate os.path.exists "
    "os.path.lexists shutil.rmtree shutil.copyfile shutil.copy shutil.move sqlite3.connect "
    "read_given open_regular write_new tempfile.mkdtemp".split()
)
OUTSIDE = {
    # These modules' paths are not in a campaign, or lie in a trial's folder that the campaign's
    # process has made itself.
    "autoresearch/beneath.py": "opens beneath a descriptor",
    "autoresearch/campaign_files.py": "is the one that may",
    "autoresearch/code.py": "this package's own files",
    "autoresearch/files.py": "files that the user names",
    "autoresearch/screen.py": "/dev/null",
    "agent/commands/campaign_view.py": "a figure's file that the user names",
    "agent/commands/launch/targets.py": "a menu that the user names",
    "agent/commands/machine": "files that the user names",
    "agent/menu/scripts/update.py": "a menu that the user names",
    "agent/commands/night/menu.py": "a menu that the user names",
    "agent/commands/night/propose.py": "a file of code that the user names",
    "agent/commands/record/mcp_server.py": "the documentation in this package",
    "agent/commands/record/report.py": "opens the browser",
    "agent/commands/record/show.py": "the user's script",
    "agent/commands/record/serve.py": "the directories that the user names",
    "agent/commands/night/status.py": "looks for campaigns below the directories that it is given",
    "agent/exports/forms.py": "the export's file, which the command has checked",
    "agent/loggers/git_branch.py": "the user's script",
    "agent/loggers/trackers.py": "W&B's settings in the current directory",
    "agent/menu": "menus and scripts that the user names",
    "agent/proposers/choice.py": "the program that the user names",
    "agent/proposers/llm/prompt.py": "this package's templates",
    "agent/session/dry_start.py": "a temporary folder",
    "agent/session/lane_opening.py": "the corpora's cache",
    "agent/session/machine_checks.py": "the directory of campaigns and the corpora's cache",
    "agent/session/own_trainer.py": "the user's script; a new trial's folder",
    "agent/session/places.py": "the directory of campaigns",
    "autoresearch/ideas.py": "this package's library of code",
    "autoresearch/program.py": "the program that was started",
    "funnel": "launch plans, forecasts and cloud logs that the user names",
    "trainer/code_check": "a temporary folder",
    "trainer/command": "runs inside a trial, or reads the user's script",
    "trainer/corpus": "corpora and texts that the user names",
    "trainer/envelope": "an envelope's folder that the user names",
    "trainer/executors/command_probe.py": "a temporary folder",
    "trainer/executors/ray": "a node's own folders",
    "trainer/executors/slurm": "a job's own folder",
    "trainer/isolation": "a trial's folder, in which it follows no link",
    "trainer/machine": "the system's files",
    "trainer/memory": "the system's files",
    "trainer/training": "runs inside a trial",
    "trainer/__main__.py": "a spec that the user names",
    "autoresearch/limited.py": "the system's files",
    "trajectory/formats/importing.py": "the new folder that becomes the campaign",
    "trajectory/formats/mlflow_runs.py": "folders that MLflow made for a database",
    "trajectory/formats/optuna_study.py": "a temporary folder",
    "trajectory/formats/source.py": "a file that the user names",
    "trajectory/formats/tracker_stores.py": "a tracker's folder that the user names; memory",
    "trajectory/history/tables.py": "SQLite opens by path; check_file checks it before",
    "trajectory/live/app.py": "this package's static files",
    "trajectory/live/board.py": "the directory of campaigns; a temporary folder",
    "trajectory/report/report.py": "this package's templates",
}


def dotted(node: ast.expr) -> str:
    if isinstance(node, ast.Attribute):
        return f"{dotted(node.value)}.{node.attr}"
    return node.id if isinstance(node, ast.Name) else "?"


def opened(text: str) -> Iterator[str]:
    """Yield the calls of a module that use the file system by a path."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Call):
            name = dotted(node.func)
            is_method = isinstance(node.func, ast.Attribute) and node.func.attr in PATH_METHODS
            if name in FUNCTIONS or (is_method and not name.startswith(("campaign_files.", "os."))):
                yield f"{node.lineno}: {name}"


def imports_openers(text: str) -> set[str]:
    """Return what a module imports that opens a file by its path."""
    by_path = {"replacing", "replace_file", "read_given", "open_regular", "write_new"}
    found = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.ImportFrom) and node.module == "autoresearch.files":
            found |= {alias.name for alias in node.names} & by_path
    return found


def is_outside(path: str) -> bool:
    return any(path == one or path.startswith(f"{one}/") for one in OUTSIDE)


def sources() -> dict[str, str]:
    paths = (path for room in ROOMS for path in (ROOT / room).rglob("*.py"))
    return {path.relative_to(ROOT).as_posix(): path.read_text("utf-8") for path in paths}


def test_no_other_module_opens_a_path_in_a_campaign() -> None:
    for path, text in sources().items():
        if not is_outside(path):
            assert list(opened(text)) == [], path


def test_every_exception_is_needed() -> None:
    found = [
        path for path, text in sources().items() if list(opened(text)) or imports_openers(text)
    ]
    for one in OUTSIDE:
        assert any(path == one or path.startswith(f"{one}/") for path in found), one


def test_modules_of_the_campaign_import_no_opener_of_other_files() -> None:
    for path, text in sources().items():
        assert is_outside(path) or not imports_openers(text), path


@pytest.mark.parametrize(
    "text", ["(a / b).open()", "p.read_bytes()", "open(p)", "os.scandir(p)", "sqlite3.connect(p)"]
)
def test_an_opened_path_is_found(text: str) -> None:
    assert list(opened(text))


def test_the_place_of_this_test_is_the_repository() -> None:
    assert Path(ROOT, "autoresearch", "campaign_files.py").is_file()
