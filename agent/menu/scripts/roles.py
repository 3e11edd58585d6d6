"""Decide by its name what an option is for: a knob, a constant, set by the loop, or irrelevant.

The names are those that trainers use; a person corrects the rest. Two kinds are held constant
although they could be changed. The length of a run, because a longer run is not a better recipe;
and the evaluation (its data, the length of a sequence), because the protocol must not change
with what it measures. Which numbers in a call are options at all is decided by ``_ARGUMENT`` and
``_PLACED`` in ``trainer/script/nested.py``.
"""

from __future__ import annotations

import re
from pathlib import PurePosixPath
from typing import Literal, TypeAlias

from agent.menu.scripts.option import Option

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
    default = option.default
    if option.left and not (option.left.startswith("its default") and option.argument):
        return ""
    is_number = isinstance(default, int | float)
    if isinstance(default, bool):
        return ""
    for pattern, numbers, given in _GIVEN:
        if re.fullmatch(pattern, words_of(option.name)) and (
            default is None or numbers == is_number
        ):
            is_unknown = bool(option.left) and given not in _WHATEVER_THE_DEFAULT
            return (
                "" if (isinstance(default, float) and given != "{seconds}") or is_unknown else given
            )
    if isinstance(default, str) and re.fullmatch(_SAVED_FILE, words_of(option.name)):
        file = PurePosixPath(default).name
        return f"{{out}}/{file}" if "." in file and not set(file) & set("{}") else ""
    return ""
