"""Simulate a machine with an idle GPU driver: its library, device nodes and /proc/driver."""

import os
import shutil
import stat
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch

SOURCE = Path(__file__).with_name("stub_libcuda.c")
NODES = "nvidiactl nvidia0 nvidia-uvm nvidia-uvm-tools nvidia-caps/nvidia-cap1".split()

HAS_CUDA = torch.version.cuda is not None
"""Whether torch here is a build with CUDA, the package indexes' build for most machines."""
STARTED = "the CUDA driver starts, but torch " if HAS_CUDA else "is a build without CUDA"
"""The message once the library starts: no torch gets further with it."""


def build_stub(folder: Path) -> Path:
    """Compile the stub as libcuda.so.1 with the system's C compiler, and return the folder."""
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        pytest.skip("no C compiler to build the stand-in for libcuda with")
    command = [compiler, "-O1", "-shared", "-fPIC", "-pthread", "-o", folder / "libcuda.so.1"]
    subprocess.run([*command, SOURCE], check=True)
    return folder


@dataclass(frozen=True)
class StubMachine:
    """Hold the machine's places. ``root`` replaces / for the driver's files."""

    library: Path
    root: Path

    def environ(self, **told: str) -> dict[str, str]:
        """Return this process's environment with the stub found first. ``told`` configures the
        stub; the names are without their prefix CUDA_STUB_."""
        stub = {f"CUDA_STUB_{name.upper()}": value for name, value in told.items()}
        library_path = {"LD_LIBRARY_PATH": str(self.library)}
        return {**os.environ, **library_path, "CUDA_STUB_ROOT": str(self.root), **stub}


def make_machine(library: Path, root: Path) -> StubMachine:
    """Create nodes that can be opened, mapped and controlled, and the files of /proc/driver."""
    for name in NODES:
        node = root / "dev" / name
        node.parent.mkdir(parents=True, exist_ok=True)
        try:
            os.mknod(node, stat.S_IFCHR | 0o666, os.makedev(1, 5))  # like /dev/zero
            node.open("rb").close()
        except OSError:  # not root, or a file system without devices
            node.unlink(missing_ok=True)
            node.write_bytes(bytes(4096))
    for name in ("nvidia/params", "nvidia/capabilities/mig/config", "nvidia-uvm/gpus"):
        file = root / "proc" / "driver" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("")
    set_available(root, 64)
    return StubMachine(library, root)


def set_available(root: Path, gib: float) -> None:
    """Make the machine's /proc/meminfo report this much of 128 GiB as available."""
    meminfo = root / "proc" / "meminfo"
    meminfo.parent.mkdir(exist_ok=True)
    part = meminfo.with_suffix(".part")
    total_kib, available_kib = 128 << 20, int(gib * (1 << 20))
    part.write_text(
        f"MemTotal:       {total_kib} kB\nMemFree:        {available_kib // 2} kB\n"
        f"MemAvailable:   {available_kib} kB\nBuffers:          4096 kB\n"
    )
    part.replace(meminfo)
