"""Check a config's functions in this process: ``python -m trainer.code_check.child CONFIG PRICE
UNSANDBOXED``."""

import os
import resource
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from autoresearch.errors import AutoresearchError
from trainer.code_check import CodeVerdict
from trainer.isolation.kernel.sandbox import Layers, Sandbox, move_home
from trainer.isolation.scratch import clear
from trainer.spec import Config, Limits, TrialSpec

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
    from trainer.code_check.checks import verdict_on  # noqa: PLC0415 (torch)

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
