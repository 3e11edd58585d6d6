"""``[trainer]``: the command of a menu that trains with a script of one's own.

    [trainer]
    command = ["python", "train.py", "--lr={lr}", "--seed={seed}", "--out_dir={out}"]
    directory = "."                # of the script; relative to the menu
    score = { pattern = 'val loss ([-+0-9.eE]+)', take = "last" }
    unit = "nats per token"

What stands in braces is a knob, a tied field, a constant, or one of :data:`BUILT_IN`. Of a truth
the braces may say both words: ``{bias:--bias|--no-bias}``, or ``{amp:--amp}`` for a switch, and a
word of the command that comes to nothing is left out. Nothing here passes through a shell.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from string import Formatter
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from autoresearch.values import Frozen, PlainText, Positive
from autoresearch.words import did_you_mean, json_text
from trainer.machine.environment import may_be_secret
from trainer.spec import BITS_PER_BYTE, CurveRule, Direction, Measure, ScoreRule, SentBy
from trainer.spec.command import Module, Pattern

BUILT_IN = {
    "out": "the trial's directory",
    "seed": "the trial's seed",
    "threads": "CPU threads of a trial, 1 where the campaign says none",
    "device": "cpu, cuda or cuda:N",
    "steps": "the budget, where it is in steps",
    "seconds": "the budget, where it is in seconds",
    "tokens": "the budget, where it is in tokens",
    "horizon": "steps that the schedule is meant for",
    "values": "the file of all values, where values are sent as json or toml",
    "python": "the Python that autoresearch runs on",
}
"""What the braces of a command may say besides the menu's own names."""
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_NOT_FOR_MENUS = frozenset("HOME TMPDIR".split())


