"""One training run to be made: which config, how long, on what, within which limits."""

from __future__ import annotations

from typing import Annotated, Literal, Self, TypeAlias

from pydantic import Field, model_validator

from autoresearch.errors import SpecError
from autoresearch.values import Frozen, NonNegative, NonNegativeInt, Positive, PositiveInt
from trainer.spec.command import Command
from trainer.spec.config import AnyConfig, CommandConfig, Config, gpt
from trainer.spec.looks import Averaging, Look
from trainer.spec.text import ScoredText


class Budget(Frozen):
    """How long to train."""

    unit: Literal["steps", "tokens", "seconds", "run"] = "steps"
    """``run``: the whole of what a command does, however long that is."""
    amount: Positive = 60

    @model_validator(mode="after")
    def _whole_where_counted(self) -> Self:
        if self.unit == "run" and self.amount != 1:
            raise ValueError(f"a budget of {self.amount:g} run is not 1 run")
        if self.unit != "seconds" and self.amount != int(self.amount):
            raise ValueError(f"a budget of {self.amount} {self.unit} is not a whole number")
        return self

    def __str__(self) -> str:
        return f"{self.amount:.15g} {self.unit}"

    @classmethod
    def parse(cls, text: str) -> Self:
        """The budget that ``60 steps``, ``2e6 tokens`` or ``30 seconds`` names.

        :raises SpecError: on anything else.
        """
        try:
            amount, unit = text.split()
            return cls.model_validate({"unit": unit, "amount": float(amount)})
        except ValueError as error:
            raise SpecError(
                f"a budget of {text!r} cannot be read; write it like '60 steps', "
                "'2000000 tokens' or '30 seconds'"
            ) from error

    def steps(self, tokens_per_step: int | None) -> int | None:
        """Optimizer steps this buys, rounded up; None where only the trainer or a clock can say."""
        if self.unit == "steps":
            return int(self.amount)
        if self.unit == "tokens" and tokens_per_step is not None:
            return -(-int(self.amount) // tokens_per_step)
        return None


class PruneRule(Frozen):
    """Stop where the mean training loss of the last ``window`` steps up to ``at_step`` exceeds
    ``max_loss`` (nats per token): the config is hopeless against its reference's curves."""

    at_step: PositiveInt
    window: PositiveInt
    max_loss: Positive


DEFAULT_RESERVE_GIB = 8.0
MOST_LOOKS = 64


MOST_MEMORY_GIB = 1 << 20
"""Of a limit. No machine has that much, and kernels take one in bytes as a C long."""
MemoryGib = Annotated[Positive, Field(le=MOST_MEMORY_GIB)]


class Limits(Frozen):
    """What a trial may use before the supervisor ends it."""

    wall_s: Positive = 1800
    memory_gib: MemoryGib | None = None
    """Memory of the trial and its descendants: resident, swapped, and in page tables."""
    reserve_gib: NonNegative = DEFAULT_RESERVE_GIB
    """Memory of the machine that is kept from a trial whose GPU shares it
    (:mod:`trainer.machine.host_memory`). Elsewhere it is not looked at."""
    log_bytes: PositiveInt = 1 << 20
    file_bytes: PositiveInt = 1 << 30
    """The largest file the trial may write."""
    processes: PositiveInt = 64
    """Descendants, the trial itself included; threads do not count."""
    tasks: PositiveInt = 4096
    """Threads of all these together."""
    open_files: PositiveInt = 1024
    """Of each process. Memory that epoll watches take in the kernel grows with its square."""


class Fp8Recipe(Frozen):
    """TransformerEngine's delayed scaling: how fp8 tensors get their scales.

    Micikevicius et al. 2022, "FP8 Formats for Deep Learning". The torch backend looks at none of
    it: there each tensor is scaled by what it holds at that moment.
    """

    format: Literal["hybrid", "e4m3"] = "hybrid"
    """``hybrid``: E4M3 forward, E5M2 for gradients."""
    amax_history_len: PositiveInt = 16
    """Steps whose largest magnitudes are remembered."""
    amax_compute_algo: Literal["max", "most_recent"] = "max"
    """Which of them sets the scale."""
    margin: NonNegativeInt = 0
    """Powers of two that the scale stays below the largest."""


BackendName: TypeAlias = Literal["torch", "megatron", "megatron-fp32"]
"""``megatron`` trains bf16 weights with fp32 main weights, as Megatron is used; ``megatron-fp32``
has fp32 weights alone, cast at every use, as the torch backend has."""


def makes_code(backend: BackendName, device: str, *, compile: bool) -> bool:
    """Whether such trials compile anything: those of ``compile``, and on CUDA every one of the
    torch backend, whose kernels Triton compiles at their first call."""
    return compile or (backend == "torch" and device.startswith("cuda"))


class TrialSpec(Frozen):
    """One training run of one config with one seed: all that the trainer is told."""

    trial_id: str
    config: AnyConfig
    seed: NonNegativeInt
    """Draws the initial weights and the batches."""
    corpus_dir: str = ""
    """Absolute path of a prepared corpus; a command brings its own text."""
    corpus_sha256: str = ""
    """The trainer refuses a corpus that is not the one meant."""
    budget: Budget = Budget()
    horizon_steps: PositiveInt | None = 1000
    """Steps over which the rate would decay to ``lr_min_ratio``; the trained steps are a prefix
    of it. None: the budget itself."""
    backend: BackendName = "torch"
    fp8: Fp8Recipe = Fp8Recipe()
    """Looked at by the megatron backend where the precision is fp8."""
    compile: Annotated[bool, Field(strict=True)] = False
    """Train the torch backend's blocks through torch.compile, and its loss where that does not run
    on a kernel of ours. Other sums than without, to
    the last digits, so it is the same for all trials of a campaign. Compiling is set-up, and not
    in ``train_s``."""
    cudnn_attention: Annotated[bool, Field(strict=True, exclude_if=lambda wanted: not wanted)] = (
        False
    )
    """Let torch choose cuDNN's attention on a GPU, as it does by default on Hopper. Its backward
    pass in bf16 has returned NaN there (github.com/pytorch/pytorch, issue 196678, with a mask;
    github.com/kyutai-labs/pocket-tts, pull request 264)."""
    compile_cache: str | None = None
    """Absolute path of a directory that a command's trial and one which makes code
    (:func:`makes_code`) may write besides their own, and whose code they run: what earlier trials
    compiled. None: nothing is kept."""
    device: str = "cpu"
    """``cpu``, ``cuda`` or ``cuda:N``."""
    threads: PositiveInt | None = None
    """Intra-op CPU threads; None: what torch picks."""
    log_every: PositiveInt = 1
    """Steps between lines of the curve."""
    prune: PruneRule | None = None
    limits: Limits = Limits()
    train_tokens: PositiveInt | None = None
    """Train on so many tokens of the train split, from its first on; None: on all of it."""
    texts: tuple[ScoredText, ...] = ()
    """What to score after training besides the corpus' held-out text. A trial can read these files,
    and one that names none can read no such file."""
    # What came later is left out of JSON where it is not used: older orders stay as they were.
    cooldown_steps: NonNegativeInt = Field(0, exclude_if=lambda steps: steps == 0)
    """Last steps over which the rate goes to nothing on a straight line, from wherever the
    schedule has it."""
    average: Averaging | None = Field(None, exclude_if=lambda average: average is None)
    """Weights that are scored in place of those after the last step: for ``val_bpb``, and
    ``texts``. Costs four bytes of memory a parameter."""
    looks: Annotated[tuple[Look, ...], Field(max_length=MOST_LOOKS)] = Field(
        (), exclude_if=lambda looks: not looks
    )
    """What else the held-out text is scored with."""

    @property
    def ruler(self) -> tuple[object, ...]:
        """What makes its score another number with the same config, seed and corpus."""
        return self.budget, self.horizon_steps, self.cooldown_steps, self.average, self.looks

    command: Command | None = Field(None, exclude_if=lambda command: command is None)
    """What trains the config where it is a command's; left out of JSON where it is not, so that
    specs of the built-in trainer are written as they always were."""

    @property
    def gpt(self) -> Config:
        """The config, of the built-in trainer.

        :raises SpecError: where a command is to train it.
        """
        return gpt(self.config)

    @property
    def steps(self) -> int | None:
        """Optimizer steps it is to take; None where only a clock or the trainer can tell."""
        return self.budget.steps(self.config.tokens_per_step)

    @property
    def max_step(self) -> int | None:
        """The last step that its curve can have; a command counts as it likes."""
        return None if self.command is not None else self.steps

    @property
    def makes_code(self) -> bool:
        """See :func:`makes_code`."""
        if self.command is not None:
            return False
        return makes_code(self.backend, self.device, compile=self.compile)

    @property
    def code_cache(self) -> str | None:
        """The compile cache of a trial that uses one. A command may compile, or not: it is given
        one wherever the kernel can confine its use."""
        uses_one = self.makes_code or self.command is not None
        return self.compile_cache if uses_one else None

    @model_validator(mode="after")
    def _its_end_is_known(self) -> Self:
        """Where something happens at a step, or so many before the end."""
        steps = self.steps
        if steps is None:
            if self.cooldown_steps or self.looks or (self.average and self.average.form == "lawa"):
                raise ValueError(
                    f"a budget of {self.budget} ends at no known step, which a cooldown, looks and "
                    "lawa need; give it steps or tokens"
                )
            return self
        late = max((look.step or 0 for look in self.looks), default=0)
        if late > steps or self.cooldown_steps > steps:
            raise ValueError(
                f"a look after step {late} and a cooldown of {self.cooldown_steps} do not both fit "
                f"into the {steps} steps of the budget"
            )
        return self

    @model_validator(mode="after")
    def _of_one_trainer(self) -> Self:
        if isinstance(self.config, CommandConfig) != (self.command is not None):
            raise ValueError("a command trains the config of a menu that names one, and no other")
        if self.command is None and not self.corpus_dir:
            raise ValueError("corpus_dir is missing; give the path of a prepared corpus")
        if self.command is not None and self.texts:
            raise ValueError("a command scores its own text and no other")
        return self

    @model_validator(mode="after")
    def _has_what_its_backend_has(self) -> Self:
        for name in ("compile", "cudnn_attention"):
            if getattr(self, name) and self.backend != "torch":
                raise ValueError(f"{name} is for the torch backend, not {self.backend}")
        return self
