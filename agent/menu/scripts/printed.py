"""Find the lines in which a script prints its score and its curve, as patterns.

The score is the value whose label mentions a validation figure. Failing that, it is one whose
variable has such a name, and then the loss or another training figure. The curve is a line with a
step and a loss.
"""

import ast
import re
from dataclasses import dataclass, replace

from agent.menu.scripts.option import words_of
from agent.menu.scripts.tree import Hole, Template, labelled, remainders, templates

NUMBER = r"([-+0-9.eE]+)"
"""Pattern of a number."""

_HELD_OUT = (
    r"(?<![A-Za-z])(?:val|valid|validation|test|eval|evaluation|dev|held[ -]?out)"
    r"(?!(?-i:[a-z]|(?<=[A-Z])[A-Z]))"  # a word ends before the capital of TestAcc
)
_EVALUATES = r"(?i)^(?:\w+ )?(test|val|validate|validation|eval|evaluate|evaluation)\b(?!.*train)"
"""Name of a function, in words, whose figures are those of an evaluation."""
_OPENING = rf"{_HELD_OUT}(?!\w)"
_FIGURES = (
    "bpb",
    "loss",
    r"nll|neg\w*[ _-]*log[ _-]*likelihood",
    "ppl|perplexity",
    "acc|accuracy",
    "err|error",
    "psnr",
    "f1",
    "bleu",
    "auc",
    "mse|mae|rmse",
    "score",
    "return|reward",
    r"(?<!-)(?<!- )log[ _-]?likelihood",
)
_ANY_FIGURE = "|".join(_FIGURES)
_OF = r"(?: (?:of|for|using|with)(?: [\w']+){1,3}?(?= is| was|:| ?=))?"
_MEASURED_ON = (
    rf"(?i)\b({_ANY_FIGURE})(?: \w+)? (?:of|on|over|@) .*{_HELD_OUT}.*(?:[:=]|\bis|\bwas)\s*$"
)
_BEST = r"best|lowest|highest|min|max"
_BEST_BEFORE = re.compile(rf"(?i)(?<![A-Za-z])(?:{_BEST})[\W_]+$")
_BEST_SAID = re.compile(r"(?i)best|lowest|highest")
_NO_BEST_BEFORE = {
    False: "(?<![Bb]est[ _])(?<![Ll]owest[ _])(?<![Mm]in[ _])",
    True: "(?<![Bb]est[ _])(?<![Hh]ighest[ _])(?<![Mm]ax[ _])",
}
"""Keeps a pattern from matching a final line that repeats the best evaluation, by direction."""
_SETTING = re.compile(r"(args|opts?|options|cfg|config|flags|hparams)\.\w+", re.IGNORECASE)
"""A setting that a script prints: ``Preconditioning & loss: {opts.precond}``."""
_NO_TRAIN_BEFORE = "(?<![Tt]rain[ _])(?<![Tt]raining[ _])"
_MORE_IS_BETTER = re.compile(r"acc|psnr|f1|bleu|auc|score|return|reward|^log", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Printed:
    """A pattern and its source."""

    pattern: str
    line: int
    label: str
    """Label like ``val loss``."""
    more_is_better: bool = False
    is_training: bool = False
    """Whether it is a training figure, used without a validation score."""
    is_best: bool = False
    """Whether it is the best of several evaluations, used if no line prints each."""
    decimals: int | None = None
    """Decimals in its format, if stated."""


def score_printed(tree: ast.Module) -> Printed | None:
    """Return the pattern of the score; None if no line seems to print one."""
    best: tuple[tuple[int, ...], Printed] | None = None
    evaluates = {  # lines of functions such as test and evaluate_model, with that word
        line: word[1]
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef)
        and (word := re.search(_EVALUATES, node.name.replace("_", " "))) is not None
        for line in range(node.lineno, (node.end_lineno or node.lineno) + 1)
    }
    for line, is_printed, template in templates(tree):
        holes = list(labelled(template))
        for label, hole in holes:
            found = _score(label, hole, line, holes[0][0], evaluates.get(line, ""))
            if found is None or _SETTING.fullmatch(hole.expression):
                continue
            rank, printed = found
            ranked = (*rank, 0 if is_printed else 1, -line)
            if best is None or ranked < best[0]:
                best = (ranked, replace(printed, decimals=hole.decimals))
    return best and best[1]


def best_line(tree: ast.Module, score: Printed) -> int | None:
    """Return the line that prints a best value in words that the score's pattern matches too."""
    for line, _, template in templates(tree):
        text, holes = "", {}
        for part in template:
            holes[len(text)] = part.expression if isinstance(part, Hole) else ""
            text += "1" if isinstance(part, Hole) else part
        for row in re.finditer(r"[^\r\n]+", text):
            match = re.compile(score.pattern).search(text, row.start(), row.end())
            said = match and text[row.start() : match.start(1)] + holes.get(match.start(1), "")
            if said and line != score.line and _BEST_SAID.search(said):
                return line
    return None


def period_of(tree: ast.Module, line: int) -> int:
    """Return N if a line runs only under a condition such as ``step % N == 0``, with N in the
    code; else 0."""
    found = [
        part.right.value
        for one in ast.walk(tree)
        if isinstance(one, ast.If) and one.lineno <= line <= (one.end_lineno or one.lineno)
        for part in remainders(one)
        if isinstance(part.right, ast.Constant) and isinstance(part.right.value, int)
    ]
    return max(found, default=0)


def curve_printed(tree: ast.Module) -> Printed | None:
    """Return the pattern of a step and its loss; None if no line seems to print them."""
    found = [(_curve(template, line), is_printed) for line, is_printed, template in templates(tree)]
    ranked = [(is_printed, one.line, one) for one, is_printed in found if one is not None]
    return max(ranked, key=lambda one: one[:2])[2] if ranked else None


