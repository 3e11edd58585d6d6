"""Define one training run: which config, how long, on which data, within which limits."""

from typing import Annotated, ClassVar, Literal, Self, TypeAlias

from pydantic import AliasChoices, Field, model_validator

from autoresearch.errors import SpecError
from autoresearch.values import Frozen, NonNegative, NonNegativeInt, Positive, PositiveInt
from trainer.api import Trainer
from trainer.schema.base_config import CommandConfig
from trainer.schema.command import Command
from trainer.schema.config import AnyConfig, Config, gpt
from trainer.schema.measure import ScoredText
from trainer.schema.pruning import PruneRule
from trainer.schema.schedule import Checkpoint, RunSchedule

DEFAULT_RESERVE_GIB = 8.0
MOST_EVALUATIONS = 64


MOST_MEMORY_GIB = 1 << 20
"""Largest memory limit. No machine has that much, and kernels take a limit in bytes as a C long."""
MemoryGib = Annotated[Positive, Field(le=MOST_MEMORY_GIB)]


class Limits(Frozen):
    """Resources a trial may use before the supervisor ends it."""

    wall_s: Positive = 1800
    memory_gib: MemoryGib | None = None
    """Memory of the trial and its descendants: resident, swapped, and in page tables."""
    reserve_gib: NonNegative = DEFAULT_RESERVE_GIB
    """Memory of the machine that is kept from a trial whose GPU shares it
    (:mod:`trainer.machine.host`). Unused elsewhere."""
    log_bytes: PositiveInt = 1 << 20
    file_bytes: PositiveInt = 1 << 30
    """The largest file the trial may write."""
    processes: PositiveInt = 64
    """Descendants, the trial itself included; threads do not count."""
    tasks: PositiveInt = 4096
    """Threads of all these processes together."""
    open_files: PositiveInt = 1024
    """Open files of each process. The kernel memory that epoll watches can take grows with its
    square."""


class Fp8Recipe(Frozen):
    """TransformerEngine's delayed scaling: how fp8 tensors get their scales.

    Micikevicius et al. 2022, "FP8 Formats for Deep Learning". The torch backend has no fp8.
    """

    format: Literal["hybrid", "e4m3"] = "hybrid"
    """``hybrid``: E4M3 forward, E5M2 for gradients."""
    amax_history_len: PositiveInt = 16
    """Steps whose largest magnitudes are kept."""
    amax_compute_algo: Literal["max", "most_recent"] = "max"
    """Selects which of the kept magnitudes sets the scale."""
    margin: NonNegativeInt = 0
    """Powers of two by which the scale stays below the largest magnitude."""


BackendName: TypeAlias = Literal["torch", "megatron"]
"""``megatron`` trains bf16 weights with fp32 main weights, as Megatron is used."""


def refuse_fp8(precision: str, backend: str) -> None:
    """:raises SpecError: for fp8 without the backend that has it."""
    if precision == "fp8" and backend != "megatron":
        raise SpecError(
            f"precision fp8 needs TransformerEngine, which backend {backend} does not use; choose"
            " --backend megatron on a GPU, or precision bf16"
        )


def makes_code(device: str) -> bool:
    """Return whether such trials compile code at its first call: on CUDA all do, the torch
    backend's kernels by Triton, and Megatron-Core's fusions by torch.compile and Triton."""
    return device.startswith("cuda")


class BuiltIn(Trainer):
    """The built-in GPT trainer."""

    entry: ClassVar[str] = "trainer.training.child:run_trial"
    reads_corpus: ClassVar[bool] = True
    is_watched: ClassVar[bool] = False
    shared_memory: ClassVar[bool] = False

    def makes_code(self, device: str) -> bool:
        """See :func:`makes_code`."""
        return makes_code(device)

    def imports(self, backend: str, device: str) -> tuple[str, ...]:
        """See :meth:`Trainer.imports`."""
        if not makes_code(device):
            return ()
        return (_COMPILER_KEYS,) if backend == "torch" else (_MEGATRON,)


_COMPILER_KEYS = "trainer.backends.compilation:compute_keys"
_MEGATRON = "trainer.machine.megatron_packages:preload"


def trainer_of(command: Command | None) -> Command | BuiltIn:
    """Return the trainer of a spec with this command."""
    return BuiltIn() if command is None else command


