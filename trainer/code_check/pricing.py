"""Price a step of a small model with a config's functions against one with what is built in."""

import time

import torch
from torch import Tensor

from trainer.backends.optimizer import AdamW, optimizer_of
from trainer.backends.torch_gpt import TorchBackend, TorchGPT
from trainer.code import slot_of
from trainer.schema import Budget, Config
from trainer.training.schedule import Schedule

CPU = torch.device("cpu")
VOCAB = 64
_REPEATS = 7
_UPDATES = {"code.update", "code.update_rest"}
_LATER_STEPS = (*range(1, 64), *(round(64 * 1.1**n) for n in range(80)))
"""Steps at which an optimizer's rule is timed: up to 120,000, none a tenth above the one before."""
_MOST = {"n_layer": 2, "n_head": 4, "d_model": 128, "d_ff": 256, "seq_len": 128, "batch_size": 8}
"""Largest model whose steps are timed."""


def shaped(config: Config, **shape: int) -> Config:
    """Return the config with another shape."""
    kv = {"n_kv_head": 1} if config.n_kv_head not in {None, config.n_head} else {"n_kv_head": None}
    precision = "bf16" if config.precision == "fp8" else config.precision
    return config.model_copy(update={**shape, **kv, "precision": precision})


def lr_at(config: Config, step: int) -> float:
    return Schedule(config, Budget(), 1000).lr(step, 0.0)


def forward_backward(model: TorchGPT, config: Config) -> Tensor:
    generator = torch.Generator().manual_seed(2)
    shape = (config.batch_size, config.seq_len + 1)
    stream = torch.randint(VOCAB, shape, generator=generator)
    loss: Tensor = model.train()(stream[:, :-1], stream[:, 1:])
    loss.backward()  # type: ignore[no-untyped-call]
    return loss


def prices(config: Config) -> tuple[float, float]:
    """Return time and memory of a step as multiples of those of what is built in.

    What is built in is called as a function, too: otherwise the price of a hook, such as attention
    that holds its scores, would be the function's. A result has tokens/s and memory of the whole.
    Time is the least of several interleaved steps; memory what the backward pass keeps, counted.
    """
    coded = shaped(
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
    least += pair[0].more_seconds_later()
    return least / least_built_in, pair[0].kept_bytes() / max(1, pair[1].kept_bytes())


class _Priced:
    """A model whose steps are timed."""

    def __init__(self, config: Config) -> None:
        torch.manual_seed(0)
        self._config = config
        self._model = TorchBackend().build(config, VOCAB, CPU)
        self._optimizer = optimizer_of(self._model, config)
        self._steps = 0
        self.seconds()  # the first step is slower

    def seconds(self) -> float:
        """Return the time of one step, in seconds of this process's processor time."""
        self._steps += 1
        began = time.process_time()
        loss = forward_backward(self._model, self._config)
        self._optimizer.step(loss, lr_at(self._config, self._steps))
        return time.process_time() - began

    def more_seconds_later(self) -> float:
        """Return how much longer the optimizer takes at its dearest later step than at the steps
        that are timed: a rule may do more after a number of steps."""
        if not _UPDATES & self._config.code.keys():
            return 0.0
        optimizer = self._optimizer
        assert isinstance(optimizer, AdamW)
        loss = forward_backward(self._model, self._config)
        gradients = [(p, p.grad) for p in self._model.parameters()]

        def seconds_at(step: int) -> float:
            for parameter, gradient in gradients:
                parameter.grad = None if gradient is None else gradient.clone()
            optimizer.set_step(step)
            began = time.process_time()
            optimizer.step(loss, lr_at(self._config, 1))
            return time.process_time() - began

        by_time = sorted((seconds_at(step), step) for step in _LATER_STEPS)
        dearest = max(min(seconds_at(step) for _ in range(3)) for _, step in by_time[-3:])
        return max(0.0, dearest - min(seconds_at(step) for step in range(2, 9)))

    def kept_bytes(self) -> int:
        """Return the bytes that a forward pass keeps for the backward pass."""
        kept: dict[int, int] = {}

        def pack(tensor: Tensor) -> Tensor:
            storage = tensor.untyped_storage()
            kept[storage.data_ptr()] = storage.nbytes()
            return tensor

        with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
            forward_backward(self._model, self._config)
        self._model.zero_grad()
        return sum(kept.values())
