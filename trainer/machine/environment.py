"""Select the environment of a trial's process: an allowlist without anything that looks secret."""

import os
import re
from collections.abc import Mapping
from itertools import takewhile
from pathlib import Path

from autoresearch.errors import SettingsError

PASSED_VARIABLES = frozenset(
    "PATH LANG LANGUAGE TZ LD_LIBRARY_PATH PYTHONPATH PYTHONHOME PYTHONUSERBASE".split()
)
"""Names passed on to the trial's process."""
PASSED_PREFIXES = tuple(
    "LC_ CUDA_ CUDNN_ CUBLAS_ NVIDIA_ NVTE_ OMP_ GOMP_ KMP_ MKL_ OPENBLAS_ PYTORCH_ TORCH_"
    " TRITON_".split()
)
"""Prefixes of names passed on to the trial's process."""
SECRET_WORDS = tuple("KEY TOKEN SECRET PASS CRED AUTH COOKIE BEARER PRIVATE".split())
"""Never passed on if the name contains one (NVIDIA_API_KEY begins like a device setting)."""
SECRET_PARTS = frozenset("PWD PW PAT JWT OTP PIN PSK SAS SID CERT DSN".split())
"""Never passed on if one stands alone between underscores: CUDA_PAT, but not CUDA_PATH."""
_BINDING = frozenset("OMP_PROC_BIND OMP_PLACES GOMP_CPU_AFFINITY".split())
"""Excluded because a trial's threads may not set each other's processors
(:mod:`trainer.isolation.kernel.seccomp`), and libgomp ends the process if it is set to and
cannot."""
_VISIBLE = "CUDA_VISIBLE_DEVICES"
_A_GPU = re.compile(r"\d+|(GPU|MIG)-.+")
_LIKE_A_TOKEN = re.compile(r"(?=[\w+=-]*[0-9])(?=[\w+=-]*[A-Za-z])[\w+=-]{12,}")
"""Matches letters and digits in a run that is longer than any device setting's word."""
_UUID_OF_A_GPU = re.compile(r"(GPU|MIG)-[0-9A-Fa-f-]+")
_ADDRESS_OF_A_USER = re.compile(r"://[^/\s]*@")

SPIN_COUNT = "10000"
"""Spins of an idle OpenMP thread before it sleeps. The default is so long that one busy neighbor
makes a trial ten times slower. On two cores a step of 25 ms took 24 ms (default) and 29 ms (this)
alone, 340 to 1,800 ms and 110 ms beside one busy process. A value in the environment takes
precedence."""


def allowed_environment(
    environ: Mapping[str, str] | None = None, *, also: tuple[str, ...] = ()
) -> dict[str, str]:
    """Return the part of ``environ`` that trials may see, with reproducible string hashing.

    :param environ: by default this process's environment.
    :param also: prefixes of further names to pass on.
    """
    kept = {
        name: value
        for name, value in (os.environ if environ is None else environ).items()
        if _is_passed(name, value, also) and name not in _BINDING and not may_be_secret(name, value)
    }
    defaults = {
        "PATH": os.defpath,
        "LANG": "C.UTF-8",
        "GOMP_SPINCOUNT": SPIN_COUNT,
        # Otherwise Inductor starts processes that need semaphores in /dev/shm, which trials may not
        # use.
        "TORCHINDUCTOR_COMPILE_THREADS": "1",
        # Otherwise importing Inductor asks the driver for devices in torch 2.11 and 2.12, and no
        # process forked after that can use CUDA.
        "TORCHINDUCTOR_USE_EXPERIMENTAL_BENCHMARKER": "0",
    }
    return {**defaults, **kept, "PYTHONHASHSEED": "0"}


def _is_passed(name: str, value: str, also: tuple[str, ...]) -> bool:
    """Return whether a variable is on the list, or begins like a device's setting and has a value
    like one: a path, numbers or words."""
    if name in PASSED_VARIABLES or (also and name.startswith(also)):
        return True
    if not name.startswith(PASSED_PREFIXES) or "API" in name.split("_"):
        return False
    is_path = value.startswith(("/", "~/", "./"))
    return is_path or not _LIKE_A_TOKEN.search(_UUID_OF_A_GPU.sub("", value))


def named_gpus() -> list[str] | None:
    """Return the GPUs that this process's environment lets CUDA see; None: all.

    CUDA sees those before the first invalid name, such as -1 (CUDA C++ Programming Guide, "CUDA
    Environment Variables").

    :raises SettingsError: if one is listed twice, because CUDA then sees none.
    """
    said = os.environ.get(_VISIBLE)
    if said is None:
        return None
    names = [name.strip() for name in said.split(",")]
    seen = list(takewhile(_A_GPU.fullmatch, names))
    for name in seen:
        if seen.count(name) > 1:
            raise SettingsError(
                f"{_VISIBLE} is {said!r}, which lists {name} twice; list each GPU once"
            )
    return seen


def with_gpu(name: str) -> dict[str, str]:
    """Return this process's environment with only this GPU visible to CUDA."""
    return {**os.environ, _VISIBLE: name}


def as_it_is() -> dict[str, str]:
    """Return all of this process's environment, which in a trial the allowlist has filtered."""
    return dict(os.environ)


def tell(name: str, value: str) -> None:
    """Set a variable for a library that this process is about to load, unless it is set."""
    os.environ.setdefault(name, value)


def cache_folder() -> Path:
    """Return the folder of prepared corpora: AUTORESEARCH_DATA_DIR, or the user's cache folder.

    :raises RuntimeError: if nothing is set and the user has no home.
    """
    chosen = os.environ.get("AUTORESEARCH_DATA_DIR")
    if chosen:
        return Path(chosen).expanduser().absolute()
    cache = os.environ.get("XDG_CACHE_HOME")
    is_usable = cache is not None and Path(cache).is_absolute()  # as the XDG specification says
    return (Path(cache) if cache and is_usable else Path.home() / ".cache") / "autoresearch"


def become(environ: Mapping[str, str]) -> None:
    """Replace this process's environment."""
    os.environ.clear()
    os.environ.update(environ)


def may_be_secret(name: str, value: str) -> bool:
    """Return whether a variable may hold a secret, by its name or by a value that is a URL with a
    user."""
    upper = name.upper()
    return (
        any(word in upper for word in SECRET_WORDS)
        or not SECRET_PARTS.isdisjoint(upper.split("_"))
        or _ADDRESS_OF_A_USER.search(value) is not None
    )
