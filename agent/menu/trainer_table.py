"""``[trainer]``: the command of a menu that trains with the user's own script.

    [trainer]
    command = "python train.py --lr={lr} --seed={seed} --out_dir={out}"
    directory = "."                # of the script; relative to the menu
    score = "val loss"             # the words before the number, in the last line that has them
    direction = "minimise"

The command may be a list of words, and the score a table with a pattern:
``{ pattern = 'val loss ([-+0-9.eE]+)', take = "last" }``.

A name in braces is a knob, a tied field, a constant, or one of :data:`BUILT_IN`. For a boolean
the braces may hold both words: ``{bias:--bias|--no-bias}``, or ``{amp:--amp}`` for a switch, and a
word of the command that becomes empty is omitted. Nothing here passes through a shell.

``[score.check]`` holds a second command, which scores what the first left behind. It has the keys
of a score, and its command the same placeholders.
"""

import re
import shlex
from collections.abc import Iterator, Mapping
from string import Formatter
from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Field, model_validator

from agent.menu.scripts.metrics import curve_pattern, direction_of, pattern_of
from autoresearch.values import Finite, Frozen, PlainText, Positive
from autoresearch.words import first_fault, json_text
from trainer.machine.environment import may_be_secret
from trainer.schema import BITS_PER_BYTE, CurveRule, Direction, Measure, ScoreRule, SentBy
from trainer.schema.command import Module, Pattern

_NO_KEYS = re.compile(r"(^|_)(TOKENS|TOKENIZER)(_|$)")
"""Names of variables that count or divide text."""
_KEYS = re.compile(
    r"(API|ACCESS|SECRET|PRIVATE|SSH|AUTH|HF|HUB|WANDB|OPENAI|GITHUB)_?(KEY|TOKEN)|PASSW|CREDENTIAL"
)
"""Names that are a key's whatever the value."""


def is_secret(name: str, value: str) -> bool:
    """Return whether a variable of a menu may hold a secret, by its name or its value; a number or
    a placeholder is one only under the usual name of a key."""
    if not may_be_secret(name, value):
        return False
    is_plain = re.fullmatch(r"[-+]?[\d.]+(e[-+]?\d+)?|\{\w+\}|True|False", value) is not None
    is_count = _NO_KEYS.search(name.upper()) is not None and not may_be_secret("", value)
    return _KEYS.search(name.upper()) is not None or not (is_plain or is_count)


def refuse(*faults: tuple[object, str]) -> None:
    """Raise the clause of the first fault whose condition holds."""
    if clause := first_fault(*faults):
        raise ValueError(clause)


def _groups(pattern: str | None) -> int:
    return re.compile(pattern or "").groups


def check_rule(score: ScoreRule) -> None:
    """Check that a rule has one location for the score, with one number.

    :raises ValueError: one clause that names the fault and the fix.
    """
    file, pattern = score.file, score.pattern
    is_outside = file is not None and (file.startswith("/") or ".." in file.split("/"))
    refuse(
        (
            (pattern is None) == (file is None),
            'score is either { pattern = \'…\' } or { file = "…", key = "…" }; give one of the two',
        ),
        (
            (file is None) != (score.key is None),
            "score has a file and a key, both or none; give both",
        ),
        (
            is_outside,
            f"score file {json_text(file)} is not in the trial's directory; name it relative to "
            "{out}",
        ),
        (
            pattern is not None and _groups(pattern) != 1,
            f"score pattern {json_text(pattern)} has {_groups(pattern)} groups in ( ); use one "
            "group, the number",
        ),
    )


def _split(command: object) -> object:
    """Return a command's words; a text is split as a shell would split it."""
    return tuple(shlex.split(command)) if isinstance(command, str) else command


Words = Annotated[tuple[str, ...], BeforeValidator(_split), Field(min_length=1, max_length=200)]


def _rule(score: object) -> object:
    """Return a score's table with the pattern of its label; a text is a label."""
    table = {"label": score} if isinstance(score, str) else score
    if not isinstance(table, dict) or not isinstance(table.get("label"), str):
        return table
    return {"pattern": pattern_of(table["label"]), **table}


