"""Programs and libraries that people start, as real trials: in a world of their own, and where no
namespaces can be had.

Each prints its score after it has used what its name says. What needs sockets works in a world of
its own alone.
"""

import sys
import venv
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from tests.support.commands import PATIENT_S, command, command_spec, script
from trainer.executors.local import COMMAND_ENTRY, LocalExecutor
from trainer.isolation.kernel.sandbox import Layers
from trainer.schema import CommandOk, Measured, TrialFailed

HERE = Layers.detect()
BIN = Path(sys.executable).parent
PRINT = 'print("val loss 0.5")\n'
MAIN = """
if __name__ == "__main__":
    main()
"""

DATA_LOADER = """
import torch
from torch.utils.data import DataLoader, TensorDataset

def main():
    data = TensorDataset(torch.ones(64, 4))
    loader = DataLoader(data, batch_size=8, num_workers=2, multiprocessing_context=START)
    total = sum(float(x.sum()) for (x,) in loader)
    print("val loss", total / 512)
"""
MANAGER = """
import multiprocessing

def put(shared, key):
    shared[key] = key

def main():
    with multiprocessing.get_context(START).Manager() as manager:
        shared = manager.dict()
        one = multiprocessing.get_context(START).Process(target=put, args=(shared, 3))
        one.start()
        one.join()
        print("val loss", shared[3] / 6)
"""
PIPE = """
import multiprocessing

def answer(end):
    end.send(end.recv() / 2)

def main():
    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe()
    one = context.Process(target=answer, args=(theirs,))
    one.start()
    ours.send(1.0)
    print("val loss", ours.recv())
    one.join()
"""
POOL = """
import multiprocessing

def main():
    with multiprocessing.get_context("forkserver").Pool(2) as pool:
        print("val loss", sum(pool.map(abs, [-0.25, -0.25])))
"""
JOBLIB = """
from joblib import Parallel, delayed

def half(x):
    return x / 2

def main():
    found = Parallel(n_jobs=2)(delayed(half)(x) for x in (0.5, 0.5))
    print("val loss", sum(found))
"""
ASYNCIO = """
import asyncio

async def work():
    child = await asyncio.create_subprocess_exec("/bin/echo", "0.5", stdout=-1)
    out, _ = await child.communicate()
    return float(out)

def main():
    print("val loss", asyncio.run(work()))
"""
VECTOR_ENVIRONMENT = """
import gymnasium

def main():
    envs = gymnasium.make_vec("CartPole-v1", num_envs=2, vectorization_mode="async")
    envs.reset(seed=0)
    _, rewards, *_ = envs.step(envs.action_space.sample())
    envs.close()
    print("val loss", float(sum(rewards)) / 4)
"""
GLOO = """
import os
import torch
import torch.distributed as dist
import torch.multiprocessing as mp

def work(rank):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="29512")
    dist.init_process_group("gloo", rank=rank, world_size=2)
    x = torch.full((1,), 0.25)
    dist.all_reduce(x)
    if rank == 0:
        print("val loss", x.item(), flush=True)
    dist.destroy_process_group()

def main():
    mp.spawn(work, nprocs=2)
"""
DISTRIBUTED = """
import torch
import torch.distributed as dist
dist.init_process_group("gloo")
x = torch.full((1,), 0.25)
dist.all_reduce(x)
if dist.get_rank() == 0:
    print("val loss", x.item())
dist.destroy_process_group()
"""
ACCELERATED = """
import torch
from accelerate import Accelerator
accelerator = Accelerator(cpu=True)
model = accelerator.prepare(torch.nn.Linear(1, 1))
accelerator.print("val loss 0.5")
"""
COPIES = """
import os, shutil, sys, tempfile
out = sys.argv[1]
os.makedirs("tree/below")
open("tree/below/a", "w").write("x")
os.chmod("tree/below/a", 0o750)
shutil.copytree("tree", os.path.join(out, "copy"))
shutil.copy("tree/below/a", os.path.join(out, "b"))
shutil.copy2(__file__, os.path.join(out, "c.py"))
with tempfile.NamedTemporaryFile("w", delete=False) as file:
    file.write("weights")
shutil.move(file.name, os.path.join(out, "moved.pt"))
open("part.pt", "w").write("weights")
os.replace("part.pt", "last.pt")
shutil.move("last.pt", os.path.join(out, "best.pt"))
os.utime(os.path.join(out, "best.pt"))
print("val loss 0.5")
"""
ABOUT_ITSELF = """
import os, psutil
me = psutil.Process()
assert me.memory_info().rss and me.cpu_times() and me.num_threads() and os.getloadavg()
assert psutil.virtual_memory().total and psutil.cpu_count() and me.memory_full_info().uss
print("val loss 0.5")
"""
ABOUT_ITS_CHILD = """
import subprocess, sys
print(subprocess.run([sys.executable, "about.py"], capture_output=True, text=True).stdout)
"""
PLOT = """
import matplotlib
matplotlib.use("agg")
from matplotlib import font_manager, pyplot
assert font_manager.findfont("sans")
pyplot.plot([1, 2])
pyplot.savefig("curve.png")
print("val loss 0.5")
"""
NUMBA = """
import numba

@numba.njit(cache=True)
def half(x):
    return x / 2

def main():
    print("val loss", half(1.0))
"""
COMPILED = """
import torch

def main():
    half = torch.compile(lambda x: (x / 2).sum())
    print("val loss", half(torch.ones(1)).item())
"""
HUB = """
import os, torch
from huggingface_hub import hf_hub_download
path = hf_hub_download("some/model", "weights.txt", local_files_only=True)
state = torch.hub.load_state_dict_from_url("https://example.org/w.pt", file_name="w.pt")
print("val loss", float(open(path).read()) + state["x"].item())
"""
SQLITE = """
import sqlite3
db = sqlite3.connect("runs.sqlite")
db.execute("PRAGMA journal_mode = wal")
db.execute("CREATE TABLE t (x REAL)")
db.execute("INSERT INTO t VALUES (0.5)")
db.commit()
print("val loss", sqlite3.connect("runs.sqlite").execute("SELECT x FROM t").fetchone()[0])
"""
LOCAL_SERVER = """
import http.server, threading, urllib.request

class Answer(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"0.5")

server = http.server.HTTPServer(("localhost", 0), Answer)
threading.Thread(target=server.serve_forever, daemon=True).start()
got = urllib.request.urlopen(f"http://localhost:{server.server_port}").read().decode()
print("val loss", got)
"""
NAMES_THREADS = """
import os, subprocess, sys, threading
if len(sys.argv) > 2 and (depth := int(sys.argv[2])):
    words = [sys.executable, __file__, sys.argv[1], str(depth - 1)]
    sys.exit(subprocess.run(words).returncode)
def name():
    with open(f"/proc/self/task/{threading.get_native_id()}/comm", "w") as comm:
        comm.write("cuda-thread")
thread = threading.Thread(target=name)
thread.start()
thread.join()
assert os.readlink("/proc/self/exe") and open("/proc/self/maps").read()
print("val loss 0.5")
"""


