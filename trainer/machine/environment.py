"""What of the environment a trial's process gets: an allowlist, and nothing that looks like a
secret."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from itertools import takewhile
from pathlib import Path

from autoresearch.errors import SettingsError

PASSED_VARIABLES = frozenset(
    "PATH LANG LANGUAGE TZ LD_LIBRARY_PATH PYTHONPATH PYTHONHOME PYTHONUSERBASE".split()
)
"""Handed on to the trial's process, by name."""
PASSED_PREFIXES = tuple(
    "LC_ CUDA_ CUDNN_ CUBLAS_ NVIDIA_ NVTE_ OMP_ GOMP_ KMP_ MKL_ OPENBLAS_ PYTORCH_ TORCH_"
    " TRITON_".split()
)
"""Handed on to the trial's process, by the beginning of the name."""
SECRET_WORDS = tuple("KEY TOKEN SECRET PASS CRED AUTH COOKIE BEARER PRIVATE".split())
"""Never handed on when the name contains one (NVIDIA_API_KEY begins like a device setting)."""
SECRET_PARTS = frozenset("PWD PW PAT JWT OTP PIN PSK SAS SID CERT DSN".split())
"""Never handed on when one stands alone between underscores: CUDA_PAT, but not CUDA_PATH."""
_BINDING = frozenset("OMP_PROC_BIND OMP_PLACES GOMP_CPU_AFFINITY".split())
"""A trial's threads may choose no processors for each other
(:mod:`trainer.isolation.kernel.seccomp`), and libgomp ends the process where it was told to and
cannot."""
_VISIBLE = "CUDA_VISIBLE_DEVICES"
_A_GPU = re.compile(r"\d+|(GPU|MIG)-.+")
_ADDRESS_OF_A_USER = re.compile(r"://[^/\s]*@")

SPIN_COUNT = "10000"
"""How long an OpenMP thread waits awake for the others. By default it is so long that one busy
neighbour makes a trial ten times slower: on two cores a step of 25 ms took 24 ms (default) and 29
(this) alone, 340 to 1,800 and 110 beside one busy process. The environment's own setting wins."""


def allowed_environment(
    environ: Mapping[str, str] | None = None, *, also: tuple[str, ...] = ()
) -> dict[str, str]:
    """The part of ``environ``, by default this process's, that trials may see; with string hashing
    made reproducible.

    :param also: beginnings of more names to hand on.
    """
    kept = {
        name: value
        for name, value in (os.environ if environ is None else environ).items()
        if (name in PASSED_VARIABLES or name.startswith((*PASSED_PREFIXES, *also)))
        and name not in _BINDING
        and not may_be_secret(name, value)
    }
    defaults = {
        "PATH": os.defpath,
        "LANG": "C.UTF-8",
        "GOMP_SPINCOUNT": SPIN_COUNT,
        # Else Inductor starts processes that want semaphores in /dev/shm, which trials may not.
        "TORCHINDUCTOR_COMPILE_THREADS": "1",
        # Else importing Inductor asks the driver for devices in torch 2.11 and 2.12, and no process
        # forked after that can use CUDA.
        "TORCHINDUCTOR_USE_EXPERIMENTAL_BENCHMARKER": "0",
    }
    return {**defaults, **kept, "PYTHONHASHSEED": "0"}


def named_gpus() -> list[str] | None:
    """The GPUs that this process's environment lets CUDA see, as it names them; None: all.

    CUDA sees those before the first name that is none, like -1 (CUDA C++ Programming Guide,
    "CUDA Environment Variables").

    :raises SettingsError: where one is named twice, of which CUDA sees none.
    """
    said = os.environ.get(_VISIBLE)
    if said is None:
        return None
    names = [name.strip() for name in said.split(",")]
    seen = list(takewhile(_A_GPU.fullmatch, names))
    for name in seen:
        if seen.count(name) > 1:
            raise SettingsError(
                f"{_VISIBLE} is {said!r}, which names {name} twice; name each GPU once"
            )
    return seen


def with_gpu(name: str) -> dict[str, str]:
    """This process's environment, in which CUDA sees this GPU alone."""
    return {**os.environ, _VISIBLE: name}


def as_it_is() -> dict[str, str]:
    """All of this process's: of a trial's, what the allowlist let through and what it was given."""
    return dict(os.environ)


def tell(name: str, value: str) -> None:
    """Set a variable for a library that this process is about to load; a person's own wins."""
    os.environ.setdefault(name, value)


def cache_folder() -> Path:
    """Where a machine keeps prepared corpora: AUTORESEARCH_DATA_DIR, or the user's cache folder.

    :raises RuntimeError: where nothing is set and the user has no home.
    """
    chosen = os.environ.get("AUTORESEARCH_DATA_DIR")
    if chosen:
        return Path(chosen).expanduser().absolute()
    cache = os.environ.get("XDG_CACHE_HOME")
    return (Path(cache) if cache else Path.home() / ".cache") / "autoresearch"


def become(environ: Mapping[str, str]) -> None:
    """Make this process's environment another."""
    os.environ.clear()
    os.environ.update(environ)


def may_be_secret(name: str, value: str) -> bool:
    """Whether a variable may hold a secret: by its name, or by a value that is an address with a
    user in it."""
    upper = name.upper()
    return (
        any(word in upper for word in SECRET_WORDS)
        or not SECRET_PARTS.isdisjoint(upper.split("_"))
        or _ADDRESS_OF_A_USER.search(value) is not None
    )
