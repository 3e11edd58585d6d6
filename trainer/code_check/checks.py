"""Check functions on numbers of many magnitudes, then inside small models.

The models show causality, gradients, memory of calls and the price of a step. ``python -m
trainer.code_check.checks CONFIG PRICE UNSANDBOXED`` checks a config's functions in its process.
"""

import os
import resource
import sys
import tempfile
import time
from collections.abc import Sequence
from itertools import product
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from autoresearch.errors import AutoresearchError
from trainer.backends.coded import CodeFailed, CodeFunction, check_causality
from trainer.backends.optimizer import Optimizer, optimizer_of
from trainer.backends.torch_gpt import TorchBackend, TorchGPT
from trainer.code import Slot, slot_of
from trainer.code_check import CodeVerdict
from trainer.isolation.kernel.sandbox import Layers, Sandbox, move_home
from trainer.isolation.scratch import clear
from trainer.spec import Budget, Config, Limits, TrialSpec
from trainer.training.schedule import Schedule

CPU = torch.device("cpu")
SCALES = (0.0, 1e-3, 1.0, 100.0)
"""Standard deviations of the numbers that functions are tried on."""
COLUMNS = 16
_VOCAB = 64
_REPEATS = 7
_MOST = {"n_layer": 2, "n_head": 4, "d_model": 128, "d_ff": 256, "seq_len": 128, "batch_size": 8}
"""Largest model whose steps are timed."""


def verdict_on(config: Config, price: float) -> CodeVerdict:
    """Return what is wrong with a config's functions."""
    torch.set_num_threads(1)
    try:
        with torch.random.fork_rng(devices=()):
            for key, source in config.code.items():
                slot = slot_of(key)
                if slot.reach in {"row", "element"}:
                    _check_forward(slot, source, config)
            check_models(config)
        ratios = prices(config)
    except CodeFailed as failed:
        return CodeVerdict(why=str(failed))
    except Exception as error:  # noqa: BLE001 (whatever a function can raise)
        said = f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"
        return CodeVerdict(why=f"{', '.join(config.code)} raised {said}; correct it")
    for ratio, what in zip(ratios, ("time", "memory for the backward pass"), strict=True):
        if ratio > price:
            return CodeVerdict(
                why=f"{', '.join(config.code)}: a step takes {ratio:.1f} times the {what} of what "
                f"is built in, more than {price:g}; use fewer operations"
            )
    return CodeVerdict()


def _check_forward(slot: Slot, source: str, config: Config) -> None:
    """Check a function of the forward pass on numbers of many magnitudes: shape, dtype, and that
    values and gradients are finite."""
    function = CodeFunction(slot, source, COLUMNS, CPU)
    function.reset()
    in_bf16 = config.precision != "fp32" and slot.name not in {"logits", "attention_scores"}
    dtypes = (torch.float32, torch.bfloat16) if in_bf16 else (torch.float32,)
    for dtype, scale in product(dtypes, SCALES):
        arguments = _arguments(slot, dtype, scale)
        result = function(*arguments)
        where = f"on numbers of about {scale:g}"
        if not result.isfinite().all():
            raise CodeFailed(f"{slot.key} is not finite {where}; bound it, or add an epsilon")
        if not result.requires_grad:
            raise CodeFailed(f"{slot.key} has no gradient; compute its result from its arguments")
        learned = [one for one in arguments if isinstance(one, Tensor)] + [*function.parameters()]
        for one in torch.autograd.grad(result.sum(), learned, allow_unused=True):
            if one is not None and not one.isfinite().all():
                raise CodeFailed(f"{slot.key} has no finite gradient {where}; add an epsilon")


def _arguments(slot: Slot, dtype: torch.dtype, scale: float) -> list[Any]:
    """Return arguments of a forward slot: tensors that need gradients, and whole numbers."""
    generator = torch.Generator().manual_seed(0)
    shape = (2, 3, COLUMNS, COLUMNS) if slot.reach == "element" else (6, COLUMNS)
    found: list[Any] = []
    for name in slot.arguments:
        if name in {"layer", "n_layer"}:
            found.append(1 if name == "layer" else 4)
            continue
        size, spread = ((COLUMNS,), 1.0) if name == "weight" else (shape, scale)
        drawn = spread * torch.randn(size, generator=generator, dtype=torch.float64)
        found.append(drawn.to(dtype).requires_grad_())
    return found


# --- inside small models ------------------------------------------------------------------------


def check_models(config: Config) -> None:
    """Train small models for a few steps and compare their logits.

    :raises CodeFailed: in one sentence.
    """
    small = _shaped(config, n_layer=2, n_head=2, d_model=32, d_ff=64, seq_len=12, batch_size=4)
    first, second = _trained(small), _trained(small)
    pairs = zip(first.parameters(), second.parameters(), strict=True)
    if not all(torch.equal(one, other) for one, other in pairs):
        raise CodeFailed(f"{_named(config)}: a second training gives other weights; keep no memory")
    generator = torch.Generator().manual_seed(5)
    with torch.no_grad():
        for parameter in first.parameters():
            # Larger weights than the first ones, so that a leak cannot hide below the tolerance.
            parameter.add_(0.2 * torch.randn(parameter.shape, generator=generator))
    tokens = torch.randint(_VOCAB, (5, 12), generator=generator)
    check_causality(first, tokens, small)
    with torch.no_grad():
        before = first.eval().logits(tokens)
        first.train().logits(tokens.flip(0))
        if not torch.equal(before, first.eval().logits(tokens)):
            raise CodeFailed(f"{_named(config)}: logits depend on earlier calls; keep no memory")


