"""Check whether this machine is ready. Each check says what it found and how to fix a fault."""

from __future__ import annotations

import math
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Literal

from agent.menu.files import load_menu
from agent.menu.rails import Rails
from agent.proposers.base import SearchView
from agent.session.own_trainer import OwnTrainer
from agent.settings.campaign import DEFAULT_MENU
from agent.settings.environment import Environment, data_dir
from autoresearch.errors import AutoresearchError, SettingsError, SpecError
from autoresearch.program import install_command
from trainer.executors.command_probe import probe_command
from trainer.executors.local import COMMAND_ENTRY, LocalExecutor
from trainer.isolation.kernel import world
from trainer.isolation.kernel.cgroup import Groups
from trainer.isolation.kernel.sandbox import Layers
from trainer.machine import cuda_driver
from trainer.machine.gpu import gpu_memory
from trainer.machine.host import LEAST_GIB, MEMINFO, lacking, memory_gib
from trainer.machine.megatron_packages import installed
from trainer.schema import Budget
from trajectory.evidence import Evidence

MIN_FREE_GIB = 0.25
"""Least free disk space to start with; 75 iterations of cpu-tiny took 4.4 MiB, its corpus 9 MiB."""
LOW_FREE_GIB = 2.0
"""Free disk space below which a note says so: trials that keep weights take more."""
MIN_TORCH = (2, 11)
SHARED_LIMIT = 0.8
"""Share of a memory that CPU and GPU share which all programs together may take, by NVIDIA's rule
for a DGX Spark."""
CACHE_SHARE = 0.25
"""Share of that memory above which a page cache is worth dropping: CUDA counts it as used."""
DROP_CACHES = "sync; echo 3 | sudo tee /proc/sys/vm/drop_caches"


@dataclass(frozen=True, slots=True)
class Check:
    """Result of one check. ``bad`` keeps a campaign from running, ``note`` does not."""

    name: str
    state: Literal["good", "note", "bad"]
    found: str
    """The finding and, unless it is good, what to do."""


WITHOUT_LANDLOCK = (
    "use Linux 5.13 or newer with landlock among its LSMs, or accept it with --allow-unsandboxed"
)
OWN_TEXT = Check("corpus", "good", "none needed: the menu's command brings its own data")


def examine(environment: Environment, directory: Path, menu: str | None = None) -> Iterator[Check]:
    """Yield each check as it is done.

    :param directory: where campaigns will be kept.
    :param menu: menu of a campaign to start, whose command is checked if it has one.
    """
    # First: without complete confinement of trials, the checks below must not run before this one.
    yield _sandbox()
    yield _world()
    python = ".".join(map(str, sys.version_info[:3]))
    yield Check("python", "good", f"{python} at {sys.executable}")
    trains_itself = False
    trainer = None
    if menu is not None:
        trains_itself, trainer = own_trainer(menu, directory)
    if trains_itself and find_spec("torch") is None:
        yield Check("torch", "note", "not installed; the menu's command needs none of ours")
    else:
        yield _torch()
        device = _device()
        yield device
        yield from shared_memory(environment.memory_reserve_gib) if device.state == "good" else ()
        yield from _engines()
    yield _journal_disk(directory)
    yield OWN_TEXT if trains_itself else _corpus()
    yield endpoint(environment)
    if trainer is not None:
        yield trainer
    if menu is not None and trainer is not None and trainer.state != "bad":
        yield from _cuda_in_commands(menu, directory)


def own_trainer(source: str, directory: Path) -> tuple[bool, Check]:
    """Return whether a menu has a command, and check whether it can run and what it may read."""
    has_command = False
    try:
        menu = load_menu(source)
        has_command = menu.trainer is not None
        own = OwnTrainer.of(source, menu, directory / menu.name)
    except AutoresearchError as error:
        return has_command, Check("trainer", "bad", f"{error}")
    if own is None:
        return False, Check("trainer", "good", f"menu {menu.name} uses the built-in trainer")
    found = (
        f"{' '.join(own.table.command)} in {own.script.directory}; reads {', '.join(own.reads())}; "
        "writes its own directory; no network"
    )
    if own.table.tells_seed:
        return True, Check("trainer", "good", found)
    found += "; it does not take {seed}, so all runs may be identical"
    return True, Check("trainer", "note", found)


def _torch() -> Check:
    try:
        import torch  # noqa: PLC0415 (whether it imports is what is checked)
    except (ImportError, OSError) as error:
        return Check("torch", "bad", f"does not import ({error}); run: {install_command('train')}")
    if tuple(int(part) for part in torch.__version__.split(".")[:2]) < MIN_TORCH:
        return Check("torch", "bad", f"{torch.__version__}; 2.11 or newer is needed")
    return Check("torch", "good", f"{torch.__version__}, {torch.get_num_threads()} threads")


