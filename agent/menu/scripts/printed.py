"""Find the lines in which a script prints its score and its curve, as patterns.

The score is the value whose label mentions a validation figure. Failing that, it is one whose
variable has such a name, and then the loss or another training figure. The curve is a line with a
step and a loss.
"""

import ast
import re
from dataclasses import dataclass, replace

from agent.menu.scripts.texts import Hole, Template, labelled, templates

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
_BEST_BEFORE = re.compile(r"(?i)(?<![A-Za-z])(?:min|max)[\W_]+$")
_BEST = re.compile(r"(?i)best|lowest|highest")
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
            if found is None:
                continue
            rank, printed = found
            ranked = (*rank, 0 if is_printed else 1, -line)
            if best is None or ranked < best[0]:
                best = (ranked, replace(printed, decimals=hole.decimals))
    return best and best[1]


def period_of(tree: ast.Module, line: int) -> int:
    """Return N if a line runs only under a condition such as ``step % N == 0``, with N in the
    code; else 0."""
    tests = (
        one.test
        for one in ast.walk(tree)
        if isinstance(one, ast.If) and one.lineno <= line <= (one.end_lineno or one.lineno)
    )
    found = [
        part.right.value
        for test in tests
        if not any(isinstance(one, ast.Or) for one in ast.walk(test))
        for part in ast.walk(test)
        if isinstance(part, ast.BinOp)
        and isinstance(part.op, ast.Mod)
        and isinstance(part.right, ast.Constant)
        and isinstance(part.right.value, int)
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
    """Return a figure with its rank, lower first; None for a value that is not a figure, or that is
    the best of several.

    :param opening: the text before the first value of its line.
    :param inside: the word that makes the function around it one that evaluates.
    """
    figure = _figure(label, hole)
    if figure is None or _SETTING.fullmatch(hole.expression):
        return None
    held_out = list(re.finditer(rf"(?i){_HELD_OUT}", label))
    begins = [one.start() for one in (*held_out[-1:], figure) if one.string is label]
    # The words that belong to the value alone begin after the last mark or bracket.
    marks = list(re.finditer(r"[,;|()\[\]\t>=-]+\s*(?=\w)", label))
    clause = marks[-1].end() if marks else len(label) - len(label.lstrip())
    begin = min(begins) if held_out else clause
    before = (opening.strip(" *=>#-[")[:8], label[:begin], hole.expression)
    if _BEST.search(" ".join(before)) or _BEST_BEFORE.search(label, 0, begin):
        return None
    more = _MORE_IS_BETTER.search(figure[1]) is not None
    pattern = f"{_NO_BEST_BEFORE[more]}{_literal(label[begin:])}{NUMBER}"
    place = next(n for n, one in enumerate(_FIGURES) if re.fullmatch(rf"(?i){one}", figure[1]))
    words = _name(label[begin:])
    if held_out:
        return (0, _kind_of(held_out[-1][0]), place), Printed(pattern, line, words, more)
    if re.search("(?i)train", label):
        return (2, 1, place), Printed(pattern, line, words, more, is_training=True)
    pattern = _NO_TRAIN_BEFORE + pattern
    said = re.search(rf"(?i){_HELD_OUT}", hole.expression.replace("_", " "))
    opened = None if said else re.search(rf"(?i){_OPENING}", opening)
    word = said or opened or re.match(".+", inside)
    if word is None:
        return (2, 0, place), Printed(pattern, line, words, more, is_training=True)
    pattern = f"{re.escape(word[0])}.*?{pattern}" if word is opened else pattern
    words = f"{word[0].lower()} {_name(figure[0])}"
    return (1, _kind_of(word[0]), place), Printed(pattern, line, words, more)


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
