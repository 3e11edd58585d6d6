"""Check that CUDA starts in a trial, by running a trial that does nothing else.

Outside the sandbox everything can work (nvidia-smi, torch, every check of
:mod:`trainer.machine.gpu`) while each trial fails inside it. So the probe runs as a trial runs:
the fork server forks it, and the same rules confine it. The same first instructions start it
(:mod:`trainer.isolation.trial_process`: the driver, a context, a product). This module only
adds one compiled kernel, if a compiler is installed.
"""

import os
import tempfile
import traceback
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import torch

from autoresearch.errors import AutoresearchError, MachineryError
from autoresearch.files import read_given, replace_file
from autoresearch.layout import LOG_FILE
from trainer.backends.compilation import compiled
from trainer.executors.local import LocalExecutor
from trainer.machine.cuda_driver import NO_DEVICE, WITHOUT_CUDA, explain_code
from trainer.machine.device import device_name
from trainer.machine.host import lacking
from trainer.spec import Config, Limits, TrialSpec

ENTRY = "trainer.training.cuda_probe:run_probe"
PATIENCE_S = 180.0
"""The probe's time limit; importing torch from a cold disk, starting CUDA and compiling a kernel
take most of it in the worst case."""
_ANSWER = "device_name"
_MOST_BYTES = 1 << 16


@dataclass(frozen=True, slots=True)
class CudaProbe:
    """The result of the probe."""

    works: bool
    said: str
    """A description of what works and where; or of what fails, with its code and the fix."""
    is_absent: bool = False
    """Whether no GPU is visible or torch has no CUDA, which is not a fault if neither is wanted."""


def probe_cuda(
    device: str = "cuda", *, environ: Mapping[str, str] | None = None, root: Path = Path("/")
) -> CudaProbe:
    """Start CUDA on ``device`` as a trial would. Takes some seconds.

    :param environ: the source of trials' environment variables; None: this process's environment.
    :param root: see :class:`trainer.executors.local.LocalExecutor`.
    """
    with tempfile.TemporaryDirectory(prefix="autoresearch-probe-") as scratch:
        trial_dir = Path(scratch).resolve() / "trial"
        missing = lacking(torch.device(device).type)
        # Complete as far as a trial's start reads it.
        spec = TrialSpec(
            trial_id="probe",
            config=_SMALL,
            seed=0,
            corpus_dir=str(Path(scratch) / "no-corpus"),
            corpus_sha256="0" * 64,
            device=device,
            compile=missing is None,
            limits=Limits(wall_s=PATIENCE_S),
        )
        try:
            with LocalExecutor(
                allow_unsandboxed=True, environ=environ, entry=ENTRY, root=root
            ) as executor:
                executor.run(spec, trial_dir)
                name = _read(trial_dir / _ANSWER)
                confined = executor.describe()
        except AutoresearchError as error:
            said = str(error)
            is_absent = explain_code(NO_DEVICE) in said or WITHOUT_CUDA in said
            return CudaProbe(works=False, said=said, is_absent=is_absent)
    kernel = f"no compiled kernel (there is no {missing})" if missing else "a compiled kernel"
    return CudaProbe(
        works=True, said=f"{name}: cuInit 0, a context, a product, {kernel} ({confined})"
    )


_SMALL = Config(
    n_layer=1,
    n_head=1,
    d_model=16,
    d_ff=16,
    activation="gelu",
    norm="layernorm",
    positions="learned",
    tie_embeddings=True,
    lr=1e-3,
    lr_warmup=0,
    lr_min_ratio=0.1,
    grad_clip=1.0,
    weight_decay=0.0,
    beta1=0.9,
    beta2=0.95,
    batch_size=1,
    seq_len=16,
    precision="fp32",
)
"""A config that the spec needs; nothing trains it."""


def _read(path: Path) -> str:
    try:
        return read_given(path, _MOST_BYTES, through_links=False).decode(errors="replace")
    except OSError as error:
        with path.with_name(LOG_FILE).open("rb") as log:
            log.seek(-min(_MOST_BYTES, os.fstat(log.fileno()).st_size), os.SEEK_END)
            lines = log.read().decode(errors="replace").split("\n")
        last = next((line.strip()[:300] for line in reversed(lines) if line.strip()), None)
        raise MachineryError(
            f"the trial that starts CUDA ended without an answer ({last or 'no word of it'});"
            " run it again"
        ) from error


# --- in the trial's process ----------------------------------------------------------------------


def run_probe(spec: TrialSpec, trial_dir: Path, *, born: float) -> None:
    """Compile a kernel once CUDA has started, and write the device's name to the trial's directory.

    :raises MachineryError: if the kernel cannot be compiled, or is wrong.
    """
    device = torch.device(spec.device)
    if spec.compile:
        _compile_a_kernel(device)
    replace_file(trial_dir / _ANSWER, device_name(device))


def _compile_a_kernel(device: torch.device) -> None:
    given = torch.arange(4096, dtype=torch.float32, device=device)

    def twice_and_one(numbers: torch.Tensor) -> torch.Tensor:
        return numbers * 2 + 1

    try:
        is_right = torch.equal(compiled(twice_and_one)(given), twice_and_one(given))
        why = "it gave wrong numbers"
    except Exception as error:  # noqa: BLE001 (reports every failure of a compiler)
        traceback.print_exc()
        is_right = False
        why = f"{type(error).__name__}: {str(error).strip().splitlines()[0][:200]}"
    if not is_right:
        raise MachineryError(
            f"CUDA starts on {device_name(device)}, but a kernel cannot be compiled ({why}); fix"
            " Triton or its C compiler"
        )
