"""The plain data that crosses between rooms: what to train, and what came of it.

Nothing here imports torch, so the rooms that only remember or decide can import it. All types are
frozen and validated at construction; unknown fields are refused. JSON is their only wire format.
"""

from __future__ import annotations

import hashlib
import json
from typing import Annotated, Any, Literal, Self, TypeAlias

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError, model_validator

from trainer.errors import SpecError

Scalar: TypeAlias = bool | int | float | str
"""The value of a knob."""

PositiveInt = Annotated[int, Field(gt=0, strict=True)]
NonNegativeInt = Annotated[int, Field(ge=0, strict=True)]
Finite = Annotated[float, Field(allow_inf_nan=False)]
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
NonNegative = Annotated[float, Field(ge=0, allow_inf_nan=False)]


class Frozen(BaseModel):
    """A value: immutable, comparable, without unknown fields."""

    model_config = ConfigDict(frozen=True, extra="forbid", protected_namespaces=())


# --- what to train ---------------------------------------------------------------------------


class Config(Frozen):
    """One complete setting of everything a recipe is made of.

    Every field is required: a config says all of itself. A field that a later version adds must
    have a default, which :meth:`canonical` leaves out, so that the hash of an older config stands.
    """

    n_layer: PositiveInt
    n_head: PositiveInt
    d_model: PositiveInt
    d_ff: PositiveInt
    """Hidden width of the feed-forward block; for SwiGLU that of each of its two branches
    (Megatron's ``ffn_hidden_size``)."""
    activation: Literal["gelu", "swiglu"]
    norm: Literal["layernorm", "rmsnorm"]
    positions: Literal["learned", "rotary"]
    tie_embeddings: Annotated[bool, Field(strict=True)]

    lr: Positive
    lr_warmup: NonNegativeInt
    """Steps of linear warm-up."""
    lr_min_ratio: Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)]
    """The learning rate at the schedule's horizon, as a fraction of ``lr``."""
    grad_clip: Positive
    weight_decay: NonNegative
    """Decoupled, applied to matrices only."""
    beta1: Annotated[float, Field(ge=0, lt=1, allow_inf_nan=False)]
    beta2: Annotated[float, Field(ge=0, lt=1, allow_inf_nan=False)]

    batch_size: PositiveInt
    """Sequences a step."""
    seq_len: PositiveInt
    """Tokens a sequence."""
    precision: Literal["fp32", "bf16", "fp8"]

    n_kv_head: PositiveInt | None = None
    """Heads of keys and values, each shared by ``n_head / n_kv_head`` heads of queries (grouped
    queries, Ainslie et al. 2023); None: one for each, as many as ``n_head``."""

    @model_validator(mode="after")
    def _shape_is_whole(self) -> Self:
        if self.d_model % self.n_head:
            raise ValueError(f"d_model {self.d_model} is not a multiple of n_head {self.n_head}")
        if self.n_kv_head is not None and self.n_head % self.n_kv_head:
            raise ValueError(
                f"n_head {self.n_head} is not a multiple of n_kv_head {self.n_kv_head}"
            )
        if self.positions == "rotary" and (self.d_model // self.n_head) % 2:
            raise ValueError(
                f"rotary positions need an even head_dim, not {self.d_model // self.n_head}"
            )
        return self

    @property
    def tokens_per_step(self) -> int:
        return self.batch_size * self.seq_len

    @property
    def kv_heads(self) -> int:
        """Heads of keys and values."""
        return self.n_head if self.n_kv_head is None else self.n_kv_head

    def canonical(self) -> dict[str, Scalar]:
        """The config as it is stored and hashed."""
        return self.model_dump(exclude_defaults=True)

    @property
    def config_hash(self) -> str:
        """SHA-256 of the canonical JSON: sorted keys, no spaces, shortest round-trip floats."""
        text = json.dumps(self.canonical(), sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()


class Budget(Frozen):
    """How long to train."""

    unit: Literal["steps", "tokens", "seconds"] = "steps"
    amount: Positive = 60

    @model_validator(mode="after")
    def _whole_where_counted(self) -> Self:
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

    def steps(self, tokens_per_step: int) -> int | None:
        """Optimizer steps this buys, rounded up; None where only a clock can tell."""
        if self.unit == "steps":
            return int(self.amount)
        if self.unit == "tokens":
            return -(-int(self.amount) // tokens_per_step)
        return None


class PruneRule(Frozen):
    """Stop where the mean training loss of the last ``window`` steps up to ``at_step`` exceeds
    ``max_loss`` (nats per token): the config is hopeless against its reference's curves."""

    at_step: PositiveInt
    window: PositiveInt
    max_loss: Positive


class Limits(Frozen):
    """What a trial may use before the supervisor ends it."""

    wall_s: Positive = 1800
    memory_gib: Positive | None = None
    """Resident memory of the trial and its descendants."""
    log_bytes: PositiveInt = 1 << 20
    file_bytes: PositiveInt = 1 << 30
    """The largest file the trial may write."""
    processes: PositiveInt = 64
    """Descendants, the trial itself included; threads do not count."""
    open_files: PositiveInt = 4096


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


BackendName: TypeAlias = Literal["torch", "megatron"]


class TrialSpec(Frozen):
    """One training run of one config with one seed: all that the trainer is told."""

    trial_id: str
    config: Config
    seed: NonNegativeInt
    """Draws the initial weights and the batches."""
    corpus_dir: str
    """Absolute path of a prepared corpus."""
    corpus_sha256: str
    """The trainer refuses a corpus that is not the one meant."""
    budget: Budget = Budget()
    horizon_steps: PositiveInt | None = 1000
    """Steps over which the cosine would decay to ``lr_min_ratio``; the trained steps are a prefix
    of it. None: the budget itself."""
    backend: BackendName = "torch"
    fp8: Fp8Recipe = Fp8Recipe()
    """Looked at by the megatron backend where the precision is fp8."""
    compile: Annotated[bool, Field(strict=True)] = False
    """Train the torch backend's blocks and loss through torch.compile. Other sums than without, to
    the last digits, so it is the same for all trials of a campaign. Compiling is set-up, and not
    in ``train_s``."""
    compile_cache: str | None = None
    """Absolute path of a directory that a compiling trial may write besides its own, and whose code
    it runs: what earlier trials compiled. None: nothing is kept."""
    device: str = "cpu"
    """``cpu``, ``cuda`` or ``cuda:N``."""
    threads: PositiveInt | None = None
    """Intra-op CPU threads; None: what torch picks."""
    log_every: PositiveInt = 1
    """Steps between lines of the curve."""
    prune: PruneRule | None = None
    limits: Limits = Limits()

    @model_validator(mode="after")
    def _only_torch_compiles(self) -> Self:
        if self.compile and self.backend != "torch":
            raise ValueError(f"compile is for the torch backend, not {self.backend}")
        return self


# --- what came of it --------------------------------------------------------------------------


class CurvePoint(Frozen):
    """One line of curve.jsonl. ``loss`` and ``grad_norm`` are of this step, before its update."""

    step: PositiveInt
    """1 for the first."""
    tokens: PositiveInt
    """Trained on so far, this step included."""
    loss: Finite
    """Nats per token."""
    lr: NonNegative
    grad_norm: NonNegative
    """Before clipping."""
    elapsed_s: NonNegative
    """Since the first step began."""


class TrialOk(Frozen):
    """A trial that ended with a measurement."""

    status: Literal["ok"] = "ok"
    val_bpb: Positive
    """sum(NLL in nats) / (ln 2 × UTF-8 bytes scored)."""
    val_bits_per_token: Positive
    val_bytes: PositiveInt
    val_tokens: PositiveInt
    train_loss_first: Finite
    train_loss_last: Finite
    steps: PositiveInt
    tokens: PositiveInt
    params: PositiveInt
    step_ms: Positive
    """Median over the steps after the first."""
    tokens_per_s: Positive
    """Tokens trained over ``train_s``."""
    train_s: NonNegative
    eval_s: NonNegative
    setup_s: NonNegative
    """From the birth of the trial's process to its first step."""
    peak_mem_gib: NonNegative
    """Peak device memory allocated on CUDA; peak resident memory on CPU."""
    peak_reserved_gib: NonNegative | None = None
    """Peak device memory that the allocator held, in use or not; None on CPU."""
    energy_wh: NonNegative | None = None
    """None where nothing measures it."""
    backend: str
    device: str
    """The device's own name."""
    precision: str


FailureStatus: TypeAlias = Literal["nonfinite", "oom", "timeout", "crash", "killed", "pruned"]


class TrialFailed(Frozen):
    """A trial that ended without one. It carries no score: failure is never a number."""

    status: FailureStatus
    message: Annotated[str, Field(max_length=2000)]
    """One sentence for a person and for the proposer."""
    steps: NonNegativeInt | None = None
    """Optimizer steps done, where known."""
    peak_mem_gib: NonNegative | None = None


TrialResult: TypeAlias = Annotated[TrialOk | TrialFailed, Field(discriminator="status")]

_RESULT: TypeAdapter[TrialOk | TrialFailed] = TypeAdapter(TrialResult)


def parse_result(text: str | bytes) -> TrialOk | TrialFailed:
    """The TrialResult in a result.json.

    :raises pydantic.ValidationError: on anything else.
    """
    return _RESULT.validate_json(text)


class CorpusInfo(Frozen):
    """What a prepared corpus is: its ``meta.json``, and the journal's record of the ruler."""

    name: str
    sha256: str
    """Over the train tokens, held-out tokens and tokenizer: two corpora with one hash are one."""
    heldout_sha256: str
    """Over the held-out token file alone: the ruler, checked by every trial."""
    tokenizer: str
    """``bytes``, ``bpe:1024`` or ``file:NAME``."""
    vocab_size: PositiveInt
    separator_id: NonNegativeInt
    """The token before each document; it stands for no byte of text."""
    dtype: Literal["uint8", "uint16", "uint32"]
    documents: PositiveInt
    duplicates: NonNegativeInt
    train_documents: PositiveInt
    train_tokens: PositiveInt
    train_bytes: PositiveInt
    heldout_documents: PositiveInt
    heldout_tokens: PositiveInt
    heldout_bytes: PositiveInt
    """Exact UTF-8 bytes of the held-out text: the divisor of val_bpb."""


def explain(error: ValidationError) -> str:
    """A pydantic error as one clause: the field, what is wrong, the value seen."""
    clauses = []
    for item in error.errors(include_url=False):
        where = ".".join(str(part) for part in item["loc"])
        message = item["msg"].removeprefix("Value error, ")
        seen = "" if item["type"] in {"missing", "value_error"} else f" (got {item['input']!r:.80})"
        clauses.append(f"{where}: {message}{seen}" if where else f"{message}{seen}")
    return "; ".join(clauses)


def make_config(values: dict[str, Any]) -> Config:
    """The Config of these values.

    :raises SpecError: naming the field.
    """
    try:
        return Config.model_validate(values)
    except ValidationError as error:
        raise SpecError(f"no such config can be trained: {explain(error)}") from error
