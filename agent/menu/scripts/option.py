"""Define a setting that a training script offers, and decide by its name what it is for.

A name decides by all of its words: ``log_interval`` is about logging, ``log_std_init`` is not. What
a name cannot decide alone, its value does: ``--rank 8`` is LoRA's, ``--rank 0`` a process's.
"""

import re
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Literal, TypeAlias

from autoresearch.values import Scalar


@dataclass(frozen=True, slots=True)
class Option:
    """One setting of a script, however the script takes it."""

    name: str
    """Identifier that names the knob in the menu."""
    default: Scalar | None = None
    argument: str = ""
    """Form in the command, such as ``--lr={lr}``, or ``{amp:--amp}`` for a switch; empty if it is
    passed otherwise."""
    variable: str = ""
    """Environment variable that passes it."""
    kind: str = ""
    """Type that the script declares: int, float, bool, str; empty if it declares none."""
    choices: tuple[Scalar, ...] = ()
    """Values that the script accepts, as far as known."""
    low: float | None = None
    high: float | None = None
    doc: str = ""
    required: bool = False
    command: str = ""
    """Subcommand that it belongs to."""
    by_hand: bool = False
    """Whether its default was given on the command line."""
    left: str = ""
    """Why it cannot be set from outside without a person's help; empty if it can."""


def identifier(text: str) -> str:
    """Return ``--learning-rate`` as ``learning_rate``."""
    name = re.sub(r"\W", "_", text.lstrip("-"), flags=re.ASCII)
    return f"_{name}" if not name or name[0].isdigit() else name


def words_of(name: str) -> str:
    """Return ``TOTAL_BATCH_SIZE``, ``totalBatchSize`` and ``total-batch-size`` as ``total batch
    size``."""
    parted = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", " ", name)
    return " ".join(re.split(r"[\W_]+", parted)).strip().lower()


def says(name: str, pattern: str) -> bool:
    """Return whether the words of a name contain a pattern of whole words."""
    return re.search(rf"\b(?:{pattern})\b", words_of(name)) is not None


def is_named(name: str, pattern: str) -> bool:
    """Return whether a pattern matches all words of a name."""
    return re.fullmatch(pattern, words_of(name)) is not None


# --- what the loop sets --------------------------------------------------------------------------

_STEPS = (
    r"(max|num|total|train|training)? ?(train(ing)? )?(iters?|steps|iterations|updates)|niters?"
    r"|nsteps|n (iters?|iterations|updates)"  # n_steps are those of a rollout
)
GIVEN: tuple[tuple[str, bool, str, str], ...] = (
    (
        r"(\w+ )*(seeds?|rng|determinism)( \w+)?|(\w+ )*random state( \d+)?",
        True,
        "{seed}",
        "the seed",
    ),
    (r"(n |num |torch |n)?threads?", True, "{threads}", "the campaign's threads"),
    (r"device( type| name)?", False, "{device}", "the campaign's device"),
    (_STEPS, True, "{steps}", "the length of a trial"),
    (r"(lr )?decay (iters|steps)|horizon", True, "{horizon}", "the length of the schedule"),
    (
        r"time budget|max seconds|(max )?wallclock seconds|max time",
        True,
        "{seconds}",
        "the length of a trial",
    ),
    (
        r"((out|output|save|log|logging|ch?kpt|checkpoint|results?|runs?|exp|experiment|model|work|tb"
        r"|metrics?) ?)+(dir|path|folder|directory|file|to)|outf?|output|default root dir",
        False,
        "{out}",
        "the trial's own directory",
    ),
)
"""Names, whether their values are numbers, the placeholder to use, and what it stands for."""
_SAVED_FILE = r"save( model)?|model|metrics?|results?|logs?"
"""Names of a file that a run writes, if their default has a suffix."""
_LOADED_FILE = r"(ch?kpt|checkpoint) (path|file)"
"""Names of a file that a run goes on from, if they have no default."""
_WHATEVER_THE_DEFAULT = {"{seed}", "{threads}", "{device}", "{out}"}
"""Placeholders that also replace a default that the script computes, such as the time."""
_OTHER_SEEDS = r"(data|split|dataset|eval|val|test|sample|sampling|shuffle|fold|env) (seed|.*state)"
"""Seeds that choose the data or how it is scored, and not how it is trained."""


def given_by(option: Option) -> str:
    """Return the placeholder that the loop fills for an option, such as ``{seed}`` or ``{out}``;
    empty if it fills none."""
    default, words = option.default, words_of(option.name)
    is_unknown = option.left.startswith("its default") and bool(option.argument)
    if (option.left and not is_unknown) or isinstance(default, bool):
        return ""
    file = PurePosixPath(default).name if isinstance(default, str) else ""
    is_file = re.fullmatch(r"[^{}.]+(\.\w{1,12})+", file) is not None
    if is_file and re.fullmatch(_SAVED_FILE, words):
        return f"{{out}}/{file}"
    if default is None and re.fullmatch(_LOADED_FILE, words):
        return ""
    for pattern, numbers, given, _ in GIVEN:
        fits = default is None or numbers == isinstance(default, int | float)
        if not fits or not re.fullmatch(pattern, words) or re.fullmatch(_OTHER_SEEDS, words):
            continue
        is_fraction = isinstance(default, float) and given != "{seconds}"
        is_needed = is_unknown and given not in _WHATEVER_THE_DEFAULT
        if is_fraction or is_needed:
            return ""
        return f"{{out}}/{file}" if given == "{out}" and is_file else given
    return ""


# --- what else a name says -----------------------------------------------------------------------

Role: TypeAlias = Literal["knob", "length", "evaluation", "machine", "irrelevant"]

