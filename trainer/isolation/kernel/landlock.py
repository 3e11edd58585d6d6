"""Build the Landlock ruleset of a trial: which files it may read, and which it may write.

Rights that this kernel's Landlock lacks are omitted; :mod:`trainer.isolation.kernel.sandbox` lists
what stays open. Source: https://docs.kernel.org/userspace-api/landlock.html

A trial on a GPU also gets the files that CUDA's driver library uses when it starts, and no others
(:func:`_of_the_machine`). libcuda is closed; this is what others observed under confinement:

* it names its threads by writing ``/proc/self/task/<tid>/comm`` (driver 570 and newer), and treats
  a refusal as a broken system: ``cuInit`` returns 304 (github.com/NVIDIA/OpenShell, pull request
  710; github.com/nolabs-ai/nono, pull request 673; on a GB10 github.com/NVIDIA/NemoClaw, issue
  4016);
* it reads ``/proc/driver/nvidia`` and ``/proc/driver/nvidia-uvm`` (the same), ``/proc/devices``,
  ``/proc/modules``, ``/proc/sys/vm/mmap_min_addr`` and the size of a memory block in /sys (the
  ``cuda-support`` interface of github.com/canonical/snapd);
* it opens and controls device nodes, ``nvidia-uvm-tools`` among them;
* it makes memory files (NVIDIA/OpenShell, issue 1696: 304 without) and listens on an abstract Unix
  socket ``@cuda-uvmfd-…`` (snapd again), which :mod:`trainer.isolation.kernel.seccomp` must
  allow.

A rule holds for a directory and all below, so the names of threads cannot be opened alone: what
else ``/proc/self/task`` has (memory, the preference for the out-of-memory killer, the attributes of
security modules) is the trial's own, and the kernel's own checks still apply to it. The rule does
not hold for a process that the trial starts, which has another directory. So a command with a world
of its own (:mod:`trainer.isolation.kernel.world`) gets all of that world's /proc, and another
command is what the confined process becomes.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from landlockpy import AccessFS, AccessNet, Ruleset, Scope, fs_for_abi, net_for_abi

from autoresearch.code import package_root
from autoresearch.errors import SandboxError
from trainer.command.workspace import Reach
from trainer.isolation.kernel import world
from trainer.schema import TrialSpec

_READ = AccessFS.READ_FILE | AccessFS.READ_DIR
_RUN = _READ | AccessFS.EXECUTE
_WRITE = AccessFS.READ_FILE | AccessFS.WRITE_FILE | AccessFS.TRUNCATE
_OWN = _READ | _WRITE | AccessFS.MAKE_REG | AccessFS.MAKE_DIR | AccessFS.MAKE_SYM
_OWN |= AccessFS.REMOVE_FILE | AccessFS.REMOVE_DIR | AccessFS.REFER
_IN_A_WORLD = _OWN | AccessFS.EXECUTE | AccessFS.MAKE_SOCK | AccessFS.MAKE_FIFO
_IN_A_WORLD |= AccessFS.RESOLVE_UNIX
_FOR_DIRECTORIES = _IN_A_WORLD & ~_WRITE & ~AccessFS.EXECUTE | AccessFS.READ_DIR

_SYSTEM = tuple("/usr /lib /lib32 /lib64 /bin /sbin /nix/store".split())
_READABLE = tuple(
    # libraries, users, time zone
    "/etc/ld.so.cache /etc/ld.so.conf /etc/ld.so.conf.d /etc/ld.so.preload /etc/localtime"
    " /etc/nsswitch.conf /etc/passwd /etc/group /etc/alternatives /etc/os-release /etc/nvidia"
    " /etc/ssl/openssl.cnf /etc/pki/tls/openssl.cnf /etc/crypto-policies"
    " /etc/host.conf /etc/services /etc/protocols /etc/mime.types /etc/fonts /etc/ssl/certs"
    # facts about the machine
    " /proc/cpuinfo /proc/meminfo /proc/stat /proc/loadavg /proc/uptime /proc/version"
    " /proc/filesystems /proc/devices"
    " /proc/sys/vm/overcommit_memory /proc/sys/kernel/osrelease /sys/devices/system/cpu"
    " /sys/devices/system/node /sys/fs/cgroup /sys/kernel/mm/transparent_hugepage"
    " /dev/zero /dev/full /dev/urandom /dev/random".split()
)
_OF_ITSELF = (
    "auxv cgroup cmdline environ fd limits maps mountinfo mounts smaps smaps_rollup stat statm"
    " status".split()
)
"""Entries of /proc/self that a trial on a CPU may read. ``net`` is excluded because it lists the
whole machine's connections, and ``task``, except for its names, because it contains ``net`` for
each thread."""
_KERNEL = ("/proc/modules", "/proc/sys/vm/mmap_min_addr", "/sys")
_DRIVER_FILES = "proc/driver/nvidia*"
_DEVICES = ("nvidia*", "nvhost*", "nvmap", "nvgpu", "dxg", "dri")
"""Paths that CUDA's driver library reads, and nodes that it opens, maps and controls."""


