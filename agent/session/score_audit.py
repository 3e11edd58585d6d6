"""Audit the score of a menu's command: is it repeatable, does it move, and does it stay comparable?

A comparison is fair only if no knob alters what a score is measured on. The audit trains the
defaults twice on one seed and once on another. Then it sets the learning rate to almost nothing, so
that a run scores the model that it began with. A knob that still moves the score then alters the
measurement: the batch that it is averaged over, the context, a weight of the loss. Trained and
untrained runs also show the direction: training must help. The rest is read from names and from the
script's text.
"""

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Literal

from agent.menu.files import load_menu
from agent.menu.proxy_menu import ProxyMenu
from agent.menu.scripts.metrics import direction_of
from agent.menu.scripts.option import is_named, says, words_of
from agent.menu.scripts.reading import text_of
from agent.menu.scripts.tree import calls, last_name
from agent.menu.trainer_table import TrainerTable
from agent.session.dry_start import run_config
from agent.session.own_trainer import script_folder
from autoresearch.errors import MenuError
from autoresearch.values import Frozen, Scalar
from trainer.schema import AnyConfig, CommandConfig, CommandOk, TrialFailed

WALL_S = 600.0
"""Time limit of a run if the menu has none."""
ALMOST_NOTHING = 1e-12
MOST_KNOBS = 6
"""Most knobs that are tried without learning."""
RATE = r"lr|eta|eta0|learning rate( \w+)?|step size|(\w+ )?lr"
SUSPECTS = (
    r"batch|bs|bsz|seq|sequence|context|ctx|block size|window|horizon|weights?|smoothing|alpha|"
    r"lambda|lam|coef|coefficient|margin|temperature|eval|val|valid|validation|test|split|fraction|"
    r"frac|holdout|subset|samples?|folds?"
)
NO_SUSPECT = r"weight decay|lora alpha|window size of warmup"
SPLITS = {"train_test_split", "random_split", "ShuffleSplit", "KFold", "StratifiedKFold"}


class ScoreFinding(Frozen):
    """Result of one check of a score."""

    check: Literal["same seed", "other seed", "knob", "direction", "data", "split", "best value"]
    state: Literal["good", "note", "bad"]
    found: str
    fix: str = ""
    """The menu's line that fixes it, or what to change; empty if nothing is wrong."""

    def __str__(self) -> str:
        """Return the finding and its fix."""
        return f"{self.found}; fix: {self.fix}" if self.fix else self.found