def _labelled(table: dict[str, Any]) -> dict[str, Any]:
    """Return the table with labels as patterns, and what follows from the score's label."""
    table = dict(table)
    score, curve = _rule(table.get("score")), table.get("curve")
    label = score.get("label") if isinstance(score, dict) else None
    if label is not None:
        table["score"] = score
        table.setdefault("unit", label)
        direction = direction_of(label)
        refuse(
            (
                direction is None and table.get("direction") is None,
                f"the score {json_text(label)} does not tell whether less or more is better; add "
                'direction = "minimise" or "maximise"',
            )
        )
        table["direction"] = table.get("direction", direction)
    if isinstance(curve, str):
        table["curve"] = {"pattern": curve_pattern(curve)}
    return table


class CheckTable(ScoreRule):
    """``[score.check]``: a second command, which is never edited, and how its score is found."""

    command: Words

    @property
    def rule(self) -> ScoreRule:
        """Location of the score."""
        return ScoreRule(**self.model_dump(exclude={"command"}))

    @model_validator(mode="before")
    @classmethod
    def _read_label(cls, table: Any) -> Any:
        return _rule(table)

    @model_validator(mode="after")
    def _has_a_score(self) -> Self:
        check_rule(self)
        return self


BUILT_IN = {
    "out": "the trial's directory",
    "seed": "the trial's seed",
    "threads": "CPU threads of a trial, 1 if the campaign sets none",
    "device": "cpu, cuda or cuda:N",
    "steps": "the budget, if in steps",
    "seconds": "the budget, if in seconds",
    "tokens": "the budget, if in tokens",
    "horizon": "steps that the schedule is meant for",
    "values": "the file of all values, if values are sent as json or toml",
    "python": "the Python that autoresearch runs on",
}
"""Placeholders of a command besides the menu's own names."""
NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