@dataclass(frozen=True, slots=True)
class SystemPaths:
    """Paths that every trial may read on this machine."""

    programs: tuple[Path, ...]
    """Python, its packages and the system's libraries."""
    imports: tuple[Path, ...]
    """Other directories from which code may be imported."""
    others: tuple[Path, ...]
    root: Path
    """Root above /proc/driver and /dev, where the files of a GPU's driver are."""

    @classmethod
    def find(cls, library_path: str, root: Path = Path("/")) -> SystemPaths:
        """Return the paths of this machine and this Python.

        :param library_path: LD_LIBRARY_PATH.
        :param root: where the GPU driver's files are searched.
        """
        code = (package_root() / name for name in ("autoresearch", "trainer"))
        prefixes = {sys.prefix, sys.base_prefix, sys.exec_prefix, sys.base_exec_prefix}
        parts = ("bin", "lib", "lib64", "include", "pyvenv.cfg")
        python = (Path(prefix, name) for prefix in prefixes for name in parts)
        return cls(
            programs=_outermost((*code, *map(Path, _SYSTEM), *python)),
            imports=_outermost(_import_paths(library_path.split(":"))),
            others=tuple(path for path in map(Path, _READABLE) if path.exists()),
            root=root,
        )


Grants: TypeAlias = list[tuple[Path, AccessFS]]
"""Paths and what may be done with each, and below it."""


def grants(
    paths: SystemPaths,
    spec: TrialSpec,
    trial_dir: Path,
    reach: Reach | None,
    *,
    heldout: bool = True,
    in_world: bool = False,
) -> Grants:
    """Return what ``spec`` needs and its own ``trial_dir``, which is free of links.

    :param heldout: whether the texts that are scored are among it.
    :param in_world: whether a command in a world of its own is granted this.
    :raises SandboxError: if the trial lies inside what all trials may read, or the compile cache
        would open more than itself.
    """
    own = _IN_A_WORLD if in_world else _OWN
    granted = [*_of_the_machine(paths, spec, trial_dir, in_world=in_world)]
    granted += _of_the_spec(spec, trial_dir, reach, heldout=heldout)
    if spec.code_cache is not None:
        granted.append((_cache_apart(spec, spec.code_cache, trial_dir, paths), own))
    return [*granted, (trial_dir, own)]


def restrict(granted: Grants, abi: int, *, is_reader: bool = False, network: bool = False) -> None:
    """Close everything to this process but what is granted. Sets no_new_privs too.

    :param abi: the Landlock version whose rights are used, if the kernel has them.
    :param is_reader: whether this process ends another that is confined by itself.
    :param network: whether TCP is not refused: that of a network of its own.
    :raises OSError: if the kernel refuses.
    """
    scoped = Scope.ABSTRACT_UNIX_SOCKET | Scope.SIGNAL if abi >= 6 else Scope.NONE
    if is_reader:
        scoped &= ~Scope.SIGNAL
    tcp = AccessNet.NONE if network else net_for_abi(abi)
    with Ruleset(handled_fs=fs_for_abi(abi), handled_net=tcp, scoped=scoped) as ruleset:
        for path, access in granted:
            _allow(ruleset, path, access)
        ruleset.restrict()


def _of_the_machine(
    paths: SystemPaths, spec: TrialSpec, trial_dir: Path, *, in_world: bool
) -> Iterator[tuple[Path, AccessFS]]:
    """Yield what every trial may use of this machine, of its own process, and of a GPU's driver."""
    on_gpu = spec.device.startswith("cuda")
    yield from ((_beside(trial_dir, path), _RUN) for path in paths.programs)
    yield from ((path, _RUN) for path in paths.imports if not trial_dir.is_relative_to(path))
    yield from ((path, _READ) for path in paths.others)
    yield Path(os.devnull), _WRITE
    if in_world:
        yield from ((path, _IN_A_WORLD) for path in world.OWN)
        yield from ((world.HOSTS, _READ), (world.PROCESSES, _READ | _WRITE))
        yield world.ROOT, AccessFS.READ_DIR  # nothing else has a name there
    else:
        yield from _of_itself(on_gpu=on_gpu)
    if on_gpu:
        # Searched for each trial: the first process that uses a GPU after a boot may create its
        # device nodes.
        readable = (*map(Path, _KERNEL), *paths.root.glob(_DRIVER_FILES))
        yield from ((path, _READ) for path in readable)
        for pattern in _DEVICES:
            nodes = (paths.root / "dev").glob(pattern)
            yield from ((node, _READ | _WRITE | AccessFS.IOCTL_DEV) for node in nodes)