# --- the meaning of a label ----------------------------------------------------------------


def _score(
    label: str, hole: Hole, line: int, opening: str, inside: str
) -> tuple[tuple[int, ...], Printed] | None:
    """Return a figure with its rank, lower first; None for a value that is not a figure.

    :param opening: the text before the first value of its line.
    :param inside: the word that makes the function around it one that evaluates.
    """
    figure = _figure(label, hole)
    if figure is None:
        return None
    held_out = list(re.finditer(rf"(?i){_HELD_OUT}", label))
    more = _MORE_IS_BETTER.search(figure[1]) is not None
    begins = [one.start() for one in (*held_out[-1:], figure) if one.string is label]
    # The words that belong to the value alone begin after the last mark or bracket.
    marks = list(re.finditer(r"[,;|()\[\]\t>=-]+\s*(?=\w)", label))
    clause = marks[-1].end() if marks else len(label) - len(label.lstrip())
    begin = min(begins) if held_out else clause
    best = _BEST_BEFORE.search(label, 0, begin)
    is_best = best is not None or bool(_BEST_SAID.search(label[:begin] + hole.expression))
    is_best = is_best or _BEST_SAID.match(opening.strip(" *=>#-[")) is not None
    pattern = f"{_literal(label[best.start() if best else begin :])}{NUMBER}"
    pattern = pattern if best else _NO_BEST_BEFORE[more] + pattern
    trains = re.search("(?i)train", label) is not None
    if not held_out and not trains:
        pattern = _NO_TRAIN_BEFORE + pattern
    place = next(n for n, one in enumerate(_FIGURES) if re.fullmatch(rf"(?i){one}", figure[1]))
    rank = (is_best, place)
    if held_out:
        kind, words = _kind_of(held_out[-1][0]), _name(label[begin:])
        return (0, kind, *rank), Printed(pattern, line, words, more, is_best=is_best)
    said = re.search(rf"(?i){_HELD_OUT}", hole.expression.replace("_", " "))
    opened = None if said or trains else re.search(rf"(?i){_OPENING}", opening)
    if word := said or opened or (None if trains else re.match(".+", inside)):
        pattern = f"{re.escape(word[0])}.*?{pattern}" if word is opened else pattern
        words = f"{word[0].lower()} {_name(figure[0])}"
        return (1, _kind_of(word[0]), *rank), Printed(pattern, line, words, more, is_best=is_best)
    words = _name(label[begin:])
    return (2, trains, *rank), Printed(
        pattern, line, words, more, is_training=True, is_best=is_best
    )


def _figure(label: str, hole: Hole) -> re.Match[str] | None:
    """Return the name of a figure: at the end of its label, before what it is of (``The RMSE of
    prediction is:``) or measured on (``Accuracy on 10000 test images:``), or in its code (``Val:
    {val_acc}``)."""
    if found := re.search(rf"(?i)({_ANY_FIGURE})\w*{_OF}(?: is| was)?[^\w%]*$", label):
        return found
    if found := re.search(_MEASURED_ON, label):
        return found
    is_held_out = re.search(rf"(?i){_HELD_OUT}[^\w%]*$", label)
    return is_held_out and re.search(rf"(?i)(?<![a-z])({_ANY_FIGURE})(?![a-z])", hole.expression)


def figure_named(name: str) -> bool | None:
    """Return whether more is better of the figure that a variable or a function is named after;
    None if there is none, or if more is better of one and less of another."""
    words = words_of(name)
    more = {
        _MORE_IS_BETTER.search(one) is not None
        for one in re.findall(rf"\b(?:{_ANY_FIGURE})\b", words)
    }
    return more.pop() if len(more) == 1 and not _BEST_SAID.search(words) else None


def is_held_out(code: str) -> bool:
    """Return whether the names in code say that it is of held-out data."""
    return re.search(rf"(?i){_HELD_OUT}", words_of(code)) is not None


def _kind_of(word: str) -> int:
    """Rank validation figures before test figures."""
    return 1 if word.lower() == "test" else 0


def _name(label: str) -> str:
    """Return ``val loss`` for ``val loss: ``."""
    words = re.sub(r"[^\w%]+", " ", label).strip()
    return re.sub(" (is|was)$", "", words.lower())[:40]


def _literal(text: str) -> str:
    """Return a pattern of a label, with any white space."""
    words = [re.escape(word).replace(r"\-", "-").replace(r"\=", "=") for word in text.split()]
    lead = r"\s+" if text[:1].isspace() and words else ""
    tail = r"\s*" if text[-1:].isspace() else ""
    spaced = r"\s+".join(words)
    return f"{lead}{spaced}{tail}" if words else tail


def _curve(template: Template, line: int) -> Printed | None:
    holes = list(labelled(template))
    step = None
    for place, (label, _) in enumerate(holes):
        counts = re.search(r"(?i)\b(iter|iteration|step|batch|it|update|epoch)s?\b[^\w]*$", label)
        if counts and step is None:
            step = (place, label[counts.start() :])
            continue
        loss = re.search(r"(?i)\b(?:train(?:ing)?[ _])?loss[^\w]*$", label)
        if step is None or loss is None or re.search(rf"(?i){_HELD_OUT}", label[: loss.end()]):
            continue
        before = _literal(step[1]) + r"(\d+)"
        near = place == step[0] + 1
        between = _literal(label) if near else ".*?" + _literal(label[loss.start() :])
        return Printed(f"{before}{between}{NUMBER}", line, _name(label[loss.start() :]))
    return None