@dataclass
class ScoreAudit:
    """Runs a menu's command and judges its score."""

    source: str
    """The menu's file."""
    menu: ProxyMenu
    runs: int = 0

    @classmethod
    def of(cls, source: str) -> "ScoreAudit":
        """Return the audit of a menu.

        :raises MenuError: if the menu has no command: the built-in score needs no audit.
        """
        menu = load_menu(source)
        if menu.trainer is None:
            raise MenuError(
                f"menu {menu.name} trains the built-in model, whose score is the same for every "
                "config; audit a menu with a [trainer] command"
            )
        return cls(source, menu)

    def findings(self) -> Iterator[ScoreFinding]:
        """Yield each finding as soon as it is known.

        :raises MenuError: if the defaults cannot be trained.
        """
        assert self.menu.trainer is not None
        yield from static_findings(self.menu.trainer, script_folder(self.source, self.menu.trainer))
        baseline = self.menu.baseline
        first, again = self._score(baseline, 0), self._score(baseline, 0)
        other = self._score(baseline, 1)
        if first is None or again is None or other is None:
            return
        noise = max(abs(first - again), abs(first - other))
        yield from self._repeats(first, again, other)
        knobs = self.menu.knobs.items()
        rates = [
            name for name, knob in knobs if is_named(name, RATE) and isinstance(knob.default, float)
        ]
        if not rates:
            yield from self._by_name()
            return
        still: dict[str, Scalar] = dict.fromkeys(rates, ALMOST_NOTHING)
        untrained = self._score(self._changed(still), 0)
        if untrained is None:
            yield from self._by_name()
            return
        yield self._direction(first, untrained, noise)
        yield from self._knobs(still, untrained, abs(first - again))

    def _score(self, config: AnyConfig, seed: int) -> float | None:
        """Return the score of one run; None if a changed config fails.

        :raises MenuError: if the defaults fail.
        """
        self.runs += 1
        wall_s = self.menu.campaign.wall_s or WALL_S
        result = run_config(self.source, self.menu, config, seed, wall_s).result
        if isinstance(result, TrialFailed):
            if config == self.menu.baseline:
                raise MenuError(
                    f"the defaults of {self.menu.name} cannot be scored: they ended as "
                    f"{result.status} ({result.message}); fix the script or the menu's score first"
                )
            return None
        assert isinstance(result, CommandOk), "the menu starts a command"
        return result.score

    def _changed(self, changes: dict[str, Scalar]) -> AnyConfig:
        """Return the baseline with these values, even outside the knobs' ranges."""
        return CommandConfig(values={**self.menu.baseline.canonical(), **changes})

    def _repeats(self, first: float, again: float, other: float) -> Iterator[ScoreFinding]:
        if first == again:
            yield ScoreFinding(check="same seed", state="good", found=f"two runs gave {first:g}")
        else:
            yield ScoreFinding(
                check="same seed",
                state="note",
                found=f"the same seed gave {first:g} and {again:g}: not deterministic",
                fix="seed every source of chance from {seed}; the loop's races allow for the rest",
            )
        if other != first:
            yield ScoreFinding(
                check="other seed", state="good", found=f"seed 1 gave {other:g}: it moves"
            )
            return
        changes = {name: knob.domain.draw(Random(0)) for name, knob in self.menu.knobs.items()}
        moved = self._score(self._changed(changes), 0)
        if moved == first:
            yield ScoreFinding(
                check="other seed",
                state="bad",
                found=f"the score is {first:g} for every seed and for other values of all knobs",
                fix='score = "…": name the words before the number that the run measures',
            )
        else:
            yield ScoreFinding(
                check="other seed",
                state="note",
                found=f"another seed gave the same {first:g}, so noise cannot be measured",
                fix="command = … --seed={seed}: pass the seed, and use it in the script",
            )

    def _direction(self, trained: float, untrained: float, noise: float) -> ScoreFinding:
        gain = untrained - trained
        if self.menu.measure.direction == "maximise":
            gain = -gain
        found = f"training changes the score from {untrained:g} to {trained:g}"
        if gain < -3 * noise and gain < 0:
            return ScoreFinding(
                check="direction",
                state="bad",
                found=f"{found}, which is worse as declared",
                fix=f'direction = "{_other(self.menu.measure.direction)}"',
            )
        return ScoreFinding(check="direction", state="good", found=f"{found}, as declared")

    def _suspects(self) -> list[str]:
        names = [n for n in self.menu.knobs if says(n, SUSPECTS) and not says(n, NO_SUSPECT)]
        return names[:MOST_KNOBS]

    def _by_name(self) -> Iterator[ScoreFinding]:
        for name in self._suspects():
            yield ScoreFinding(
                check="knob",
                state="note",
                found=f"by its name, {name} may alter what the score is measured on",
                fix=_constant(self.menu, name),
            )

    def _knobs(
        self, still: dict[str, Scalar], untrained: float, noise: float
    ) -> Iterator[ScoreFinding]:
        for name in self._suspects():
            default, rng = self.menu.knobs[name].default, Random(0)
            drawn = (self.menu.domains[name].draw(rng) for _ in range(20))
            value = next((one for one in drawn if one != default), None)
            if value is None:
                continue
            score = self._score(self._changed({**still, name: value}), 0)
            if score is not None and abs(score - untrained) > 3 * noise:
                yield ScoreFinding(
                    check="knob",
                    state="bad",
                    found=(
                        f"{name} = {value} scores an untrained model {score:g}, and {default} "
                        f"{untrained:g}: it alters what is measured"
                    ),
                    fix=_constant(self.menu, name),
                )
            elif score is not None:
                yield ScoreFinding(
                    check="knob", state="good", found=f"{name} does not alter what is measured"
                )


def _other(direction: str) -> str:
    return "minimise" if direction == "maximise" else "maximise"


def _constant(menu: ProxyMenu, name: str) -> str:
    return f"[constants] {name} = {menu.knobs[name].default!r}, instead of [knobs.{name}]"


def static_findings(table: TrainerTable, directory: Path) -> Iterator[ScoreFinding]:
    """Yield what is wrong by a menu's words and its script's text, without a run.

    :param directory: the script's.
    """
    rule = table.check or table.score
    label = rule.label or rule.key or rule.pattern or ""
    words = re.sub(r"[^a-z]+", " ", words_of(label))
    if re.search(r"\b(train|training|trn)\b", words) and not re.search(r"\b(val|test)", words):
        yield ScoreFinding(
            check="data",
            state="bad",
            found=f"the score {label!r} is of the training data by its name",
            fix='score = "val loss": name a number of data on which nothing trains',
        )
    if rule.take in {"lowest", "highest"} or re.search(r"\b(best|min|max|peak)\b", words):
        yield ScoreFinding(
            check="best value",
            state="bad",
            found="the best of several evaluations is lucky, and more evaluations make it better",
            fix='take = "last", of the value at the end',
        )
    known = direction_of(label)
    if known is not None and known != table.measure.direction:
        yield ScoreFinding(
            check="direction",
            state="bad",
            found=f"{label!r} is {known}d as a rule, and the menu says {table.measure.direction}",
            fix=f'direction = "{known}"',
        )
    if line := _seeded_split(table, directory):
        yield ScoreFinding(
            check="split",
            state="bad",
            found=f"line {line} of the script draws the validation data from the seed",
            fix="split with a fixed number, such as random_state=0, and train with {seed}",
        )


def _seeded_split(table: TrainerTable, directory: Path) -> int:
    """Return the line on which the script splits its data by the seed; 0 if it does not."""
    try:
        _, tree = text_of(directory / (table.script or ""))
    except MenuError:
        return 0
    for call in calls(tree):
        if last_name(call.func) in SPLITS and re.search(r"(?i)seed", ast.unparse(call)):
            return call.lineno
    return 0