@dataclass(frozen=True)
class Row:
    """A program, what it needs, and where it works."""

    text: str = PRINT
    words: tuple[str, ...] = (sys.executable, "train.py", "{out}")
    files: tuple[tuple[str, str], ...] = ()
    needs_world: bool = False
    fields: tuple[tuple[str, Any], ...] = ()


def functions(text: str, *, needs_world: bool = False, preload: tuple[str, ...] = ()) -> Row:
    """Return a script whose function is called in a fork that has imported the modules."""
    words = (sys.executable, "train.py")
    fields = (("main", "__main__"), ("preload", preload))
    return Row(text + MAIN, words, needs_world=needs_world, fields=fields)


def program(text: str, *, needs_world: bool = False) -> Row:
    return Row(text + MAIN, needs_world=needs_world)


TORCHRUN = ("--standalone", "--nproc-per-node=2", "train.py")
ROWS: dict[str, Row] = {
    "a script": Row(),
    "a module": Row(words=(sys.executable, "-m", "pkg"), files=(("pkg/__main__.py", PRINT),)),
    "bash run.sh": Row(
        words=("/bin/bash", "run.sh"),
        files=(("run.sh", f'set -e\nX="$(mktemp)"\n"{sys.executable}" train.py | tee "$X"\n'),),
    ),
    "uv run": Row(
        words=(str(BIN / "uv"), "run", "train.py"),
        files=(("pyproject.toml", '[project]\nname = "p"\nversion = "0"\n'),),
    ),
    "uv run, no project": Row(words=(str(BIN / "uv"), "run", "--no-project", "train.py")),
    "run.sh in an environment": Row(
        words=("/bin/bash", "run.sh"),
        files=(("run.sh", "set -e\nsource .venv/bin/activate\npython train.py\n"),),
    ),
    "torchrun": Row(DISTRIBUTED, (str(BIN / "torchrun"), *TORCHRUN), needs_world=True),
    "init_process_group": program(GLOO, needs_world=True),
    "accelerate launch": Row(
        ACCELERATED,
        (str(BIN / "accelerate"), "launch", "--cpu", "--num_processes=1", "train.py"),
    ),
    "DataLoader, fork": program(DATA_LOADER.replace("START", "'fork'")),
    "DataLoader, spawn": program(DATA_LOADER.replace("START", "'spawn'")),
    "DataLoader, forkserver": program(
        DATA_LOADER.replace("START", "'forkserver'"), needs_world=True
    ),
    "DataLoader, preloaded": functions(
        DATA_LOADER.replace("START", "None"), preload=("torch", "torch.utils.data")
    ),
    "Manager": program(MANAGER.replace("START", "'fork'"), needs_world=True),
    "Manager, spawn": program(MANAGER.replace("START", "'spawn'"), needs_world=True),
    "Pipe": program(PIPE),
    "Pool, forkserver": program(POOL, needs_world=True),
    "joblib": program(JOBLIB),
    "asyncio": program(ASYNCIO),
    "vector environment": program(VECTOR_ENVIRONMENT),
    "copies": Row(COPIES),
    "psutil": Row(ABOUT_ITSELF),
    "psutil in a child": Row(
        ABOUT_ITS_CHILD, files=(("about.py", ABOUT_ITSELF),), needs_world=True
    ),
    "matplotlib": Row(PLOT),
    "numba": program(NUMBA),
    "torch.compile": program(COMPILED),
    "SQLite": Row(SQLITE),
    "a server of its own": Row(LOCAL_SERVER, needs_world=True),
}
SLOW = {
    "torch.compile",
    "init_process_group",
    "accelerate launch",
    "vector environment",
    "Manager, spawn",
}
BY_CHANCE = {"joblib": "its workers read /proc/self after a second, and may have ended by then"}
"""Programs that sometimes work without namespaces."""
NEEDS = {"accelerate launch": "accelerate", "joblib": "joblib", "numba": "numba"}
NEEDS |= {"uv run": "uv", "uv run, no project": "uv"}
NEEDS |= {"vector environment": "gymnasium"}

