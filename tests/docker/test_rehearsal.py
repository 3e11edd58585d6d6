"""Run a campaign's first commands in an image like NVIDIA's, with the compose file's limits.

The base is Debian with Python 3.12, a CUDA build of torch 2.11, Megatron-Core 0.17.0rc0, and openai
and fastapi in the versions of an image of April 2026. ``doctor``, two iterations against a dummy
endpoint and ``serve`` run as uid 1000 on a read-only root, without capabilities. There is no GPU.
"""

import shutil
import subprocess
import time
import urllib.error
from pathlib import Path

import pytest

from tests.support.containers import SYSTEM_PATH, TOKEN, Engine, debootstrap, page
from tests.support.openai_server import OpenAIServer, says
from tests.support.places import ROOT, python_3_12

PINNED = (
    "torch==2.11.0",
    "megatron-core==0.17.0rc0",
    "openai==2.30.0",
    "fastapi==0.129.2",
    "numpy",
)
LIBRARIES = "ca-certificates gcc libc6-dev libbz2-1.0 libffi8 libgomp1 liblzma5 libreadline8"
LIBRARIES += " libsqlite3-0 libssl3 zlib1g"
"""Libraries that a copied Python and Triton's compiler need."""
IMAGE = "localhost/rehearsal"
LIMITS = "--user=1000:1000 --read-only --cap-drop=ALL --security-opt=no-new-privileges".split()
PROPOSAL = '{"changes": {"lr": 0.003}, "reason": "a higher rate"}'

pytestmark = [pytest.mark.containers, pytest.mark.timeout(3600)]


@pytest.fixture(scope="module")
def image(engine: Engine) -> str:
    ask = [python_3_12(), "-c", "import sys; print(sys.base_prefix)"]
    prefix = subprocess.run(ask, capture_output=True, text=True, check=True).stdout.strip()
    if prefix == "/usr":
        pytest.skip("Python 3.12 is the system's own and cannot be copied (uv python install 3.12)")
    root = engine.directory / "debian"
    debootstrap(root, LIBRARIES)
    own = root / "opt" / "python3.12"
    shutil.copytree(prefix, own, symlinks=True)
    pip = [own / "bin" / "python3.12", "-m", "pip", "install", "--quiet", *PINNED]
    installed = subprocess.run(pip, capture_output=True, text=True, check=False)
    if installed.returncode != 0:
        pytest.skip(f"the base's packages cannot be installed: {installed.stderr[-300:]}")
    # A Python built with a shared library finds it by the path it was built for.
    (root / "etc" / "ld.so.conf.d" / "python.conf").write_text("/opt/python3.12/lib\n")
    subprocess.run(["chroot", root, "ldconfig"], check=True)
    engine.load(root, "localhost/rehearsal-base", f"/opt/python3.12/bin:{SYSTEM_PATH}")
    shutil.rmtree(root)
    engine.build(ROOT, IMAGE, "localhost/rehearsal-base")
    return IMAGE


class Rehearsal:
    """Run commands of the image, and keep their output."""

    def __init__(self, engine: Engine, endpoint: str) -> None:
        self.engine, self._endpoint = engine, endpoint
        self.said: list[str] = []

    def __call__(self, *words: str, tmp: str = "exec", detach: bool = False) -> str:
        done = self.engine(
            *("podman", "run", "--detach" if detach else "--rm", "--network=host", *LIMITS),
            *(
                f"--tmpfs=/tmp:mode=1777,size=2g,{tmp}",
                "--volume=runs:/runs",
                "--volume=data:/data",
            ),
            *(f"--env=AUTORESEARCH_LLM_BASE_URL={self._endpoint}", "--init"),
            *(f"--env=AUTORESEARCH_SERVE_TOKEN={TOKEN}", IMAGE, *words),
            timeout_s=1800,
            check=False,
        )
        self.said += [f"$ autoresearch {' '.join(words)}", done.stdout + done.stderr]
        assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
        return done.stdout + done.stderr


def test_commands_work_in_an_image_like_nvidias(engine: Engine, image: str, tmp_path: Path) -> None:
    del image
    with OpenAIServer([says(PROPOSAL)]) as server:
        run = Rehearsal(engine, server.url)
        for tmp in ("exec", "noexec"):
            said = run("doctor", tmp=tmp)
            assert "landlock" in said
            assert "torch     2.11.0" in said
            assert "0.17.0rc0" in said
        loop = "loop --menu=cpu-tiny --threads=1 --iters=2 --baseline-seeds=2 --set=max_runs=2"
        more = ["--budget=8 steps", "--proposer=llm", "--no-confirm", "--campaign=/runs/rehearsal"]
        said = run(*loop.split(), *more)
        assert "2 iterations" in said
        assert "UNSANDBOXED" not in said
        assert server.chats, "the model was asked"
        run("serve", "--host=127.0.0.1", "--port=8765", "/runs", detach=True)
        assert "<title>" in page_with_token()
    (tmp_path / "transcript.txt").write_text("\n".join(run.said))


def page_with_token() -> str:
    for _ in range(60):
        try:
            return page()
        except urllib.error.URLError:
            time.sleep(2)
    pytest.fail("the page does not answer")
