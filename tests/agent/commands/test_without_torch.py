"""Commands that train need torch, and say what to run; all others start without it."""

import shutil
import subprocess
import sys
from pathlib import Path

from tests.support.commands import script
from tests.support.own_menus import OWN_MENU
from tests.support.places import NIGHT, ROOT
from tests.support.stub_cuda import build_stub, make_machine

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
LOOK = "status top sql diff mcp propose space report cost verify menu check"
RUN = """
from autoresearch.__main__ import main
for line in sys.argv[1:]:
    sys.argv = ["autoresearch", *line.split()]
    try:
        main()
        code = 0
    except SystemExit as stop:
        code = stop.code
    print("exit", code)
"""
CAMPAIGN = "--campaign runs/night"


def run(
    code: str, *words: str, place: Path, **environment: str
) -> subprocess.CompletedProcess[str]:
    environment |= {"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin", "HOME": str(place / "home")}
    return subprocess.run(
        [sys.executable, "-c", WITHOUT_TORCH + code, *words],
        capture_output=True,
        text=True,
        check=False,
        cwd=place,
        env=environment,
    )


def exits(*lines: str, place: Path, **environment: str) -> list[str]:
    """Run commands in one process and return their exit codes."""
    done = run(RUN, *lines, place=place, **environment)
    assert "Traceback" not in done.stderr, done.stderr
    return [line.removeprefix("exit ") for line in done.stdout.splitlines() if "exit " in line[:5]]


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
    assert f"{sys.executable} -m pip install" in done.stderr + done.stdout
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "runs").exists()


def test_every_command_that_trains_ends_with_one_sentence(tmp_path: Path) -> None:
    shutil.copytree(NIGHT, tmp_path / "runs" / "night")
    begin = ["loop --iters 1", "loop --device cpu", "calibrate", "compare", "envelope --device cpu"]
    more = [f"loop --iters 101 {CAMPAIGN} --trust", f"calibrate {CAMPAIGN} --trust"]
    more += [
        f"{name} {CAMPAIGN} --trust --yes" for name in ("confirm", "stress", "ladder", "attribute")
    ]
    codes = exits(*begin, *more, "doctor", place=tmp_path)
    assert codes == ["1"] * (len(begin) + len(more) + 1)
    assert [path.name for path in (tmp_path / "runs").iterdir()] == ["night"]
    assert not (tmp_path / "runs" / "night" / "trials").exists()


def test_the_doctor_of_a_command_needs_no_torch(tmp_path: Path) -> None:
    own = script(tmp_path / "own", "print('loss 1.0')")
    (own / "own.toml").write_text(OWN_MENU)
    assert exits("doctor --menu own/own.toml", "doctor", place=tmp_path) == ["0", "1"]


def test_a_command_s_device_is_the_one_that_the_driver_sees(tmp_path: Path) -> None:
    """torch may be in the command's own environment alone, so the driver is asked."""
    (tmp_path / "library").mkdir()
    machine = make_machine(build_stub(tmp_path / "library"), tmp_path / "machine")
    (tmp_path / "own.toml").write_text(OWN_MENU)
    code = """
from rich.console import Console
from agent.menu.files import load_menu
from agent.session.lane_opening import choose_device
print(choose_device(load_menu("own.toml"), {}, Console(quiet=True)))
"""
    for ends, device in (("0", "cuda"), ("100", "cpu")):
        stub = {
            name: value
            for name, value in machine.environ(ends=ends).items()
            if name.startswith(("CUDA_STUB", "LD_LIBRARY"))
        }
        done = run(code, place=tmp_path, **stub)
        assert done.stdout.strip() == device, done.stderr
