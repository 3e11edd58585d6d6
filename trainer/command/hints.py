"""Suggest a fix where a script's error shows what it was refused or what is missing.

A hint follows from the thing that was refused, and not from the number of the error alone: a
socket's "Permission denied" is no file's.
"""

import re
from typing import NamedTuple

from trainer.machine.cuda_driver import explain_code

_REFUSED = r"(?:[Pp]ermission denied|Operation not permitted|EACCES|EPERM)"
_SHARED = r"(?:SemLock|_multiprocessing|/dev/shm|shared memory object)"
_SOCKET = r"(?:\b[sS]ocket|TCPStore|\bbind\b|\blisten\b)"


class Hint(NamedTuple):
    """Name what a script was refused or lacks, and say how to fix that."""

    cause: str
    """A short name."""
    fix: str


_KNOWN = (
    (
        "shared memory",
        rf"{_SHARED}.*{_REFUSED}|{_REFUSED}.*{_SHARED}",
        "semaphores and shared memory need a /dev/shm of the trial's own, and this machine allows"
        " no mount namespace for it; allow unprivileged user namespaces, write shared_memory = true"
        " under [trainer] to share the machine's, or start no workers: num_workers=0",
    ),
    (
        "kernel image",
        r"no kernel image is available|CUDA_ERROR_NO_BINARY_FOR_GPU"
        r"|is not compatible with the current PyTorch installation",
        "torch, or an extension of it, was not built for this GPU's architecture; install a build"
        " whose torch.cuda.get_arch_list() names it",
    ),
    (
        "GPU memory",
        r"CUDA out of memory|CUDA error: out of memory|CUDA_ERROR_OUT_OF_MEMORY",
        "the GPU's memory is full; choose a smaller model or batch, or find with nvidia-smi which"
        " other process holds it",
    ),
    ("CUDA 100", r"no CUDA-capable device|No CUDA GPUs are available|Found no NVIDIA driver", ""),
    ("CUDA 304", r"OS call failed or operation not supported|CUDA_ERROR_OPERATING_SYSTEM", ""),
    ("CUDA 803", r"unsupported display driver|CUDA_ERROR_SYSTEM_DRIVER_MISMATCH", ""),
    (
        "socket",
        rf"{_SOCKET}.*{_REFUSED}|{_REFUSED}.*{_SOCKET}"
        r"|Cannot resolve \S+ to a \(local\) address",
        "this machine lets a trial open no such socket; `autoresearch doctor --menu MENU` says what"
        " to change, or start the script without a launcher and without workers",
    ),
    (
        "network",
        r"Network is unreachable|No route to host|[cC]onnection refused|ECONNREFUSED|ENETUNREACH"
        r"|getaddrinfo|gaierror|[nN]ame or service not known|name resolution|NameResolutionError"
        r"|Could not resolve host|dns error|failed to lookup address|Max retries exceeded"
        r"|couldn't connect to|Failed to (?:fetch|download)"
        rf"|(?:\bconnect|urlopen|https?://\S+).*{_REFUSED}",
        "a trial reaches no network and no service outside it; download what it needs beforehand"
        " and name the folder under [trainer] reads, or start the service within the trial",
    ),
    (
        "program",
        r"command not found|: not found(?:$| \|)|executable file not found"
        r"|FileNotFoundError.*subprocess\.py",
        "install the program; one outside the system, this Python and the script's directory must"
        " be named under [trainer] reads",
    ),
    (
        "file refused",
        rf"Read-only file system|{_REFUSED}",
        "trials write below {out}, or by a relative path where the script's directory has nothing"
        " of that name, and read that directory but for hidden files; move away what a run by hand"
        " left there, write below {out}, or name what else it reads under [trainer] reads",
    ),
    (
        "file missing",
        r"No such file or directory|FileNotFoundError",
        "if a run by hand finds that file, it is outside the script's directory: name it, or the"
        " folder with all that the script reads there, under [trainer] reads",
    ),
)
"""Causes, the most special first, each with the pattern of its errors and its fix."""
_CUDA_NUMBER = re.compile(r"(?:[cC][uU][dD][aA]|cuInit|driver)[^|]*?\b[eE]rror:? (\d{1,3})\b")


def hint(said: str) -> Hint | None:
    """Return the hint for an error; None if nothing is known of it.

    :param said: the error's lines, joined, with the places in the code where it was raised.
    """
    for cause, pattern, fix in _KNOWN:
        if re.search(pattern, said):
            return Hint(cause, fix or _of_cuda(int(cause.removeprefix("CUDA "))))
    if found := _CUDA_NUMBER.search(said):
        return Hint(f"CUDA {int(found[1])}", _of_cuda(int(found[1])))
    return None


def _of_cuda(code: int) -> str:
    """Return what an error of the CUDA driver means, and how to find its cause."""
    return f"CUDA's error {explain_code(code)}; run `autoresearch doctor --menu MENU`"
