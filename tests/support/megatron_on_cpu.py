"""Replace CUDA so that Megatron-Core's own layers run on a CPU.

Four replacements concern the device, and none what is computed:

- ``torch.cuda.current_device`` returns the CPU;
- the tracker of CUDA generators, from which dropout would draw, forks nothing: every dropout is 0;
- the backward pass of a matrix product runs under the CPU's autocast if its forward pass did, as it
  would under CUDA's;
- tensors requested on ``cuda`` are on the CPU, and report the type that they would have on CUDA
  (:class:`CalledCuda`).

:func:`run` runs a trial with them, for an executor.
"""

import contextlib
import importlib.util
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, distributed
from torch.overrides import TorchFunctionMode

from autoresearch.values import Frozen
from tests.support.gpts import CPU, VOCAB
from trainer.backends import Backend
from trainer.backends.megatron import MegatronBackend
from trainer.corpus import open_corpus
from trainer.schema import Config, TrialSpec
from trainer.training.schedule import Batches, Schedule
from trainer.training.scoring import evaluate
from trainer.training.train import train

ENTRY = "tests.support.megatron_on_cpu:run"
MEASURED = "measured.json"

QUIET = [
    pytest.mark.filterwarnings("ignore:.*tp_group is None:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:full scope is deprecated:UserWarning"),
    pytest.mark.filterwarnings("ignore:MLP requires ffn_hidden_size:DeprecationWarning"),
]
"""Marks that ignore warnings of Megatron-Core's own code."""

needs_megatron = pytest.mark.skipif(
    importlib.util.find_spec("megatron") is None, reason="megatron-core is not installed"
)


class NoGenerators:
    """Replace Megatron-Core's CudaRNGStatesTracker for models without randomness."""

    def is_initialized(self) -> bool:
        return True

    @contextlib.contextmanager
    def fork(self, name: str = "") -> Iterator[None]:
        yield


class CalledCuda(TorchFunctionMode):
    """Put tensors for ``cuda`` on the CPU, and report CUDA's type names.

    Megatron-Core's optimizers request tensors on ``cuda`` by name. They distinguish fp32 and bf16
    parameters by ``torch.cuda.FloatTensor``, which is not the type name of a tensor on the CPU.
    """

    def __torch_function__(
        self, func: Any, types: Any, args: Any = (), kwargs: Any | None = None
    ) -> Any:
        kwargs = dict(kwargs or {})
        if kwargs.get("device") == "cuda":
            kwargs["device"] = "cpu"
        answer = func(*args, **kwargs)
        asked_for_its_type = func is Tensor.type and len(args) == 1 and not kwargs
        return answer.replace("torch.", "torch.cuda.", 1) if asked_for_its_type else answer


@contextlib.contextmanager
def stand_in(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Install the replacements while entered; skip the test if Megatron-Core is not installed."""
    if importlib.util.find_spec("megatron") is None:
        pytest.skip("megatron-core is not installed")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        random = importlib.import_module("megatron.core.tensor_parallel.random")
        layers = importlib.import_module("megatron.core.tensor_parallel.layers")
    product = layers.LinearWithGradAccumulationAndAsyncCommunication
    on_cuda = product.backward

    def backward(ctx: Any, grad_output: Tensor) -> Any:
        half = grad_output.dtype is torch.bfloat16
        with torch.autocast("cpu", torch.bfloat16, enabled=half):
            return on_cuda(ctx, grad_output)

    monkeypatch.setattr(product, "backward", staticmethod(backward))
    monkeypatch.setattr(torch.cuda, "current_device", lambda: torch.device("cpu"))
    monkeypatch.setattr(random, "_CUDA_RNG_STATE_TRACKER", NoGenerators())
    monkeypatch.setattr(random, "_CUDA_RNG_STATE_TRACKER_INITIALIZED", True)
    with CalledCuda():
        yield


@contextlib.contextmanager
def one_rank(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Install the replacements, and leave no process group behind."""
    with stand_in(monkeypatch):
        yield
    with contextlib.suppress(AssertionError, ValueError):
        distributed.destroy_process_group()
    sys.modules["megatron.core.parallel_state"].destroy_model_parallel()


def build(recipe: Config, vocab_size: int = VOCAB) -> Any:
    """Return the backend's model."""
    torch.manual_seed(0)
    return MegatronBackend().build(recipe, vocab_size, CPU)


class Measured(Frozen):
    """Hold a trial's measurements."""

    loss_first: float
    loss_last: float
    val_bpb: float


def measure(backend: Backend, spec: TrialSpec) -> Measured:
    """Train and score as ``spec`` says, with the product's own loop and evaluation."""
    device = torch.device(spec.device)
    corpus = open_corpus(Path(spec.corpus_dir))
    recipe, vocab_size = spec.config, corpus.info.vocab_size
    torch.manual_seed(spec.seed)
    model = backend.build(recipe, vocab_size, device)
    batches = Batches(
        corpus.train,
        seed=spec.seed,
        batch_size=recipe.batch_size,
        seq_len=recipe.seq_len,
        device=device,
    )
    trained = train(
        model,
        batches,
        Schedule(recipe, spec.budget, spec.horizon_steps),
        log_every=1,
        prune=None,
        report=lambda point: None,
    )
    scored = evaluate(model, corpus.heldout, seq_len=recipe.seq_len, vocab_size=vocab_size)
    return Measured(
        loss_first=trained.train_loss_first,
        loss_last=trained.train_loss_last,
        val_bpb=scored.bits_per_byte(corpus.info.heldout_bytes),
    )


def run(spec: TrialSpec, trial_dir: Path, *, born: float) -> None:
    """Run a trial of the Megatron-Core backend; leave its measurements in the trial's directory."""
    with pytest.MonkeyPatch.context() as monkeypatch, stand_in(monkeypatch):
        measured = measure(MegatronBackend(), spec)
    (trial_dir / MEASURED).write_text(measured.model_dump_json())
