"""Define an option that a training script offers, and decide by its name what it is for."""

import re
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Literal, TypeAlias

from autoresearch.values import Scalar


@dataclass(frozen=True, slots=True)
class Option:
    """One option of a script."""

    name: str
    """Identifier that names the knob in the menu."""
    line: int
    """Line of its definition, from 1."""
    default: Scalar | None = None
    argument: str = ""
    """Form in the command, such as ``--lr={lr}``, or ``{amp:--amp}`` for a switch; empty if it is
    passed otherwise."""
    variable: str = ""
    """Environment variable that passes it."""
    choices: tuple[Scalar, ...] = ()
    """Values that the script accepts, as far as known."""
    low: float | None = None
    high: float | None = None
    doc: str = ""
    required: bool = False
    command: str = ""
    """Subcommand that it belongs to."""
    left: str = ""
    """Why it cannot be set from outside without a person's help; empty if it can."""


def identifier(text: str) -> str:
    """Return ``--learning-rate`` as ``learning_rate``."""
    name = re.sub(r"\W", "_", text.lstrip("-"), flags=re.ASCII)
    return f"_{name}" if not name or name[0].isdigit() else name


def passed(flag: str, name: str) -> str:
    """Return how a flag takes a value in one word: ``--lr={lr}``, ``-l{lr}``."""
    return f"{flag}={{{name}}}" if flag.startswith("--") else f"{flag}{{{name}}}"


def switched(name: str, yes: str, no: str = "") -> str:
    """Return how a boolean is passed: ``{bias:--bias|--no-bias}``, ``{amp:--amp}``."""
    return f"{{{name}:{yes}|{no}}}" if no else f"{{{name}:{yes}}}"


def typed(value: Scalar | None, kind: str) -> Scalar | None:
    """Return a value converted to the script's declared type: 1 becomes 1.0 for a float, 1e3
    becomes 1000 for an int."""
    if isinstance(value, int) and not isinstance(value, bool) and kind == "float":
        return float(value)
    if isinstance(value, float) and kind == "int" and value.is_integer():
        return int(value)
    if isinstance(value, str) and kind in {"int", "float"}:
        try:
            return int(value) if kind == "int" else float(value)
        except ValueError:
            return value
    return value


def typed_choices(values: tuple[Scalar, ...], kind: str) -> tuple[Scalar, ...]:
    """Return the script's choices in its declared type."""
    return tuple(one for one in (typed(value, kind) for value in values) if one is not None)


Role: TypeAlias = Literal["knob", "length", "evaluation", "machine", "irrelevant"]

_SCHEDULE = r"warm ?up|warm ?down|cool ?down"
_IRRELEVANT = (
    r"log|logs|logging|print|wandb|track|project|entity|name|verbose|debug|profile|profiler|"
    r"checkpoints?|ckpt|save|resume|load|init from|export|upload|push|hf|url|host|port|rank|dry|"
    r"version|video|tensorboard|tb|notes?|tags?|user|progress|quiet|backend|world size|n?gpus?|"
    r"nproc|num proc(esses)?|evaluate|inference|dummy|workers|n ?jobs|pin mem(ory)?|distributed|"
    r"dist|ddp|fsdp|download|deterministic|peak|flops|prefetch(er)?|timeout|display|plot|viz|visuali[sz]e|"
    r"interactive|exp|experiment|(sample|generate) only|overfit( \w+)? batch|write tensors|"
    r"(sample|sampling|generate|gc collect|\w+ metric) (every|interval|freq|frequency)"
)
_MACHINE = (
    r"cpu|compile|dtype|precision|amp|bf16|fp16|fp8|tf32|cuda|no cuda|accel|mps|flash|offload"
)
_EVALUATION = (
    r"eval|evaluation|val|valid|validate|validation|test|held ?out|vocab|vocabulary|"
    r"seeds?|random states?|"
    r"block size|seq(uence)? len(gth)?|context|ctx|bptt|max len(gth)?|img size|image size|"
    r"resolution|(n|num)? ?class(es)?|label smoothing|data|datasets?|corpus|tokenizer|task|env|"
    r"files?|path|dir|folder|(?<!samples )split|shards?|upscale factor|target(?! network)|reward|"
    r"labels?|prior|(n|k)? ?folds?|nfold|image shape|(in|input|out|output) "
    r"(dim|size|shape|features|channels)|d (in|out)"
)
_LENGTH = (
    r"epochs?|time budget|iterations|timesteps|episodes|horizon|decay (iters|steps)|niter|nepochs?|"
    r"(?:^|max|num|total|n|train|training) (iters?|steps|updates|samples|tokens|batches)$|"
    r"^(iters?|steps|updates|budget|duration)$|^start"
)
_ROLES: tuple[tuple[Role, str], ...] = (
    ("knob", _SCHEDULE),
    ("evaluation", r"eval|evaluation|val|valid|validate|validation|test"),
    ("irrelevant", _IRRELEVANT),
    ("length", _LENGTH),
    ("evaluation", _EVALUATION),
    ("machine", _MACHINE),
)
_MEASURES = r"validat(e|es|ing|ion)|evaluat(e|es|ing|ion)"
"""Words in the help of a switch that changes how or when a score is measured."""

