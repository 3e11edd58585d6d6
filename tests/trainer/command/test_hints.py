"""A hint follows from what a script was refused or lacks."""

import pytest

from tests.support.present import known
from trainer.command.hints import hint

NOT_STARTED = "RuntimeError: Unexpected error from cudaGetDeviceCount(). Did you run some cuda"
DENIED = "PermissionError: [Errno 13] Permission denied"


@pytest.mark.parametrize(
    ("said", "cause"),
    [
        (
            f"{DENIED} /lib/python3.12/multiprocessing/synchronize.py __init__ SemLock",
            "shared memory",
        ),
        (f"_multiprocessing.SemLock {DENIED}", "shared memory"),
        (f"{DENIED}: 'model.pt'", "file refused"),
        ("Check failed: cannot open model.json: Permission denied", "file refused"),
        ("OSError: [Errno 30] Read-only file system: '/data/x'", "file refused"),
        (f"{DENIED} /lib/python3.12/socket.py socketpair a, b = _socket.socketpair()", "socket"),
        (
            "torch.distributed.DistNetworkError: The server socket has failed to listen on any"
            " local network address. port: 29511, code: -13, name: EACCES",
            "socket",
        ),
        (f"urllib.error.URLError: <urlopen error [Errno 13] {DENIED}>", "network"),
        ("RuntimeError: Cannot resolve 127.0.0.1 to a (local) address", "socket"),
        ("OSError: [Errno 101] Network is unreachable", "network"),
        ("OSError: We couldn't connect to 'https://huggingface.co' to load the files", "network"),
        ("error: Failed to fetch: `https://pypi.org/simple/x/` | Caused by: dns error", "network"),
        ("ConnectionRefusedError: [Errno 111] Connection refused", "network"),
        ("run.sh: line 3: nvcc: command not found", "program"),
        ("sh: 1: nvcc: not found", "program"),
        ("FileNotFoundError: [Errno 2] No such file or directory: 'a'", "file missing"),
        (f"{NOT_STARTED} before? Error 304: OS call failed or operation not supported", "CUDA 304"),
        (f"{NOT_STARTED} before? Error 803: system has unsupported display driver", "CUDA 803"),
        (f"{NOT_STARTED} before? Error 802: system not yet initialized", "CUDA 802"),
        ("RuntimeError: No CUDA GPUs are available", "CUDA 100"),
        ("torch.AcceleratorError: CUDA error: no CUDA-capable device is detected", "CUDA 100"),
        ("RuntimeError: CUDA error: no kernel image is available for execution", "kernel image"),
        ("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2 GiB", "GPU memory"),
        ("urllib.error.HTTPError: HTTP Error 404: Not Found", None),
        ("ValueError: late", None),
        ("", None),
    ],
)
def test_what_was_refused(said: str, cause: str | None) -> None:
    found = hint(said)
    assert (found.cause if found else None) == cause


@pytest.mark.parametrize("code", ["100", "304", "803"])
def test_an_error_of_cuda_is_explained(code: str) -> None:
    found = known(hint(f"CUDA error. Error {code}: x"))
    assert f"{code} (CUDA_ERROR_" in found.fix
