"""Check that a config can be trained on a device, before anything is created.

For a GPU a separate process checks it (``python -m trainer.training.readiness CONFIG BACKEND
DEVICE``), so that the calling process holds no CUDA context. Importing this module does not
import torch.
"""

import sys
from collections.abc import Sequence
from typing import cast

from autoresearch.errors import AutoresearchError, MachineryError
from autoresearch.values import Frozen
from trainer.isolation.outcome import TrialError
from trainer.machine.gpu import NoAnswer, ask, reply
from trainer.schema import BackendName, Config

PATIENCE_S = 120.0
"""The check's time limit; importing torch from a cold disk and starting CUDA can take tens of
seconds."""


class Readiness(Frozen):
    """Whether a config can be trained."""

    refusal: TrialError | None = None
    """The error of every trial, if it cannot."""


def check_trainable(config: Config, backend: BackendName, device: str) -> None:
    """Raise the error that every trial of the config would raise.

    :raises MachineryError: if the device is missing.
    :raises SpecError: if the backend cannot train such a config on the device.
    """
    if device.startswith("cuda"):
        check_elsewhere(config, backend, device)
    else:
        check_here(config, backend, device)


def check_here(config: Config, backend: BackendName, device: str) -> None:
    """Do :func:`check_trainable` in this process."""
    from trainer.backends import choose_backend  # noqa: PLC0415 (torch)
    from trainer.machine.device import find_device  # noqa: PLC0415 (torch)

    choose_backend(backend).check(config, find_device(device))


def check_elsewhere(config: Config, backend: BackendName, device: str) -> None:
    """Do :func:`check_trainable` in a separate process.

    :raises MachineryError: see there; also if there is no answer.
    :raises SpecError: see there.
    """
    question = (config.model_dump_json(), backend, device)
    try:
        answer = ask(Readiness, "trainer.training.readiness", *question, patience_s=PATIENCE_S)
    except NoAnswer as why:
        raise MachineryError(
            f"whether {backend} can train on {device} is unknown ({why}); see: autoresearch doctor"
        ) from why
    if answer.refusal is not None:
        raise answer.refusal.as_exception()


def main(arguments: Sequence[str]) -> int:
    """Print whether the config can be trained, as JSON."""
    config, backend, device = arguments

    def readiness() -> Readiness:
        name = cast(BackendName, backend)
        try:
            wanted = Config.model_validate_json(config)
            check_here(wanted, name, device)
        except AutoresearchError as error:
            return Readiness(refusal=TrialError.of(error))
        return Readiness()

    return reply(readiness)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
