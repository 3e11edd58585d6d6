"""Provide a container engine for one test: Debian's buildah and podman with their own storage.

These workarounds for missing features of a machine do not change what is tested:

- no right to raise resource limits: containers get this process's own;
- both versions of control groups at once, with which crun starts nothing: the engine runs in a
  mount namespace where the second version's are hidden, and the first's limit memory;
- a registry behind a certificate of its own: builds see the machine's certificates.
"""

import json
import os
import re
import resource
import shlex
import shutil
import subprocess
import sys
import tarfile
import urllib.request
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import Any

import pytest

DEBIAN = "buildah podman debootstrap crun netavark aardvark-dns catatonit iptables".split()
PROGRAMS = {
    "buildah": ("/usr/bin/buildah",),
    "podman": ("/usr/bin/podman",),
    "debootstrap": ("/usr/sbin/debootstrap",),
    "crun": ("/usr/bin/crun",),
    "netavark": ("/usr/lib/podman/netavark", "/usr/libexec/podman/netavark"),
    "aardvark-dns": ("/usr/lib/podman/aardvark-dns", "/usr/libexec/podman/aardvark-dns"),
    "catatonit": ("/usr/bin/catatonit", "/usr/libexec/podman/catatonit"),
    "iptables": ("/usr/sbin/iptables",),
}
ROOM_GB = 32
"""Upper bound in GB on the images and the files they are made of, with some margin."""
CAN = """
iptables --wait --new-chain trial
cd "$1" && mkdir -p trial/lower trial/upper trial/work
mount -t overlay overlay -o lowerdir=trial/lower,upperdir=trial/upper,workdir=trial/work trial
umount trial && rm -r trial
"""
HYBRID = Path("/sys/fs/cgroup/unified")
CERTIFICATES = Path("/etc/ssl/certs")
SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
TOKEN = "not-a-secret-but-thirty-two-long"


def page(path: str = "/", token: str | None = TOKEN) -> str:
    """Return a page of the service that a container publishes here."""
    headers = {} if token is None else {"Authorization": f"Bearer {token}"}
    request = urllib.request.Request(f"http://127.0.0.1:8765{path}", headers=headers)
    with urllib.request.urlopen(request, timeout=20) as answer:
        text: str = answer.read().decode()
        return text


def why_not(directory: Path) -> str | None:
    """Return why no container can be built and run in ``directory``, or None."""
    if os.geteuid() != 0:
        return "containers are built and run as root only"
    missing = [name for name, at in PROGRAMS.items() if not any(Path(p).exists() for p in at)]
    if missing:
        return f"{', '.join(missing)} not installed (Debian: apt-get install {' '.join(DEBIAN)})"
    if shutil.which("podman-compose", path=str(Path(sys.executable).parent)) is None:
        return "podman-compose is not installed (pip install podman-compose)"
    room_gb = shutil.disk_usage(directory).free / 1e9
    if room_gb < ROOM_GB:
        return f"{directory} has {room_gb:.0f} GB free, and {ROOM_GB} GB are needed"
    return _kernel_refusal(directory)


def _kernel_refusal(directory: Path) -> str | None:
    """Return what root may not do here, as in most containers: mounts, networks, firewall rules."""
    alone = ["unshare", "--mount", "--net", "--propagation=private"]
    tried = subprocess.run(
        [*alone, "sh", "-euc", CAN, "sh", directory], capture_output=True, text=True, check=False
    )
    if tried.returncode != 0:
        return f"root may not make containers here: {tried.stderr.strip()[-300:]}"
    return None