def _device() -> Check:
    try:
        from trainer.training.cuda_probe import probe_cuda  # noqa: PLC0415 (torch)
    except (ImportError, OSError):
        return Check("device", "bad", "unknown without torch")
    if not cuda_driver.is_installed():
        return Check("device", "good", "no GPU; trials run on the CPU")
    probe = probe_cuda()
    if probe.works:
        return Check("device", "good", f"{probe.said} (--device cuda)")
    if probe.is_absent:
        return Check("device", "note", f"{probe.said}; without it trials run on the CPU")
    return Check("device", "bad", probe.said)


def shared_memory(
    reserve_gib: float, meminfo: Path = MEMINFO, *, is_shared: bool | None = None
) -> Iterator[Check]:
    """Yield whether trials fit beside other programs, if the GPU shares the machine's memory.

    :param is_shared: whether it does; None: find out.
    """
    if is_shared is None:
        try:
            is_shared = cuda_driver.is_installed() and gpu_memory("cuda").is_unified
        except SpecError:  # another check says why
            is_shared = False
    if not is_shared:
        return
    total_gib, left_gib, free_gib = (
        memory_gib(field, meminfo) for field in ("MemTotal", "MemAvailable", "MemFree")
    )
    used_gib, cache_gib = total_gib - left_gib, left_gib - free_gib
    trials_gib = min(SHARED_LIMIT * total_gib - used_gib, left_gib - reserve_gib)
    found = (
        f"{total_gib:.0f} GiB shared by CPU and GPU: other programs hold {used_gib:.0f}, the page "
        f"cache {cache_gib:.0f}; {max(trials_gib, 0):.0f} are left for trials within "
        f"{SHARED_LIMIT:g} of it"
    )
    fixes = []
    if left_gib - reserve_gib > SHARED_LIMIT * total_gib - used_gib:
        reserve = math.ceil(left_gib - trials_gib)
        fixes.append(f"set AUTORESEARCH_MEMORY_RESERVE_GIB to {reserve} to keep that share")
    if trials_gib < LEAST_GIB:
        fixes = ["stop other programs, or give the model server a smaller share"]
    if cache_gib > CACHE_SHARE * total_gib:
        fixes.append(f"drop caches (`{DROP_CACHES}`): CUDA counts them as used")
    yield Check("memory", "note" if fixes else "good", "; ".join([found, *fixes]))


def _engines() -> Iterator[Check]:
    """Yield checks of what a GPU trains with besides torch; none if torch does not import."""
    try:
        import torch  # noqa: PLC0415

        from trainer.training.cuda_probe import probe_megatron  # noqa: PLC0415 (torch)
    except (ImportError, OSError):
        return
    yield megatron(probe_megatron, "cuda" if torch.cuda.is_available() else "cpu")
    if not torch.cuda.is_available():
        return
    if missing := lacking():
        yield Check("compiler", "note", f"compiling needs {missing}; trials run without it")
    else:
        yield Check("compiler", "good", "Triton and a C compiler; trials can be compiled")


def megatron(probe: Callable[[str], str], device: str) -> Check:
    """Report whether the megatron backend's packages work together in a trial."""
    core, engine = installed("megatron-core"), installed("transformer-engine")
    if core is None:
        return Check("megatron", "note", "megatron-core is not installed; backend torch needs none")
    versions = f"megatron-core {core}, transformer-engine {engine or 'not installed'}"
    try:
        return Check("megatron", "good", f"{versions}: {probe(device)}")
    except AutoresearchError as error:
        return Check("megatron", "note", f"{versions}: {error}")


def _sandbox() -> Check:
    layers = Layers.detect()
    if not layers.confine:
        return Check(
            "sandbox",
            "bad",
            f"this kernel has no Landlock, so trials cannot be confined; {WITHOUT_LANDLOCK}",
        )
    state: Literal["good", "note"] = "good" if layers.landlock_abi >= 6 else "note"
    counted = (
        "one cgroup per trial"
        if Groups.offered() is not None
        else "no cgroup is delegated, so memory and threads are counted ten times a second"
    )
    return Check("sandbox", state, f"{layers.describe()}; {counted}")


def _world() -> Check:
    """Report whether trials of scripts get a world of their own, and what does not work without."""
    refusal = world.refusal()
    if not refusal:
        return Check("world", "good", "each trial of a script has namespaces of its own")
    return Check(
        "world",
        "note",
        f"trials of scripts get no namespaces ({refusal}): what needs sockets (torchrun, Manager,"
        " forkserver), CUDA in processes that the script starts, and /proc of those do not work"
        f" there; {_fix_for_namespaces()}",
    )


