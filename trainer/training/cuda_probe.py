"""Check that CUDA starts in a trial, by running a trial that does nothing else.

Outside the sandbox everything can work (nvidia-smi, torch, every check of
:mod:`trainer.machine.gpu`) while each trial fails inside it. So the probe runs as a trial runs:
the fork server forks it, and the same rules confine it. The same first instructions start it
(:mod:`trainer.isolation.trial_process`: the driver, a context, a product). This module only
adds one of the torch backend's kernels, if a compiler is installed.

Whether Megatron-Core and TransformerEngine work together is probed alike (:func:`probe_megatron`).
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
from trainer.backends.kernels import operations
from trainer.backends.megatron import MegatronBackend, imported
from trainer.executors.local import LocalExecutor
from trainer.machine.cuda_driver import NO_DEVICE, WITHOUT_CUDA, explain_code
from trainer.machine.device import device_name
from trainer.machine.host import lacking
from trainer.machine.megatron_packages import WORKING
from trainer.schema import BackendName, Config, Limits, TrialSpec

ENTRY = "trainer.training.cuda_probe:run_probe"
MEGATRON_ENTRY = "trainer.training.cuda_probe:run_megatron"
PATIENCE_S = 180.0
"""The probe's time limit; importing torch from a cold disk, starting CUDA and compiling a kernel
take most of it in the worst case."""
_ANSWER = "answer"
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
    try:
        name, confined = _answer(ENTRY, device, "torch", environ, root)
    except AutoresearchError as error:
        said = str(error)
        is_absent = explain_code(NO_DEVICE) in said or WITHOUT_CUDA in said
        return CudaProbe(works=False, said=said, is_absent=is_absent)
    missing = lacking()
    kernel = f"no compiled kernel (there is no {missing})" if missing else "a compiled kernel"
    return CudaProbe(
        works=True, said=f"{name}: cuInit 0, a context, a product, {kernel} ({confined})"
    )


def probe_megatron(device: str, *, environ: Mapping[str, str] | None = None) -> str:
    """Import Megatron-Core, and TransformerEngine if it is installed, as a trial does, and on a GPU
    build a small model; return what worked. Takes some seconds.

    :raises AutoresearchError: if that fails, with the reason.
    """
    said, _ = _answer(MEGATRON_ENTRY, device, "megatron", environ, Path("/"))
    return said


def _answer(
    entry: str, device: str, backend: BackendName, environ: Mapping[str, str] | None, root: Path
) -> tuple[str, str]:
    """Run a trial that writes an answer; return the answer and how the trial was confined."""
    with tempfile.TemporaryDirectory(prefix="autoresearch-probe-") as scratch:
        trial_dir = Path(scratch).resolve() / "trial"
        # Complete as far as a trial's start reads it.
        spec = TrialSpec(
            trial_id="probe",
            config=_SMALL,
            seed=0,
            corpus_dir=str(Path(scratch) / "no-corpus"),
            corpus_sha256="0" * 64,
            backend=backend,
            device=device,
            limits=Limits(wall_s=PATIENCE_S),
        )
        with LocalExecutor(
            allow_unsandboxed=True, environ=environ, entry=entry, root=root
        ) as executor:
            executor.run(spec, trial_dir)
            return _read(trial_dir / _ANSWER), executor.describe()


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
    if lacking() is None:
        _compile_a_kernel(device)
    replace_file(trial_dir / _ANSWER, device_name(device))


def run_megatron(spec: TrialSpec, trial_dir: Path, *, born: float) -> None:
    """Import both packages, and on a GPU build a model of both.

    :raises MachineryError: if either fails.
    """
    engine = "TransformerEngine's layers" if imported().HAVE_TE else "no TransformerEngine"
    done = f"imports in a trial, {engine}"
    if spec.device != "cpu":
        try:
            MegatronBackend().build(spec.gpt, 128, torch.device(spec.device))
        except AutoresearchError:
            raise
        except Exception as error:
            traceback.print_exc()
            raise MachineryError(
                f"Megatron-Core builds no model here ({type(error).__name__}: {error!s:.200});"
                f" install {WORKING}"
            ) from error
        done = f"builds a model in a trial, {engine}"
    replace_file(trial_dir / _ANSWER, done)


def _compile_a_kernel(device: torch.device) -> None:
    rows_ND = torch.arange(4096, dtype=torch.float32).view(64, 64)
    gain_D = torch.ones(64)
    try:
        found_ND = operations.norm(rows_ND.to(device), gain_D.to(device), True).cpu()
        is_right = torch.allclose(found_ND, operations.norm(rows_ND, gain_D, True), atol=1e-4)
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