pytestmark = pytest.mark.skipif(HERE.landlock_abi < 3, reason="no sandbox here")


@pytest.fixture(scope="module", params=["world", "no namespaces"])
def executor(request: pytest.FixtureRequest) -> Iterator[LocalExecutor]:
    if request.param == "world" and not HERE.world:
        pytest.skip("this machine allows no namespaces")
    layers = replace(HERE, world=request.param == "world")
    with LocalExecutor(entry=COMMAND_ENTRY, layers=layers) as executor:
        yield executor


def has_world(executor: LocalExecutor) -> bool:
    return "no namespaces" not in executor.describe()


def ran(executor: LocalExecutor, place: Path, row: Row, **fields: Any) -> Measured | TrialFailed:
    directory = script(place / "own", row.text)
    if row.words[0].endswith(("uv", "bash")) and "--no-project" not in row.words:
        venv.create(directory / ".venv", symlinks=True)
    for name, text in row.files:
        script((directory / name).parent, text, Path(name).name)
    given = {"argv": row.words, "directory": str(directory), "shared_memory": True}
    told = command(**given, **dict(row.fields), **fields)
    trial = place / "campaign" / "trials" / "t000001"
    waits_in_vain = row.needs_world and not has_world(executor)  # torchrun would, for a minute
    wall_s = 10.0 if waits_in_vain else PATIENT_S
    spec = command_spec(command=told, wall_s=wall_s, compile_cache=str(place / "campaign/compiled"))
    return executor.run(spec, trial).result


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=pytest.mark.slow) if n in SLOW else n for n in ROWS]
)
def test_what_people_start(executor: LocalExecutor, tmp_path: Path, name: str) -> None:
    if name in NEEDS:
        pytest.importorskip(NEEDS[name])
    if name in BY_CHANCE and not has_world(executor):
        pytest.skip(BY_CHANCE[name])
    result = ran(executor, tmp_path, ROWS[name])
    if ROWS[name].needs_world and not has_world(executor):
        assert isinstance(result, TrialFailed), "it works now: say so in docs/sandbox.md"
        assert result.status in {"crash", "timeout", "no_score"}
        return
    log = (tmp_path / "campaign/trials/t000001/trainer.log").read_text()
    assert isinstance(result, CommandOk), f"{result}\n{log}"
    assert result.score == 0.5


def test_caches_of_models_are_read(executor: LocalExecutor, tmp_path: Path) -> None:
    """A menu names the caches, and the variables by which libraries find them."""
    torch = pytest.importorskip("torch")
    hub, weights = tmp_path / "cache/huggingface/hub", tmp_path / "cache/torch"
    model = hub / "models--some--model"
    commit = "0" * 40
    script(model / "refs", commit, "main")
    script(model / "blobs", "0.25", "abc")
    (model / "snapshots" / commit).mkdir(parents=True)
    (model / "snapshots" / commit / "weights.txt").symlink_to("../../blobs/abc")
    (weights / "hub/checkpoints").mkdir(parents=True)
    torch.save({"x": torch.tensor(0.25)}, weights / "hub/checkpoints/w.pt")
    env = {"HF_HUB_CACHE": str(hub), "HF_HUB_OFFLINE": "1", "TORCH_HOME": str(weights)}
    fields = {"reads": (str(hub), str(weights)), "env": tuple(env.items())}
    result = ran(executor, tmp_path, Row(HUB), **fields)
    assert isinstance(result, CommandOk), result
    assert result.score == 0.5
