"""Plain data that crosses between packages: what to train, and the result.

Nothing here imports torch, so packages that only record or decide can import it. All types are
frozen and validated at construction; unknown fields are refused. JSON is their only wire format.
"""

from trainer.spec.base_config import BaseConfig, CommandConfig, code_diffs, difference
from trainer.spec.command import Check, Command, CurveRule, ScoreRule, ScriptInfo, SentBy, Take
from trainer.spec.config import (
    GATED_ACTIVATIONS,
    Activation,
    AnyConfig,
    Config,
    gpt,
    make_config,
)
from trainer.spec.curve import CurveLines, KeptCurve
from trainer.spec.evaluations import Averaging, Checkpoint
from trainer.spec.measure import BITS_PER_BYTE, BPB, Direction, Measure
from trainer.spec.result import (
    MAX_MESSAGE_CHARACTERS,
    CommandOk,
    CurvePoint,
    FailureStatus,
    Measured,
    Place,
    TextScore,
    TrialFailed,
    TrialOk,
    TrialResult,
    parse_result,
)
from trainer.spec.schedule import Budget, RunSchedule
from trainer.spec.text import MOST_PARTS, CorpusInfo, ScoredText, TextPart
from trainer.spec.trial import (
    DEFAULT_RESERVE_GIB,
    MOST_MEMORY_GIB,
    BackendName,
    Fp8Recipe,
    Limits,
    MemoryGib,
    PruneRule,
    TrialSpec,
    makes_code,
)

__all__ = [
    "BITS_PER_BYTE",
    "BPB",
    "DEFAULT_RESERVE_GIB",
    "GATED_ACTIVATIONS",
    "MAX_MESSAGE_CHARACTERS",
    "MOST_MEMORY_GIB",
    "MOST_PARTS",
    "Activation",
    "AnyConfig",
    "Averaging",
    "BackendName",
    "BaseConfig",
    "Budget",
    "Check",
    "Checkpoint",
    "Command",
    "CommandConfig",
    "CommandOk",
    "Config",
    "CorpusInfo",
    "CurveLines",
    "CurvePoint",
    "CurveRule",
    "Direction",
    "FailureStatus",
    "Fp8Recipe",
    "KeptCurve",
    "Limits",
    "Measure",
    "Measured",
    "MemoryGib",
    "Place",
    "PruneRule",
    "RunSchedule",
    "ScoreRule",
    "ScoredText",
    "ScriptInfo",
    "SentBy",
    "Take",
    "TextPart",
    "TextScore",
    "TrialFailed",
    "TrialOk",
    "TrialResult",
    "TrialSpec",
    "code_diffs",
    "difference",
    "gpt",
    "make_config",
    "makes_code",
    "parse_result",
]
