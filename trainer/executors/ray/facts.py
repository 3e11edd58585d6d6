"""Find the facts about this machine that decide whether trials can run on it."""

from __future__ import annotations

import os
import platform
import shutil
import socket
import tempfile
import time
from pathlib import Path

from autoresearch.code import code_identity, installed_version
from autoresearch.errors import MachineryError
from trainer.executors.ray.needs import Needs
from trainer.executors.ray.values import NodeFacts
from trainer.isolation.kernel.sandbox import Layers
from trainer.machine.environment import cache_folder
from trainer.machine.host_memory import available_gib
from trainer.machine.name import cpu_name

_GIB = 1 << 30
_LINE_CHARACTERS = 500
_MONITOR = b"RAY_memory_monitor_refresh_ms="


def node_directory(chosen: str | None) -> Path:
    """Return the directory for running trials on a node: the chosen one, or its cache folder.

    :raises MachineryError: if there is none.
    """
    try:
        return Path(chosen) if chosen else cache_folder() / "node"
    except RuntimeError as error:
        raise MachineryError(
            f"the user of Ray on {socket.gethostname()} has no home directory to keep trials in;"
            " start Ray there with AUTORESEARCH_DATA_DIR or HOME set"
        ) from error


def find_facts(directory: Path, needs: Needs | None = None) -> NodeFacts:
    """Return the facts about this machine.

    :param directory: the directory for running trials.
    :param needs: the needs of the command that will train here, if any.
    """
    layers = Layers.detect()
    refused, free_gib = _disk(directory)
    return NodeFacts(
        host=socket.gethostname(),
        code=code_identity(),
        python=platform.python_version(),
        torch=installed_version("torch"),
        cpu=cpu_name(),
        gpus=_gpus(),
        cores=len(os.sched_getaffinity(0)),
        memory_gib=_memory_gib(),
        confines=layers.confine,
        sandbox=layers.describe(),
        directory=str(directory),
        disk=refused,
        free_gib=free_gib,
        clock_s=time.time(),
        lacks="" if needs is None else needs.lacking()[:_LINE_CHARACTERS],
        memory_monitor=_memory_monitor(),
    )


def _gpus() -> tuple[str, ...]:
    """Return the names of all GPUs that NVML shows; CUDA_VISIBLE_DEVICES selects a lane's."""
    import pynvml  # noqa: PLC0415 (useless on a CPU)

    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return ()
    try:
        handles = map(pynvml.nvmlDeviceGetHandleByIndex, range(pynvml.nvmlDeviceGetCount()))
        return tuple(str(pynvml.nvmlDeviceGetName(handle)) for handle in handles)
    except pynvml.NVMLError:
        return ()
    finally:
        pynvml.nvmlShutdown()


def _memory_gib() -> float:
    try:
        return available_gib()
    except MachineryError:
        return 0.0


def _disk(directory: Path) -> tuple[str, float]:
    """Return why nothing can be written there, empty if it can; and the free GiB."""
    try:
        directory.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=directory) as file:
            file.write(b"x")
        return "", shutil.disk_usage(directory).free / _GIB
    except OSError as error:
        return f"{error.strerror}", 0.0


def _memory_monitor() -> str:
    """Return the memory monitor's variable in the environment of this process's parent.

    The parent of a Ray worker is the node's raylet.
    """
    try:
        variables = Path(f"/proc/{os.getppid()}/environ").read_bytes().split(b"\0")
    except OSError:
        return ""
    return next((line.decode() for line in variables if line.startswith(_MONITOR)), "")