class TrialSpec(RunSchedule):
    """One training run of one config with one seed: all of the trainer's input."""

    trial_id: str
    config: AnyConfig
    seed: NonNegativeInt
    """Seeds the initial weights and the batches."""
    corpus_dir: str = ""
    """Absolute path of a prepared corpus; empty for a command, which brings its own text."""
    corpus_sha256: str = ""
    """The trainer refuses a corpus with another hash."""
    backend: BackendName = "torch"
    cudnn_attention: Annotated[bool, Field(strict=True, exclude_if=lambda wanted: not wanted)] = (
        False
    )
    """Let torch choose cuDNN's attention on a GPU, as it does by default on Hopper. Its backward
    pass in bf16 has returned NaN there (github.com/pytorch/pytorch, issue 196678, with a mask;
    github.com/kyutai-labs/pocket-tts, pull request 264)."""
    compile_cache: str | None = None
    """Absolute path of a directory for compiled code, shared by trials. A command's trial, and one
    that makes code (:func:`makes_code`), may write it and run code that earlier trials compiled.
    None: nothing is kept."""
    device: str = "cpu"
    """``cpu``, ``cuda`` or ``cuda:N``."""
    threads: PositiveInt | None = None
    """Intra-op CPU threads; None: torch's default."""
    log_every: PositiveInt = 1
    """Steps between lines of the curve."""
    prune: PruneRule | None = None
    limits: Limits = Limits()
    train_tokens: PositiveInt | None = None
    """Train on the first so many tokens of the train split; None: all of it."""
    texts: tuple[ScoredText, ...] = ()
    """Texts to score after training besides the corpus' held-out text. A trial can read only the
    files that it names."""
    # Later fields are omitted from JSON if unused, so that older specs are written unchanged.
    scored_apart: Annotated[bool, Field(strict=True, exclude_if=lambda apart: not apart)] = False
    """Train in a process that cannot read the texts to score, and score the saved weights in
    another (:mod:`trainer.training.child`). Trials of a menu with code knobs do."""
    check_kernels: Annotated[bool, Field(strict=True, exclude_if=lambda check: not check)] = False
    """Compare the gradients of a step on the backend's kernels with those on torch's operators
    before training (:func:`trainer.training.kernel_check.compare_gradients`). Warm-up trials do."""
    checkpoints: Annotated[tuple[Checkpoint, ...], Field(max_length=MOST_EVALUATIONS)] = Field(
        (),
        exclude_if=lambda several: not several,
        validation_alias=AliasChoices("checkpoints", "looks"),
    )
    """Additional evaluations on the held-out text."""

    @property
    def evaluation(self) -> tuple[object, ...]:
        """Settings that determine the score besides config, seed and corpus."""
        return self.schedule, self.checkpoints

    command: Command | None = Field(None, exclude_if=lambda command: command is None)
    """Command that trains the config of a command's menu. Omitted from JSON otherwise, so that
    specs of the built-in trainer are written as before."""

    @property
    def trainer(self) -> Command | BuiltIn:
        """What trains the config."""
        return trainer_of(self.command)

    @property
    def gpt(self) -> Config:
        """The config, for the built-in trainer.

        :raises SpecError: if a command trains it.
        """
        return gpt(self.config)

    @property
    def steps(self) -> int | None:
        """Optimizer steps to take; None if only a clock or the trainer can tell."""
        return self.budget.steps(self.config.tokens_per_step)

    @property
    def max_step(self) -> int | None:
        """Last step that its curve can have; None for a command, which counts its own way."""
        return None if self.trainer.is_watched else self.steps

    @property
    def makes_code(self) -> bool:
        """See :func:`makes_code`."""
        return self.trainer.makes_code(self.device)

    @property
    def code_cache(self) -> str | None:
        """The compile cache of a trial that uses one."""
        return self.compile_cache if self.trainer.caches_code(self.device) else None

    @model_validator(mode="after")
    def _check_last_step_known(self) -> Self:
        """Refuse settings that need a known last step if the budget has none."""
        steps = self.steps
        if steps is None:
            if (
                self.cooldown_steps
                or self.checkpoints
                or (self.average and self.average.form == "lawa")
            ):
                raise ValueError(
                    f"a budget of {self.budget} has no known last step, which a cooldown, "
                    "evaluations and lawa need; give it steps or tokens"
                )
            return self
        late = max((one.step or 0 for one in self.checkpoints), default=0)
        if late > steps or self.cooldown_steps > steps:
            raise ValueError(
                f"an evaluation after step {late} and a cooldown of {self.cooldown_steps} do not "
                f"both fit into the {steps} steps of the budget"
            )
        return self

    @model_validator(mode="after")
    def _of_one_trainer(self) -> Self:
        if isinstance(self.config, CommandConfig) != (self.command is not None):
            raise ValueError(
                "a config with named values needs a command, and any other config none"
            )
        if self.trainer.reads_corpus and not self.corpus_dir:
            raise ValueError("corpus_dir is missing; give the path of a prepared corpus")
        if self.texts and not self.trainer.reads_corpus:
            raise ValueError("a command scores its own text and no other")
        return self

    @model_validator(mode="after")
    def _check_backend_options(self) -> Self:
        if self.cudnn_attention and self.backend != "torch":
            raise ValueError(f"cudnn_attention is for the torch backend, not {self.backend}")
        return self
