"""Choose a campaign's memory model: the prediction that the ``memory`` rail compares with what a
trial may use."""

from __future__ import annotations

from dataclasses import dataclass, replace

from autoresearch.errors import MachineryError
from trainer.machine.host import lacking
from trainer.memory.estimate import AnalyticMemory, device_limit
from trainer.spec import DEFAULT_RESERVE_GIB, Config


@dataclass(frozen=True, slots=True)
class MemoryChoice:
    """A campaign's memory model, and its description for a person."""

    model: AnalyticMemory | None
    """None if no prediction is possible."""
    description: str

    def for_defaults(self, config: Config, menu: str, device: str) -> MemoryChoice:
        """Return the same, describing what the menu's defaults need of a GPU.

        :raises MachineryError: if they do not fit into the free memory.
        """
        if self.model is None or device == "cpu":
            return self
        need_gib, free_gib = self.model.predict_gib(config), self.model.limit_gib
        if need_gib > free_gib:
            raise MachineryError(
                f"the defaults of menu {menu} need about {need_gib:.1f} GiB and {device} has"
                f" {free_gib:.1f} GiB free for a trial; see with nvidia-smi and `free -g` who holds"
                " the rest (a NIM's share is NIM_GPU_MEM_FRACTION), or choose a smaller menu"
            )
        return replace(
            self, description=f"{self.description}; the defaults need {need_gib:.1f} GiB"
        )


def choose_memory(
    *,
    vocab_size: int,
    backend: str,
    device: str,
    compile: bool = False,
    average: bool = False,
    trial_limit_gib: float | None = None,
    reserve_gib: float = DEFAULT_RESERVE_GIB,
    places: int = 1,
) -> MemoryChoice:
    """Return the estimate by formula, within what a trial may use.

    :param average: whether trials keep a mean of their weights.
    :param places: concurrent trials on a CPU, each with its share of the memory.
    :raises SpecError: if there is no such device or backend.
    """
    limit = device_limit(device, trial_limit_gib, reserve_gib, places=places)
    shared = places > 1 and device == "cpu" and limit.source != "trial"
    description = (
        f"analytic estimate, of {limit.gib:.1f} GiB ({limit.source}"
        f"{f', shared by {places}' if shared else ''})"
    )
    if average:
        description += ", and a mean of the weights besides"
    model = AnalyticMemory(
        vocab_size=vocab_size,
        backend=backend,
        device=device,
        limit_gib=limit.gib,
        compile=compile,
        kernels=device == "cpu" or lacking("cuda") is None,
        means=1 if average else 0,
    )
    return MemoryChoice(model, description)