SCHEDULE = r"warm ?up|warm ?down|cool ?down"
_EVERY = r"every|intervals?|intvl?|freq|frequency|period"
_WRITES = (
    r"log|logging|print|report|display|plot|save|saving|ch?kpt|checkpoints?|checkpointing|sample|"
    r"sampling|generate|vis|viz|visuali[sz]e|dump|video|record|render|hist|write|summary|snapshot|"
    r"show|draw|export|upload|push|gc collect|wandb|metric|metrics"
)
_IRRELEVANT = (
    rf"({_WRITES})( \w+){{0,2}} ({_EVERY}|steps?|iters?|epochs?|dir|path|file|folder|level|name|to|"
    r"best|last|limit|strategy|format|only|model|images?|samples?|grads?|tensors|all|code|log)",
    rf"({_WRITES})s?( model)?|always save checkpoint|(\w+ )?metric (every|freq|interval)",
    r"(use |with |no |enable |report )?(wandb|tensorboard|tb|mlflow|comet|neptune|track)( \w+)*",
    r"verbos(e|ity)|debug|quiet|silent|logger|progress( bar)?|p?bar|tqdm|disable tqdm",
    r"(resume|restore|init from|pretrained|hub|hf|push|profiler?|profiling|dist|master|job)"
    r"( \w+)*|load( (from|model|path|ch?kpt|checkpoint|weights|dir|file))*",
    r"url|host|port|ip|local rank|node rank|world size|n?nodes|num nodes|n?gpus?|num gpus|gpu ids?",
    r"(num |n |data )?(workers|procs?|processes|jobs)|dataloader num workers|nproc( \w+)*",
    r"pin mem(ory)?|prefetch( \w+)*|persistent workers|(\w+ )?distributed|ddp|fsdp|multi ?gpu",
    r"backend|(\w+ )?deterministic",
    r"download|dry run|version|config|cfg|(config|cfg) (file|path|name)|notes?|tags?|comment|user|"
    r"entity|project( name)?|group|(exp|experiment|run)( name| id)?|name|timeout",
    r"interactive|evaluate|inference|(\w+ )?only|predict|overfit( \w+)* batch(es)?|dummy( \w+)*",
    r"cudnn( \w+)*|capture video|(\w+ )*flops",
)
_LENGTH = (
    r"(max|num|n|nb|total|train|training)? ?(train(ing)? )?"
    r"(n?epochs?|iters?|iterations|(?<!n )steps|updates|timesteps|episodes|samples|tokens|"
    r"batches|frames)",
    r"niters?|nsteps|start (epoch|iter|step)|time budget|horizon|budget|duration|max time",
    r"num rounds|(lr )?decay (iters|steps)",
)
_EVALUATION = (
    r"(eval|evaluation|val|valid|validate|validation|test|dev|heldout|held out)( \w+)*",
    r"(max )?(block size|seq(uence)?( ?len(gth)?)?|context( len(gth)?| size)?|ctx( len)?|bptt)",
    r"max( seq(uence)?| source| target| \w+)? ?len(gth)?|n (ctx|positions)",
    r"(n |num |padded )?vocab(ulary)?( size)?|(n|num)? ?(class(es)?|labels|folds?)|k ?folds?|nfold",
    r"(n|num) features",
    r"(img|image|crop|input|in|out|output) (size|dim|shape|features|channels|height|width)",
    r"(img|image|crop) ?size|resolution|d (in|out)|upscale factor|image shape( \d+)?|channels img",
    r"(test|train|val) (size|split|fraction)|split( ratio| size)?|target( col(umn)?| size)?",
    r"prior( \w+)?",
    r"label(s| col(umn)?)?|reward( \w+)?|(\w+ )*(seeds?|random states?)",
    r"data|dataset|datasets|corpus|tokenizer|task|env( id)?|environment|gym id|shards?|subset",
    r"(data|dataset|train|corpus|env) (name|id|dir|path|root|file|set|config|type|split)",
)
_MACHINE = (
    r"(no |use |disable )?(cpu|cuda|gpu|mps|xpu|accel(erator)?|jit|amp|fp16|bf16|fp8|tf32|half|"
    r"dtype|precision|mixed precision|offload|flash( \w+)?|(torch )?compile|channels last)( mode)?",
)
_A_PATH = r"(\w+ )*(files?|path|dir|folder|directory|root|filename)"
_ONE_PROCESS = None, -1, 0, 1
"""Ranks of a process; another rank is that of a matrix."""
_MEASURES = r"validat(e|es|ing|ion)|evaluat(e|es|ing|ion)"
"""Words in the help of a switch that changes how or when a score is measured."""
WHY: dict[str, str] = {
    "length": "how long it trains: a longer run is not a better recipe",
    "evaluation": "changes what the score is measured with or on",
    "machine": "the script chooses it for the machine",
    "irrelevant": "for logging, saving or launching, by its name",
}


def role_of(option: Option) -> Role:
    """Return the option's role according to its name, its value, and a switch's help."""
    words, default = words_of(option.name), option.default
    if says(option.name, SCHEDULE):
        return "knob"
    if words == "rank":
        return "irrelevant" if default in _ONE_PROCESS else "knob"
    roles: tuple[tuple[Role, tuple[str, ...]], ...] = (
        ("irrelevant", _IRRELEVANT),
        ("length", _LENGTH),
        ("evaluation", _EVALUATION),
        ("machine", _MACHINE),
    )
    for role, patterns in roles:
        if any(re.fullmatch(pattern, words) for pattern in patterns):
            return role
    if isinstance(default, str) and re.fullmatch(_A_PATH, words):
        return "evaluation"
    is_switch = isinstance(default, bool)
    return "evaluation" if is_switch and says(option.doc, _MEASURES) else "knob"