_GIVEN = (
    (
        r"((np|numpy|torch|cuda|tf|random|jax|prngkey|manual|global|init|set) )*seed"
        r"( all| everything)?|random state",
        True,
        "{seed}",
    ),
    (r"(n |num |torch |n)?threads?", True, "{threads}"),
    (r"device( type| name)?", False, "{device}"),
    (
        r"(max|num|total|n|train|training)? ?(train )?(iters?|steps|iterations|updates)|niters?",
        True,
        "{steps}",
    ),
    (r"(lr )?decay (iters|steps)|horizon", True, "{horizon}"),
    (r"time budget|max seconds|(max )?wallclock seconds", True, "{seconds}"),
    (
        r"(out|output|save|log|logging|ckpt|checkpoint|results?|runs?|exp|experiment|model|work|tb)"
        r" ?(dir|path|folder|directory)|outf|out",
        False,
        "{out}",
    ),
)
"""Names, whether their values are numbers, and the placeholder to use."""
_WHATEVER_THE_DEFAULT = {"{seed}", "{threads}", "{device}", "{out}"}
"""Placeholders that also replace a default that the script computes, such as the time."""
_SAVED_FILE = r"(save|save model|model)( path| file| to)?"


def words_of(name: str) -> str:
    """Return ``TOTAL_BATCH_SIZE``, ``totalBatchSize`` and ``total-batch-size`` as ``total batch
    size``."""
    parted = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", " ", name)
    return " ".join(re.split(r"[\W_]+", parted)).strip().lower()


def says(name: str, pattern: str) -> bool:
    """Return whether the words of a name contain a pattern of whole words."""
    return re.search(rf"\b(?:{pattern})\b", words_of(name)) is not None


def role_of(option: Option) -> Role:
    """Return the option's role according to its name, and of a switch also to its help."""
    role: Role = next((role for role, pattern in _ROLES if says(option.name, pattern)), "knob")
    is_switch = isinstance(option.default, bool)
    return "evaluation" if role == "knob" and is_switch and says(option.doc, _MEASURES) else role


def given_by(option: Option) -> str:
    """Return the placeholder that the loop fills for an option, such as ``{seed}`` or ``{out}``;
    empty if it fills none."""
    default, words = option.default, words_of(option.name)
    is_unknown = option.left.startswith("its default") and bool(option.argument)
    if (option.left and not is_unknown) or isinstance(default, bool):
        return ""
    for pattern, numbers, given in _GIVEN:
        fits = default is None or numbers == isinstance(default, int | float)
        if fits and re.fullmatch(pattern, words):
            is_fraction = isinstance(default, float) and given != "{seconds}"
            is_needed = is_unknown and given not in _WHATEVER_THE_DEFAULT
            return "" if is_fraction or is_needed else given
    file = PurePosixPath(default).name if isinstance(default, str) else ""
    is_saved = "." in file and not set(file) & set("{}") and re.fullmatch(_SAVED_FILE, words)
    return f"{{out}}/{file}" if is_saved else ""