class Engine:
    """Hold images and containers under one directory, and run the commands that work on them."""

    def __init__(self, directory: Path) -> None:
        """:param directory: empty, on a file system with ``ROOM_GB``; ``close`` removes it."""
        self.directory = directory
        self._environment = {
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "HOME": str(directory),
            "CONTAINERS_CONF": str(directory / "containers.conf"),
            "CONTAINERS_STORAGE_CONF": str(directory / "storage.conf"),
            "BUILDAH_ISOLATION": "chroot",
        }
        limits = [
            f'"{name}={hard}:{hard}"'
            for name, hard in (
                ("nofile", resource.getrlimit(resource.RLIMIT_NOFILE)[1]),
                ("nproc", min(resource.getrlimit(resource.RLIMIT_NPROC)[1], 4096)),
            )
        ]
        (directory / "containers.conf").write_text(
            f"[containers]\ndefault_ulimits = [{', '.join(limits)}]\n"
            '[engine]\ncgroup_manager = "cgroupfs"\nevents_logger = "file"\n'
            '[network]\nnetwork_backend = "netavark"\n'
            f'network_config_dir = "{directory}/networks"\n'
        )
        (directory / "storage.conf").write_text(
            f'[storage]\ndriver = "overlay"\ngraphroot = "{directory}/images"\n'
            f'runroot = "{directory}/run"\n'
        )
        hide = f"umount {HYBRID}; " if HYBRID.is_mount() else ""
        self._rules = _rules()
        # It ends when the test process does.
        alone = ["setpriv", "--pdeathsig=KILL", "unshare", "--mount", "--propagation=private"]
        self._namespace = subprocess.Popen(
            [*alone, "sh", "-ec", f"{hide}echo; exec sleep infinity"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
        )
        assert self._namespace.stdout is not None
        self._namespace.stdout.readline()

    def __call__(
        self, *command: str | Path, timeout_s: float = 3600, check: bool = True, **variables: str
    ) -> subprocess.CompletedProcess[str]:
        """Run ``command`` with the engine's storage; ``variables`` are its environment's too."""
        done = subprocess.run(
            ["nsenter", f"--target={self._namespace.pid}", "--mount", "--", *map(str, command)],
            env={**self._environment, **variables},
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=False,
        )
        if check and done.returncode != 0:
            raise AssertionError(
                f"{' '.join(map(str, command[:4]))} … ended with {done.returncode}:\n"
                f"{done.stdout[-3000:]}\n{done.stderr[-3000:]}"
            )
        return done

    def close(self) -> None:
        """Remove every container and image, the networks' rules and the directory."""
        try:
            self("podman", "rm", "--all", "--force", "--time=2", check=False)
            self("podman", "volume", "prune", "--force", check=False)
            self("podman", "network", "prune", "--force", check=False)
            self("podman", "rmi", "--all", "--force", check=False)
        finally:
            self._namespace.kill()
            self._namespace.communicate()
            _forget(_rules() - self._rules)
            shutil.rmtree(self.directory)

    def build(self, context: Path, tag: str, base: str) -> None:
        """Build ``context``'s Dockerfile on the image ``base``."""
        self(
            *("buildah", "build", "--network=host", f"--build-arg=BASE={base}", f"--tag={tag}"),
            *(f"--volume={CERTIFICATES}:{CERTIFICATES}:ro", context),
            timeout_s=1800,
        )

    def load(self, root: Path, tag: str, path: str) -> None:
        """Make an image of the file system in ``root``, its PATH variable ``path``."""
        archive = self.directory / "root.tar"
        with tarfile.open(archive, "w") as tar:
            tar.add(root, arcname=".")
        self("podman", "import", f"--change=ENV PATH={path}", archive, tag)
        archive.unlink()

    def inspect(self, container: str) -> Any:
        """Return podman's description of a container."""
        return json.loads(self("podman", "inspect", container).stdout)[0]


def _rules() -> set[tuple[str, str]]:
    """Return the rules and chains of Debian's netavark, which leaves some behind."""
    found = set()
    for table in ("filter", "nat"):
        command = ["iptables", "--wait", "--table", table, "--list-rules"]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        found |= {(table, line) for line in done.stdout.splitlines() if "NETAVARK" in line}
    return found


def _forget(rules: set[tuple[str, str]]) -> None:
    """Delete ``rules``, and then the chains among them."""
    for table, line in sorted(rules):  # -A before -N
        command = line.replace("-A ", "-D ", 1).replace("-N ", "-X ", 1)
        subprocess.run(["iptables", "--wait", "--table", table, *shlex.split(command)], check=True)


def debootstrap(root: Path, packages: str) -> None:
    """Install Debian bookworm with ``packages`` into ``root``, or skip the test."""
    include = f"--include={','.join(packages.split())}"
    done = subprocess.run(
        ["debootstrap", "--variant=minbase", include, "bookworm", str(root)],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        pytest.skip(f"debootstrap cannot make a base: {(done.stdout or done.stderr)[-300:]}")


def debian(root: Path) -> None:
    """Install Debian with its Python, marked as managed by Debian alone, into ``root``.

    Skip the test if Debian's packages cannot be reached, or if their Python differs in version from
    this one, whose torch it receives.
    """
    debootstrap(root, "python3 python3-venv python3-pip ca-certificates curl libgomp1")
    here = f"python{sys.version_info.major}.{sys.version_info.minor}"
    if not (root / "usr" / "bin" / here).exists():
        pytest.skip(f"Debian bookworm has no {here}, for which this torch is built")
    assert (root / "usr" / "lib" / here / "EXTERNALLY-MANAGED").exists()


def give(target: Path, *names: str) -> None:
    """Copy installed distributions and all their dependencies into the site-packages ``target``."""
    wanted, seen = list(names), set()
    while wanted:
        name = re.split(r"[^A-Za-z0-9._-]", wanted.pop())[0].lower()
        if name in seen:
            continue
        seen.add(name)
        try:
            found = distribution(name)
        except PackageNotFoundError:  # an optional dependency that this environment lacks
            continue
        for file in found.files or []:
            if ".." in file.parts or "__pycache__" in file.parts:
                continue
            copy = target / file
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(str(file.locate()), copy)
        wanted += [need for need in found.requires or [] if "extra ==" not in need]
