"""Run a config's functions on small tensors, in a sandboxed process, before a trial does.

The process is confined as a trial is, reads no corpus, and ends after a time limit. It says in one
sentence what is wrong with a function, or nothing.
"""

from autoresearch.errors import MachineryError
from autoresearch.values import Frozen
from trainer.machine.gpu import NoAnswer, ask
from trainer.machine.host import require_torch
from trainer.schema import AnyConfig

MAX_PRICE = 2.0
"""Most time and memory of a step, as a multiple of those of what is built in."""
PATIENCE_S = 1800.0
"""The check's own limit is processor time; this one is for a machine that gives it none."""
_DECIDING = ("activation", "norm", "norm_place", "positions", "qk_norm", "schedule", "precision")
"""Fields, besides the functions, that a verdict depends on."""


class CodeVerdict(Frozen):
    """Result of a check."""

    why: str = ""
    """One sentence that a model can repair its code by; empty if nothing is wrong."""
    is_machinery: bool = False
    """Whether the check itself could not run."""


class CodeRunner:
    """Checks each set of functions once."""

    def __init__(self, *, price: float = MAX_PRICE, allow_unsandboxed: bool = False) -> None:
        """:param price: most time and memory of a step, as a multiple of those of what is built
        in."""
        self._price = price
        self._allow_unsandboxed = allow_unsandboxed
        self._found: dict[tuple[object, ...], str] = {}

    def __call__(self, config: AnyConfig) -> str:
        """Return what is wrong with a config's functions, in one sentence; empty if nothing.

        :raises MachineryError: if the check cannot run on this machine.
        """
        key = (*config.code.items(), *(config.value(name) for name in _DECIDING))
        if config.code and key not in self._found:
            require_torch()
            words = (config.model_dump_json(), str(self._price), str(int(self._allow_unsandboxed)))
            try:
                found = ask(CodeVerdict, "trainer.code_check.checks", *words, patience_s=PATIENCE_S)
            except NoAnswer as error:
                found = CodeVerdict(
                    why=f"{', '.join(config.code)} did not get through a few steps on small"
                    f" tensors ({error}); use less time and memory"
                )
            if found.is_machinery:
                raise MachineryError(found.why)
            self._found[key] = found.why
        return self._found.get(key, "")