def _of_itself(*, on_gpu: bool) -> Iterator[tuple[Path, AccessFS]]:
    """Yield what a process may read about itself where /proc is the machine's."""
    process = Path("/proc/self")
    if on_gpu:
        yield process, _READ
        yield process / "task", _READ | _WRITE  # the names of its threads
        return
    yield from ((process / name, _READ) for name in _OF_ITSELF)
    yield process / "task", AccessFS.READ_DIR


def _allow(ruleset: Ruleset, path: Path, access: AccessFS) -> None:
    if path.is_relative_to(world.PROCESSES / "self"):
        # Entries of /proc are created on lookup and dropped when memory is short. A recreated one
        # is another inode, which no rule covers. So it stays open, though not for reading, while
        # this process lives, whatever program it becomes.
        with contextlib.suppress(OSError):  # it does not exist
            os.set_inheritable(os.open(path, os.O_PATH | os.O_CLOEXEC), True)
    if os.path.isdir(path):  # noqa: PTH112 (false, too, where a user namespace closes a home)
        ruleset.allow_path(path, access)
    elif os.path.exists(path):  # noqa: PTH110
        ruleset.allow_path(path, access & ~_FOR_DIRECTORIES)


def _of_the_spec(
    spec: TrialSpec, trial_dir: Path, reach: Reach | None, *, heldout: bool
) -> Iterator[tuple[Path, AccessFS]]:
    """Yield what this trial reads: its texts, or a command's script and its menu's paths."""
    if reach is None and not heldout:
        from trainer.corpus.store import META, TOKENIZER, TRAIN  # noqa: PLC0415 (numpy)

        corpus = _beside(trial_dir, Path(spec.corpus_dir).resolve())
        yield from ((corpus / name, AccessFS.READ_FILE) for name in (META, TRAIN, TOKENIZER))
        return
    if reach is None:
        for text in (spec.corpus_dir, *(text.path for text in spec.texts)):
            yield _beside(trial_dir, Path(text).resolve()), _READ
        return
    yield reach.listed, AccessFS.READ_DIR
    yield from ((path, _RUN) for path in (*reach.granted, *reach.declared))
    if reach.shared_memory is not None:
        files = AccessFS.MAKE_REG | AccessFS.REMOVE_FILE
        yield reach.shared_memory, _READ | _WRITE | files
    yield from ((_beside(trial_dir, path), _RUN) for path in reach.programs)


def _cache_apart(spec: TrialSpec, code_cache: str, trial_dir: Path, paths: SystemPaths) -> Path:
    """Return the compile cache, which must not lie in or contain the corpus or code that outside
    processes run, nor contain trials or imported code."""
    cache, corpus = Path(code_cache).resolve(), Path(spec.corpus_dir).resolve()
    around = (corpus, *paths.programs)
    near = [path for path in around if cache.is_relative_to(path)]
    near += [path for path in (trial_dir, *around, *paths.imports) if path.is_relative_to(cache)]
    if near:
        raise SandboxError(
            f"the compile cache {cache}, which every trial may write, is not apart from {near[0]};"
            " give it a directory of its own"
        )
    return cache


def _beside(trial_dir: Path, readable: Path) -> Path:
    """Return ``readable``, which must not contain the trial: otherwise other trials could be read
    too."""
    if trial_dir.is_relative_to(readable):
        raise SandboxError(
            f"the trial directory {trial_dir} lies inside {readable}, which every trial can read;"
            " put the campaign elsewhere"
        )
    return readable


def _import_paths(libraries: list[str]) -> Iterator[Path]:
    """Yield /opt, and the paths of sys.path and the library path.

    A checkout that this package is imported from is excluded, and so is any directory that contains
    the home: it holds more than code.
    """
    home = None
    with contextlib.suppress(RuntimeError):  # a container's user id without an account
        home = Path.home().resolve()
    for name in ("/opt", *sys.path, *libraries):
        path = Path(name).resolve()
        checkout = path == package_root() and path.name not in {"site-packages", "dist-packages"}
        if name and not checkout and not (home is not None and home.is_relative_to(path)):
            yield path


def _outermost(paths: Iterable[Path]) -> tuple[Path, ...]:
    """Return the existing paths that do not lie inside another."""
    kept: list[Path] = []
    for path in sorted({path.resolve() for path in paths if path.exists()}):
        if not (kept and path.is_relative_to(kept[-1])):
            kept.append(path)
    return tuple(kept)
