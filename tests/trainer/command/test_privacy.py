"""A script attacks keys and scores that lie below its own directory.

Each attack also runs without the sandbox, where it must reach the secret: an attack that cannot
work proves nothing.
"""

import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.support.commands import command, command_spec, script
from trainer.executors.local import COMMAND_ENTRY, LocalExecutor
from trainer.isolation.kernel.sandbox import Layers
from trainer.schema import CommandOk

HERE = Layers.detect()
pytestmark = pytest.mark.skipif(HERE.landlock_abi < 3, reason="this kernel cannot confine a trial")

SECRET = "the-secret"
SECRETS = (
    "sub/.env",
    "sub/deep/er/.env",
    "sub/.git/config",
    "sub/module/.hidden/below/key",
    "old/runs/a/trajectory.jsonl",
    "old/runs/a/trials/t000001/result.json",
    "old/runs/a/prompts/1.txt",
)
ATTACK = """
import ctypes, os, sys
from pathlib import Path
here = Path(PLACE)
def tries(name):
    yield "relative", lambda: Path(name).read_text()
    yield "absolute", lambda: (here / name).read_text()
    yield "by the root", lambda: Path(f"/proc/self/root{here}/{name}").read_text()
    yield "by the cwd", lambda: Path(f"/proc/self/cwd/{name}").read_text()
    def folder():
        fd = os.open(here / name.split("/")[0], os.O_PATH | os.O_DIRECTORY)
        return os.read(os.open(name.split("/", 1)[1], os.O_RDONLY, dir_fd=fd), 99).decode()
    yield "by a folder's descriptor", folder
    def pinned():
        fd = os.open(here / name, os.O_PATH)
        return Path(f"/proc/self/fd/{fd}").read_text()
    yield "by a pinned descriptor", pinned
    def linked():
        os.link(here / name, "hard"); text = Path("hard").read_text(); os.unlink("hard")
        return text
    yield "by a hard link", linked
    def soft():
        os.symlink(here / name, "soft")
        try:
            return Path("soft").read_text()
        finally:
            os.unlink("soft")
    yield "by a link of its own", soft
    def moved():
        os.rename(here / name, "moved")
        try:
            return Path("moved").read_text()
        finally:
            os.rename("moved", here / name)
    yield "by a rename", moved
    def child():
        import subprocess
        return subprocess.run(["/bin/cat", str(here / name)], capture_output=True, text=True,
                              check=True).stdout
    yield "by a child", child
for name in NAMES:
    for how, way in tries(name):
        try:
            got = SECRET in way()
        except Exception as error:
            got = False
        print("GOT" if got else "kept", name, how)
print("open", Path("sub/open.txt").read_text(), Path("sub/deep/near.txt").read_text(),
      Path("old/notes.txt").read_text(), Path("sub/module/code.txt").read_text())
print("val loss 1.0")
"""


@pytest.fixture
def place(tmp_path: Path) -> Path:
    text = ATTACK.replace("PLACE", repr(str(tmp_path / "own")))
    text = text.replace("NAMES", repr(SECRETS)).replace("SECRET", repr(SECRET))
    place = script(tmp_path / "own", text)
    for name in SECRETS:
        script((place / name).parent, SECRET, Path(name).name)
    for name in ("sub/open.txt", "sub/deep/near.txt", "old/notes.txt", "sub/module/code.txt"):
        script((place / name).parent, "fine", Path(name).name)
    return place


@pytest.fixture(scope="module", params=["world", "no namespaces"])
def confined(request: pytest.FixtureRequest) -> Iterator[LocalExecutor]:
    if request.param == "world" and not HERE.world:
        pytest.skip("this machine allows no namespaces")
    layers = replace(HERE, world=request.param == "world")
    with LocalExecutor(entry=COMMAND_ENTRY, layers=layers) as executor:
        yield executor


@pytest.fixture(scope="module")
def unconfined() -> Iterator[LocalExecutor]:
    layers = Layers(0, seccomp=False)
    with LocalExecutor(entry=COMMAND_ENTRY, layers=layers, allow_unsandboxed=True) as executor:
        yield executor


def strike(executor: LocalExecutor, place: Path, main: str | None = None) -> list[str]:
    """Run the script as a trial; return what it prints about each of its attempts."""
    trial = place.parent / "campaign" / "trials" / "t000001"
    told = command(argv=(sys.executable, "train.py"), directory=str(place), main=main)
    result = executor.run(command_spec(command=told), trial).result
    log = (trial / "trainer.log").read_text()
    assert isinstance(result, CommandOk), log
    assert "open fine fine fine fine" in log
    return [line for line in log.splitlines() if line.startswith(("GOT", "kept"))]


@pytest.mark.parametrize("main", [None, "main"])
def test_no_secret_can_be_read(confined: LocalExecutor, place: Path, main: str | None) -> None:
    """By a program, or by a function that is called in a fork."""
    if main is not None:
        lines = (place / "train.py").read_text().splitlines()
        script(place, "".join(["def main():\n", *(f"    {line}\n" for line in lines)]))
    tries = strike(confined, place, main)
    assert len(tries) == 10 * len(SECRETS)
    assert [line for line in tries if line.startswith("GOT")] == []


def test_without_the_sandbox_every_way_leads_there(unconfined: LocalExecutor, place: Path) -> None:
    assert [line for line in strike(unconfined, place) if line.startswith("kept")] == []


def test_what_one_trial_compiles_the_next_loads(confined: LocalExecutor, tmp_path: Path) -> None:
    """The trials share only the folder in which torch.compile keeps its code, and no other of the
    campaign's."""
    text = (
        "import os; from pathlib import Path\nkept = Path(os.environ['TORCHINDUCTOR_CACHE_DIR'])\n"
    )
    text += "print('val loss', 1 + len(list(kept.iterdir())))\n(kept / 'a').mkdir(exist_ok=True)\n"
    text += "try: (kept.parent / 'b').mkdir()\nexcept OSError: pass\n"
    told = command(directory=str(script(tmp_path / "own", text)))
    campaign = tmp_path / "campaign"
    spec = command_spec(command=told, compile_cache=str(campaign / "compiled"))
    trials = (campaign / "trials" / name for name in ("t000001", "t000002"))
    results = [confined.submit(spec, trial).result().result for trial in trials]
    assert [one.score for one in results if isinstance(one, CommandOk)] == [1, 2]
    assert not (campaign / "b").exists()