class TrainerTable(Frozen):
    """A menu's command, the files it may read, and how its score is found."""

    command: Words
    directory: str = "."
    score: ScoreRule
    unit: Annotated[PlainText, Field(min_length=1, max_length=40)]
    direction: Direction | None = None
    """Lower is better unless this says otherwise, or the unit is accuracy."""
    digits: Annotated[int, Field(ge=0, le=12, strict=True)] = 4
    """Decimals in displayed scores."""
    low: Finite | None = None
    """Lowest and highest possible score: what is beyond is no score, and no interval reaches it."""
    high: Finite | None = None
    bytes: PlainText | None = None
    """How the script counts bytes, in words; required for scores per byte."""
    curve: CurveRule | None = None
    values: SentBy = "args"
    set_by: Literal["values", "edit"] = "values"
    """``edit``: constants of the script are rewritten in a copy."""
    edits: Mapping[str, str] = {}
    """Further constants of an edited script, and their values: ``{ SEED = "{seed}" }``."""
    reads: tuple[str, ...] = ()
    shared_memory: bool = False
    """Let trials use the machine's /dev/shm if they cannot have their own."""
    env: Mapping[str, str] = {}
    oom: tuple[Pattern, ...] = ()
    preload: tuple[Module, ...] = ()
    """Modules that the fork server loads for all trials."""
    main: str | None = None
    """Function of the script to call in a forked process; ``__main__`` runs the whole script."""
    file_gib: Positive | None = None
    slots: tuple[str, ...] = Field((), exclude=True)
    """Marked regions of the script that code knobs replace."""
    check: CheckTable | None = Field(None, exclude=True)
    """Command that scores what the first left behind."""

    @model_validator(mode="before")
    @classmethod
    def _read_labels(cls, table: Any) -> Any:
        return _labelled(table) if isinstance(table, dict) else table

    @model_validator(mode="after")
    def _check_combination(self) -> Self:
        check_rule(self.score)
        _ = self.measure  # refuses limits in the wrong order
        _names_in(self.texts)  # refuses what is no placeholder
        curve = "" if self.curve is None else self.curve.pattern
        needs_script = self.main or self.set_by == "edit" or self.slots
        first = self.command[0].rsplit("/", 1)[-1]
        is_python = first == "{python}" or first.startswith("python")
        for name, value in self.env.items():
            is_free = NAME.fullmatch(name) and name not in {"HOME", "TMPDIR"}
            clause = "looks like a key, and a menu is written into every journal; remove it"
            refuse(
                (not is_free, f"env {json_text(name)} cannot be set for a trial; remove it"),
                (is_secret(name, value), f"env {name} {clause}"),
            )
        refuse(
            (
                self.curve is not None and _groups(curve) != 2,
                f"curve pattern {json_text(curve)} has {_groups(curve)} groups in ( ); use two, "
                "the step and the loss",
            ),
            (
                self.edits and self.set_by != "edit",
                'edits are for set_by = "edit"; add it, or remove edits',
            ),
            (
                self.unit == BITS_PER_BYTE and not self.bytes,
                'unit "bits per byte" needs a statement of how bytes are counted; add '
                'bytes = "…", or set another unit',
            ),
            (
                self.preload and self.main is None,
                'preload needs a script started in a forked process; add main = "__main__", or '
                "remove it",
            ),
            (
                needs_script and self.script is None,
                "main, set_by and [code] need a script of Python in the command, such as train.py",
            ),
            (
                self.main and not (is_python and self.command[1:2] == (self.script,)),
                'main needs a command that begins ["python", "SCRIPT.py", …]; write it so, or '
                "remove main",
            ),
        )
        return self

    @property
    def measure(self) -> Measure:
        """Unit of its scores."""
        usual: Direction = "maximise" if self.unit == "accuracy" else "minimise"
        return Measure(
            unit=self.unit,
            direction=self.direction or usual,
            digits=self.digits,
            low=self.low,
            high=self.high,
        )

    @property
    def script(self) -> str | None:
        """First word of the command that is a Python file, relative to the directory."""
        return _script_in(self.command)

    @property
    def check_script(self) -> str | None:
        """The same of the check's command."""
        return None if self.check is None else _script_in(self.check.command)

    @property
    def asked(self) -> frozenset[str]:
        """All names in braces."""
        return _names_in(self._templates)

    def tells(self, unit: str) -> bool:
        """Return whether the command takes a budget in this unit."""
        return unit == "run" or unit in self.asked or self.values != "args"

    @property
    def tells_seed(self) -> bool:
        """Whether the command takes the seed, without which all runs of a config are identical."""
        return "seed" in self.asked or self.values != "args"

    @property
    def _templates(self) -> tuple[str, ...]:
        return (*self.command, *self.env.values(), *self.edits.values())

    @property
    def texts(self) -> tuple[str, ...]:
        """Everything that may hold names in braces."""
        return self._templates if self.check is None else (*self._templates, *self.check.command)


def evaluation_text(table: TrainerTable) -> str:
    """Return where the score comes from, in one sentence."""
    rule = table.check or table.score
    found = f"'{rule.label or rule.pattern}'" if rule.pattern else f"{rule.key} in {rule.file}"
    reached = ", and code in its slots could reach the score" if table.slots else ""
    who, how = "the command", f"the script itself evaluates{reached}"
    if table.check:
        who = f"[score.check] ({' '.join(table.check.command)})"
        how = "it scores what the training left, in a process of its own"
    return (
        f"what {who} prints ({found}, {rule.take}), in {table.measure.unit}, "
        f"{table.measure.better}: {how}"
    )


def _script_in(command: tuple[str, ...]) -> str | None:
    words = (word for word in command[1:] if word.endswith(".py") and "{" not in word)
    return next(words, None)


def _names_in(texts: tuple[str, ...]) -> frozenset[str]:
    return frozenset(name for text in texts for name, _ in placeholders(text))


def placeholders(text: str) -> Iterator[tuple[str, str]]:
    """Yield the names in braces, with the words for true and false.

    :raises ValueError: if braces hold no names.
    """
    try:
        parts = list(Formatter().parse(text))
    except ValueError as error:
        raise ValueError(
            f"{json_text(text)} has a brace that is not a placeholder ({error}); "
            "write {{ and }} for braces"
        ) from error
    for _, name, spec, conversion in parts:
        if name is None:
            continue
        if not NAME.fullmatch(name) or "{" in (spec or "") or conversion:
            raise ValueError(
                f"{json_text(text)} has {{{name}}}, which is not a plain name; write {{{{ and }}}} "
                "for braces"
            )
        yield name, spec or ""