def _shaped(config: Config, **shape: int) -> Config:
    """Return the config with another shape."""
    kv = {"n_kv_head": 1} if config.n_kv_head not in {None, config.n_head} else {"n_kv_head": None}
    precision = "bf16" if config.precision == "fp8" else config.precision
    return config.model_copy(update={**shape, **kv, "precision": precision})


def _trained(config: Config) -> TorchGPT:
    """Return a model after three steps, all of whose numbers are finite."""
    torch.manual_seed(0)
    model = TorchBackend().build(config, _VOCAB, CPU)
    optimizer = optimizer_of(model, config)
    for step in range(1, 4):
        loss = _forward_backward(model, config)
        for name, parameter in model.named_parameters():
            if parameter.grad is None:
                raise CodeFailed(
                    f"{_named(config)}: the parameter {name} gets no gradient; use every argument"
                )
        norm = optimizer.step(loss, _lr(config, step))
        if not loss.isfinite() or not norm.isfinite():
            raise CodeFailed(
                f"{_named(config)}: the loss or its gradient is not finite at step {step} of a "
                "small model; bound the result"
            )
    return model


def _lr(config: Config, step: int) -> float:
    return Schedule(config, Budget(), 1000).lr(step, 0.0)


def _forward_backward(model: TorchGPT, config: Config) -> Tensor:
    generator = torch.Generator().manual_seed(2)
    shape = (config.batch_size, config.seq_len + 1)
    stream = torch.randint(_VOCAB, shape, generator=generator)
    loss: Tensor = model.train()(stream[:, :-1], stream[:, 1:])
    loss.backward()  # type: ignore[no-untyped-call]
    return loss


def _named(config: Config) -> str:
    return ", ".join(config.code)


# --- price --------------------------------------------------------------------------------------


def prices(config: Config) -> tuple[float, float]:
    """Return time and memory of a step as multiples of those of what is built in.

    What is built in is called as a function, too: otherwise the price of a hook, such as attention
    that holds its scores, would be the function's. A result has tokens/s and memory of the whole.
    Time is the least of several interleaved steps; memory what the backward pass keeps, counted.
    """
    coded = _shaped(
        config, **{name: min(most, getattr(config, name)) for name, most in _MOST.items()}
    )
    width = coded.d_model - coded.d_model % (2 * coded.n_head)
    coded = coded.model_copy(update={"d_model": max(width, 2 * coded.n_head)})
    built_in = {}
    for key in coded.code:
        slot = slot_of(key)
        body = slot.body(getattr(coded, slot.chosen_by, ""))
        assert body is not None
        indented = body.replace("\n", "\n    ")
        built_in[key] = f"def {slot.name}({', '.join(slot.arguments)}):\n    {indented}"
    pair = [_Priced(coded), _Priced(coded.model_copy(update=built_in))]
    times = [[one.seconds() for one in pair] for _ in range(_REPEATS)]
    least, least_built_in = map(min, zip(*times, strict=True))
    return least / least_built_in, pair[0].kept_bytes() / max(1, pair[1].kept_bytes())


class _Priced:
    """A model whose steps are timed."""

    def __init__(self, config: Config) -> None:
        torch.manual_seed(0)
        self._config = config
        self._model = TorchBackend().build(config, _VOCAB, CPU)
        self._optimizer: Optimizer = optimizer_of(self._model, config)
        self._steps = 0
        self.seconds()  # the first step is slower

    def seconds(self) -> float:
        """Return the time of one step, in seconds of this process's processor time."""
        self._steps += 1
        began = time.process_time()
        loss = _forward_backward(self._model, self._config)
        self._optimizer.step(loss, _lr(self._config, self._steps))
        return time.process_time() - began

    def kept_bytes(self) -> int:
        """Return the bytes that a forward pass keeps for the backward pass."""
        kept: dict[int, int] = {}

        def pack(tensor: Tensor) -> Tensor:
            storage = tensor.untyped_storage()
            kept[storage.data_ptr()] = storage.nbytes()
            return tensor

        with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
            _forward_backward(self._model, self._config)
        self._model.zero_grad()
        return sum(kept.values())


# --- in a process of its own ---------------------------------------------------------------------

_MEMORY_GIB = 2.0
_PROCESSOR_S = 30
"""Processor time of a check, which takes two to five seconds; a busy machine does not count."""


def main(arguments: Sequence[str]) -> int:
    """Print the verdict as JSON."""
    config, price, unsandboxed = arguments
    with tempfile.TemporaryDirectory() as folder:
        here = Path(folder).resolve()
        try:
            verdict = _confined(
                here, Config.model_validate_json(config), float(price), unsandboxed == "1"
            )
        except AutoresearchError as error:
            verdict = CodeVerdict(why=str(error), is_machinery=True)
        sys.stdout.write(verdict.model_dump_json() + "\n")
        sys.stdout.flush()
        for left in here.iterdir():
            clear(left)
    return 0


def _confined(here: Path, config: Config, price: float, unsandboxed: bool) -> CodeVerdict:
    """Give up all that a check does not need, then run it."""
    layers = Layers.detect()
    if not layers.confine and not unsandboxed:
        raise AutoresearchError(
            "this kernel has no Landlock, so code cannot be confined; use Linux 5.13 or newer, or "
            "accept it with --allow-unsandboxed"
        )
    spec = TrialSpec(
        trial_id="check",
        config=config,
        seed=0,
        corpus_dir=str(here / "none"),
        limits=Limits(memory_gib=_MEMORY_GIB, wall_s=600),
    )
    move_home(here)
    os.chdir(here)
    most_s = int(time.process_time()) + _PROCESSOR_S
    resource.setrlimit(resource.RLIMIT_CPU, (most_s, most_s))
    Sandbox.prepare(layers).confine(spec, here, None, heldout=False)
    return verdict_on(config, price)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