def _fix_for_namespaces() -> str:
    for setting, allowed in (
        ("kernel/apparmor_restrict_unprivileged_userns", "0"),
        ("kernel/unprivileged_userns_clone", "1"),
    ):
        path = Path("/proc/sys", setting)
        if path.exists() and path.read_text().strip() != allowed:
            return f"run: sudo sysctl {setting.replace('/', '.')}={allowed}"
    return (
        "allow user namespaces (sysctl user.max_user_namespaces), or start the container with"
        " --security-opt seccomp=unconfined --security-opt apparmor=unconfined --security-opt"
        " systempaths=unconfined"
    )


def _cuda_in_commands(source: str, directory: Path) -> Iterator[Check]:
    """Yield whether CUDA starts in trials of a menu's command, if this machine has a driver."""
    menu = load_menu(source)
    own = OwnTrainer.of(source, menu, directory / menu.name)
    if own is None or menu.campaign.device == "cpu" or not cuda_driver.is_installed():
        return
    try:
        with LocalExecutor(entry=COMMAND_ENTRY, allow_unsandboxed=True) as executor:
            probe = probe_command(executor, own.command, menu.campaign.device or "cuda")
    except AutoresearchError as error:
        yield Check("cuda", "bad", f"{error}")
        return
    yield Check("cuda", probe.state, probe.said)


def _journal_disk(directory: Path) -> Check:
    place = Path(os.path.realpath(directory))  # a file without a name is made behind no link
    while not place.exists():
        place = place.parent
    try:
        with tempfile.TemporaryFile(dir=place) as file:
            began = time.perf_counter()
            file.write(b"x")
            file.flush()
            os.fsync(file.fileno())
            fsync_ms = 1e3 * (time.perf_counter() - began)
    except OSError as error:
        return Check("disk", "bad", f"{place} cannot be written: {error.strerror}")
    free_gib = shutil.disk_usage(place).free / 2**30
    found = f"{free_gib:.1f} GiB free at {place}, fsync in {fsync_ms:.1f} ms"
    state = disk_state(free_gib)
    return Check("disk", state, found if state == "good" else f"{found}; free some space")


def disk_state(free_gib: float) -> Literal["good", "note", "bad"]:
    """Return how a check of a disk with this much free space ends."""
    if free_gib < MIN_FREE_GIB:
        return "bad"
    return "note" if free_gib < LOW_FREE_GIB else "good"


def _corpus() -> Check:
    folder = data_dir() / "corpora"
    prepared = sorted(path.parent.name for path in folder.glob("*/meta.json"))
    if prepared:
        return Check("corpus", "good", f"{len(prepared)} prepared in {folder}")
    return Check(
        "corpus",
        "note",
        f"none prepared in {folder} yet; the first loop prepares the embedded default",
    )


def endpoint(environment: Environment) -> Check:
    """Check whether the language model, if one is configured, makes a proposal that the loop would
    train."""
    if not (environment.proposer_command or environment.llm_base_url):
        return Check(
            "endpoint",
            "note",
            "AUTORESEARCH_LLM_BASE_URL is not set; only the sampler proposes",
        )
    # These load more slowly than most other checks take.
    from agent.proposers.choice import language_model  # noqa: PLC0415
    from agent.proposers.llm.prompt import Prompter  # noqa: PLC0415
    from agent.proposers.llm.proposer import LlmProposer  # noqa: PLC0415

    menu, budget = load_menu(DEFAULT_MENU), Budget()
    if not environment.proposer_command:
        # A person is waiting, so a server that fails gets the time of one request.
        one = {"llm_deadline_s": environment.llm_timeout_s}
        environment = environment.model_copy(update=one)
    view = SearchView(menu, menu.baseline, Evidence(), iter=1, seed=0, max_changes=1)
    rails = Rails(menu, budget=budget, max_changes=1)
    try:
        client = language_model(environment)
        offer = LlmProposer(client, rails, Prompter(budget)).propose(view)
    except SettingsError as error:
        return Check("endpoint", "bad", f"{error}")
    except AutoresearchError as error:
        return Check("endpoint", "note", f"{error}")
    context, reply = client.context, offer.record.attempts[-1]
    tokens, took_s, usd = reply.completion_tokens, reply.latency_s, reply.cost_usd
    speed = f" ({tokens / took_s:.1f} tokens/s)" if tokens and took_s > 0 else ""
    cost = "" if usd is None else f" for ${usd:.2g}"
    length = "context length not reported" if context is None else f"context {context:,} tokens"
    found = f"{client.where} serves {client.model}, mode {reply.mode}, {length}, "
    return Check("endpoint", "good", f"{found}a proposal in {took_s:.1f} s{speed}{cost}")
