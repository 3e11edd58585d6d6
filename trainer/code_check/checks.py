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
from trainer.backends.optimizer import optimizer_of
from trainer.backends.torch_gpt import TorchBackend, TorchGPT
from trainer.code import Slot, slot_of
from trainer.code_check import CodeVerdict
from trainer.code_check.pricing import CPU, VOCAB, forward_backward, lr_at, prices, shaped
from trainer.isolation.kernel.sandbox import Layers, Sandbox, move_home
from trainer.isolation.scratch import clear
from trainer.schema import Config, Limits, TrialSpec

SCALES = (0.0, 1e-3, 1.0, 100.0)
"""Standard deviations of the numbers that functions are tried on."""
COLUMNS = 16


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
    small = shaped(config, n_layer=2, n_head=2, d_model=32, d_ff=64, seq_len=12, batch_size=4)
    first, second = _trained(small), _trained(small)
    pairs = zip(first.parameters(), second.parameters(), strict=True)
    if not all(torch.equal(one, other) for one, other in pairs):
        raise CodeFailed(f"{_named(config)}: a second training gives other weights; keep no memory")
    generator = torch.Generator().manual_seed(5)
    with torch.no_grad():
        for parameter in first.parameters():
            # Larger weights than the first ones, so that a leak cannot hide below the tolerance.
            parameter.add_(0.2 * torch.randn(parameter.shape, generator=generator))
    tokens = torch.randint(VOCAB, (5, 12), generator=generator)
    check_causality(first, tokens, small)
    with torch.no_grad():
        before = first.eval().logits(tokens)
        first.train().logits(tokens.flip(0))
        if not torch.equal(before, first.eval().logits(tokens)):
            raise CodeFailed(f"{_named(config)}: logits depend on earlier calls; keep no memory")


def _trained(config: Config) -> TorchGPT:
    """Return a model after three steps, all of whose numbers are finite."""
    torch.manual_seed(0)
    model = TorchBackend().build(config, VOCAB, CPU)
    optimizer = optimizer_of(model, config)
    for step in range(1, 4):
        loss = forward_backward(model, config)
        for name, parameter in model.named_parameters():
            if parameter.grad is None:
                raise CodeFailed(
                    f"{_named(config)}: the parameter {name} gets no gradient; use every argument"
                )
        norm = optimizer.step(loss, lr_at(config, step))
        if not loss.isfinite() or not norm.isfinite():
            raise CodeFailed(
                f"{_named(config)}: the loss or its gradient is not finite at step {step} of a "
                "small model; bound the result"
            )
    return model


def _named(config: Config) -> str:
    return ", ".join(config.code)


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