class TrainerTable(Frozen):
    """A menu's command, what it may read, and how its score is found."""

    command: Annotated[tuple[str, ...], Field(min_length=1, max_length=200)]
    directory: str = "."
    score: ScoreRule
    unit: Annotated[PlainText, Field(min_length=1, max_length=40)]
    direction: Direction | None = None
    """Lower is better unless it says otherwise, or the unit is accuracy."""
    digits: Annotated[int, Field(ge=0, le=12, strict=True)] = 4
    """Decimals that scores are shown with."""
    bytes: PlainText | None = None
    """How the script counts bytes, in words; what is claimed per byte must say it."""
    curve: CurveRule | None = None
    values: SentBy = "args"
    set_by: Literal["values", "edit"] = "values"
    """``edit``: constants of the script are rewritten in a copy."""
    edits: Mapping[str, str] = {}
    """Constants of the script besides knobs and constants of the menu, where it is edited, and what
    is written there: ``{ SEED = "{seed}" }``."""
    reads: tuple[str, ...] = ()
    shared_memory: bool = False
    """Let trials use the machine's /dev/shm where they cannot have one of their own."""
    env: Mapping[str, str] = {}
    oom: tuple[Pattern, ...] = ()
    preload: tuple[Module, ...] = ()
    main: str | None = None
    file_gib: Positive | None = None

    @model_validator(mode="after")
    def _goes_together(self) -> Self:
        self._check_score()
        self._check_environment()
        if self.edits and self.set_by != "edit":
            raise ValueError('edits are for set_by = "edit"; add it, or remove edits')
        if self.unit == BITS_PER_BYTE and not self.bytes:
            raise ValueError(
                'unit "bits per byte" is claimed only where the menu says how bytes are counted; '
                'add bytes = "…", or name another unit'
            )
        if self.preload and self.main is None:
            raise ValueError(
                'preload is for a script whose function is called; add main = "main", or remove it'
            )
        if (self.main or self.set_by == "edit") and self.script is None:
            raise ValueError(
                "main and set_by need a script of Python in the command, such as train.py"
            )
        if self.main and not self._calls_python:
            raise ValueError(
                'main needs a command that begins ["python", "SCRIPT.py", …]; write it so, or '
                "remove main"
            )
        return self

    @property
    def measure(self) -> Measure:
        """The unit of its scores."""
        usual: Direction = "maximise" if self.unit == "accuracy" else "minimise"
        return Measure(unit=self.unit, direction=self.direction or usual, digits=self.digits)

    @property
    def script(self) -> str | None:
        """The first word of the command that is a file of Python, relative to the directory."""
        words = (word for word in self.command[1:] if word.endswith(".py") and "{" not in word)
        return next(words, None)

    @property
    def asked(self) -> frozenset[str]:
        """All that stands in braces."""
        return frozenset(name for text in self._templates for name, _ in _placeholders(text))

    def tells(self, unit: str) -> bool:
        """Whether it can be told a budget of this unit."""
        return unit == "run" or unit in self.asked or self.values != "args"

    @property
    def tells_seed(self) -> bool:
        """Whether it is told the seed, without which every run of a config is the same."""
        return "seed" in self.asked or self.values != "args"

    def check_names(self, knobs: Iterable[str], others: Iterable[str]) -> None:
        """Every name in braces is known, and every knob reaches the command.

        :param others: tied fields and constants.
        :raises ValueError: one clause that names what is wrong and the mend.
        """
        knobs, others = list(knobs), list(others)
        for name in (*knobs, *others):
            if not _NAME.fullmatch(name):
                raise ValueError(
                    f"{json_text(name)} cannot be a name in a command; use letters, digits and _"
                )
            if name in BUILT_IN or name == "budget_steps":
                raise ValueError(
                    f"{name} is what {{{name}}} already stands for; give it another name"
                )
        for name in sorted(self.asked):
            if name not in (*knobs, *others, *BUILT_IN):
                near = did_you_mean(name, [*knobs, *others, *BUILT_IN])
                raise ValueError(f"the command asks for {{{name}}}, which nothing says{near}")
        if "values" in self.asked and self.values not in {"json", "toml"}:
            raise ValueError('{values} is a file; add values = "json" or "toml"')
        if self.set_by == "edit" or self.values == "env":
            return
        if self.values != "args":
            if "values" not in self.asked:
                raise ValueError(
                    f"values are written to a file of {self.values} that the command is not told "
                    "of; add {values} to it"
                )
            return
        for name in knobs:
            if name not in self.asked:
                raise ValueError(
                    f"knob {name} reaches the command nowhere; add {{{name}}} to it, or remove the "
                    "knob"
                )

    def check_words(self, truths: Iterable[str]) -> None:
        """Words for true and false are of truths alone.

        :param truths: the knobs and constants that are true or false.
        :raises ValueError: one clause that names what is wrong and the mend.
        """
        truths = list(truths)
        for text in self._templates:
            for name, words in _placeholders(text):
                if words and name not in truths:
                    raise ValueError(
                        f"{{{name}:{words}}} has words for true and false, and {name} is neither; "
                        f"write {{{name}}}"
                    )

    @property
    def _calls_python(self) -> bool:
        first = self.command[0].rsplit("/", 1)[-1]
        is_python = first == "{python}" or first.startswith("python")
        return is_python and len(self.command) > 1 and self.command[1] == self.script

    @property
    def _templates(self) -> tuple[str, ...]:
        return (*self.command, *self.env.values(), *self.edits.values())

    def _check_score(self) -> None:
        score = self.score
        if (score.pattern is None) == (score.file is None):
            raise ValueError(
                'score is either { pattern = \'…\' } or { file = "…", key = "…" }; give one of '
                "the two"
            )
        if (score.file is None) != (score.key is None):
            raise ValueError("score has a file and a key, both or none; give both")
        if score.file is not None and (score.file.startswith("/") or ".." in score.file.split("/")):
            raise ValueError(
                f"score file {json_text(score.file)} is not in the trial's directory; name it "
                "relative to {out}"
            )
        if score.pattern is not None and (groups := re.compile(score.pattern).groups) != 1:
            raise ValueError(
                f"score pattern {json_text(score.pattern)} has {groups} groups in ( ); the number "
                "is its one group"
            )
        if self.curve is not None and (groups := re.compile(self.curve.pattern).groups) != 2:
            raise ValueError(
                f"curve pattern {json_text(self.curve.pattern)} has {groups} groups in ( ); its "
                "two are the step and the loss"
            )

    def _check_environment(self) -> None:
        for name, value in self.env.items():
            if not _NAME.fullmatch(name) or name in _NOT_FOR_MENUS:
                raise ValueError(f"env {json_text(name)} cannot be set for a trial; remove it")
            if may_be_secret(name, value):
                raise ValueError(
                    f"env {name} looks like a key, and a menu is written into every journal; no "
                    "trial gets one"
                )
        for word in self._templates:
            list(_placeholders(word))


def evaluation_text(table: TrainerTable) -> str:
    """Whose the score is, in one sentence."""
    rule = table.score
    found = f"'{rule.pattern}'" if rule.pattern else f"{rule.key} in {rule.file}"
    return (
        f"what the command prints ({found}, {rule.take}), in {table.measure.unit}, "
        f"{table.measure.better}: the ruler is the script's own"
    )


def _placeholders(text: str) -> Iterator[tuple[str, str]]:
    """The names in braces, with the words for true and false.

    :raises ValueError: where the braces are not names.
    """
    try:
        parts = list(Formatter().parse(text))
    except ValueError as error:
        raise ValueError(
            f"{json_text(text)} has a brace that is no placeholder ({error}); write {{{{ and }}}} "
            "for braces"
        ) from error
    for _, name, spec, conversion in parts:
        if name is None:
            continue
        if not _NAME.fullmatch(name) or "{" in (spec or "") or conversion:
            raise ValueError(
                f"{json_text(text)} has {{{name}}}, which is no plain name; write {{{{ and }}}} "
                "for braces"
            )
        yield name, spec or ""
