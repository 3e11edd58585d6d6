"""Know usual metrics and which direction is better, and find candidates for the score in what a
script printed.

A label's direction is that of the last known metric in it (``FID score`` is a distance), reversed
by ``neg`` or ``1 -``. Words in the line such as ``lower is better`` decide first. A label without a
known metric has no direction: that is a question.

The names are those of scikit-learn's scorers, torchmetrics' ``higher_is_better``, Keras, the
libraries of boosted trees, and of papers on language, vision, speech, retrieval and control.
"""

import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from agent.menu.scripts.option import words_of
from trainer.command.number import FILE_MARK, Number
from trainer.schema import Direction

_LOWER = (
    r"loss|losses|log ?loss|nll|nlpd|nelbo|cross ?entropy|x ?ent|bce|ce|perplexity|ppl|"
    r"bits? (?:per )?(?:byte|dim|token|char|pixel|word)s?|bpb|bpc|bpd|error|errors|"
    r"err|mse|rmse|mae|mape|smape|wmape|mase|"
    r"msle|rmsle|nrmse|rse|medae|deviance|pinball|quantile loss|hinge|brier|ece|mce|"
    r"calibration|fid|kid|cmmd|lpips|dists|niqe|brisque|wer|cer|eer|fpr|"
    r"fnr|fdr|frr|minddcf|hausdorff|hd ?95|assd|chamfer|emd|wasserstein|mmd|kl|kld|"
    r"kl div|divergence|distance|edit distance|davies bouldin|db index|regret|hamming|"
    r"zero one|cost|residual|energy|latency|violations?|fad|mcd|ade|fde|epe|absrel|sqrel|"
    r"false positives?|false negatives?|aic|bic|inertia|collisions?|ergas|sam|rase|"
    r"uqi loss|l1|l2"
)
_HIGHER = (
    r"acc|accuracy|top ?\d|f ?\d|f beta|fbeta|auc|auroc|roc|auprc|prc|aucpr|ap ?\d*|"
    r"m ?ap ?\d*|average precision|map|precision|prec|recall|rec|sensitivity|specificity|"
    r"tpr|tnr|npv|ppv|iou|m ?iou|jaccard|dice|dsc|kappa|qwk|mcc|matthews|corrcoef|"
    r"correlation|corr|pearson|spearman|kendall|concordance|c index|r ?2|r squared|"
    r"explained variance|ndcg|dcg|mrr|hit rate|hits?|hr|bleu|sacrebleu|rouge|rouge l|"
    r"meteor|chrf|cider|spice|bertscore|bleurt|comet|exact match|em|pass(?= \d)|psnr|ssim|msssim|"
    r"ms ssim|snr|si ?sdr|sdr|si ?snr|pesq|stoi|inception|clip ?score|mos|vmaf|reward|"
    r"rewards|return|returns|ret|win ?rate|wins?|success|success rate|elo|"
    r"coefficient of determination|silhouette|calinski|harabasz|nmi|ami|ari|rand|"
    r"homogeneity|completeness|v ?measure|purity|fowlkes|mutual info|log ?likelihood|"
    r"likelihood|elbo|ll|lift|gini|ks|profit|sharpe|throughput|episode length|ep len"
)
_NEGATES = r"neg|negative|1|one minus|minus"
_KNOWN = re.compile(rf"\b(?:(?P<lower>{_LOWER})|(?P<higher>{_HIGHER}))s?(?: ?\d+)?\b")
_SAID = (
    (re.compile(r"(?i)(lower|smaller|less) is better|↓|minimi[sz]e"), "minimise"),
    (re.compile(r"(?i)(higher|bigger|larger|greater|more) is better|↑|maximi[sz]e"), "maximise"),
)


def direction_of(label: str, line: str = "") -> Direction | None:
    """Return whether less or more of a metric is better; None if its name does not tell.

    :param line: the line that it stands in, which may say it in words.
    """
    for pattern, said in _SAID:
        if pattern.search(line):
            return "minimise" if said == "minimise" else "maximise"
    label = re.sub(r"(?i)(^|\s)-\s?log", " neg log", label)
    for words in (" ".join(re.findall(r"[^\W_]+|²", label.lower())), words_of(label)):
        if found := list(_KNOWN.finditer(words.replace(" ²", "2").replace("²", "2"))):
            last = found[-1]
            before = [] if last["lower"] else words[: last.start()].split()
            before += words.split()[:1]
            is_negated = any(re.fullmatch(_NEGATES, one) for one in before)
            is_lower = (last["lower"] is not None) != is_negated
            return "minimise" if is_lower else "maximise"
    return None


# --- labels as patterns --------------------------------------------------------------------------

NUMBER = r"([-+]?(?:\d[\d,]*\.?\d*|\.\d+)(?:[eE][-+]?\d+)?)"
_TAIL = r"(?:[^\w.+-]|[-+](?![\d.]))*?"
"""Text between a label and its number: marks, but not the number's own sign."""
ANY, THE_NUMBER = "…", "{}"


def pattern_of(label: str) -> str:
    """Return the pattern of a score's label: ``val loss`` finds the number behind these words.

    ``…`` stands for any text, and ``{}`` for the number if it does not follow the label at once:
    ``Loss … ({})`` finds the 3.5 in ``Loss 4.2 (3.5)``.

    :raises ValueError: if it has no words, or more than one ``{}``.
    """
    if not re.search(r"\w", label) or label.count(THE_NUMBER) > 1:
        raise ValueError(
            f"the score {label!r:.60} is no label; write the words before the number, such as "
            "'val loss', with … for any text and at most one {} for the number"
        )
    ends = "" if THE_NUMBER in label else r"(?!\w)" + _TAIL + NUMBER
    return _pattern(label, {THE_NUMBER: NUMBER}) + ends


def curve_pattern(label: str) -> str:
    """Return the pattern of a curve's label: ``iter {step}: loss {loss}``.

    :raises ValueError: if it does not have ``{step}`` and ``{loss}`` once.
    """
    if label.count("{step}") != 1 or label.count("{loss}") != 1:
        raise ValueError(
            f"the curve {label!r:.60} needs {{step}} and {{loss}}, each once, such as "
            "'iter {step}: loss {loss}'"
        )
    holes = {"{step}": r"(?P<step>\d+)", "{loss}": NUMBER.replace("(", "(?P<loss>", 1)}
    return _pattern(label, holes)


def _pattern(label: str, holes: Mapping[str, str]) -> str:
    text, parts = label.strip(), []
    for part in re.split(r"(…|\{\w*\}|\s+)", text):
        known = {ANY: ".*?", **holes}.get(part)
        parts.append(known or (r"\s*" if part.isspace() else re.escape(part).replace(r"\-", "-")))
    return (r"(?<!\w)" if re.match(r"\w", text) else "") + "".join(parts)


_STEP = re.compile(
    r"(?i)(?<![a-z])(?:iter(?:ation)?|step|batch|it|update|epoch)s?\W{0,3}(?P<at>\d+)"
)
_LOSS = re.compile(r"(?i)(?<![a-z])(?:train(?:ing)?[ _])?loss\W{0,4}?(?P<at>[-+]?\d[\d.eE+-]*)")


def curve_in(lines: Iterable[str]) -> str:
    """Return the label of the line with a step and a training loss that occurs most often; empty
    if there is none."""
    found = Counter[str]()
    for line in lines:
        step = _STEP.search(line)
        loss = step and _LOSS.search(line, step.end())
        if not step or not loss or re.search(rf"(?i){_HELD_OUT}", line[: loss.end()]):
            continue
        between = _holed(line[step.end("at") : loss.start("at")])
        if len(between) > _MOST_BETWEEN:
            between = f" {ANY} {line[loss.start() : loss.start('at')]}"
        found[f"{line[step.start() : step.start('at')]}{{step}}{between}{{loss}}"] += 1
    return max(reversed(found), key=lambda one: found[one], default="")


_MOST_BETWEEN = 40


# --- candidates ----------------------------------------------------------------------------------

_NUMBER_IN = re.compile(
    r"(?<![\w.])(?P<number>[-+]?(?:\d(?:\d|,(?=\d{3}))*\.?\d*|\.\d+)(?:[eE][-+]?\d+)?)"
    r"(?![\w.]*\d)"
    r"(?P<unit>%|[A-Za-z]\w*)?"
    r"|(?<!\w)(?P<lost>nan|[-+]?inf)\b"
)
_HELD_OUT = (
    r"(?<![A-Za-z])d?(?:val|valid|validation|test|testing|eval|evaluation|dev|held[ -]?out|heldout)"
    r"(?![a-z])"  # XGBoost's scripts say dtrain and dtest
)
_SPLIT = re.compile(rf"(?i)(?P<held>{_HELD_OUT})|(?<![A-Za-z])(?P<train>d?train(?:ing)?)(?![a-z])")
_BEST = re.compile(r"(?i)(?<![a-z])(?:best|lowest|highest|solved|converged|early)(?![a-z])")
_COUNTS = re.compile(
    r"(?i)^(?:.*\W)?(?:epochs?|iter(?:ation)?s?|steps?|batch(?:es)?|updates?|time|elapsed|eta|lr|"
    r"learning[ _]rate|seconds?|sec|ms|it/s|speed|mem(?:ory)?|params|seed|size|rank|fold|trial|"
    r"total|num\w*|n|count|version|threads?|tok\w*|fps|sps|mfu|grad[ _]?norm|dt|episode|games?|"
    r"timesteps?|\w+\.py)\W*$"  # a warning names a line of a file
)
_NAMES_NO_VALUE = re.compile(
    r"(?i)\b(?:(?:the|of|on|at|in|for|over|after|with|a|an|and|to|from)\s*|(?:in|took)\W*)$"
)
"""Ends of a text before a number that counts or is a time: ``on the 10000 test images``."""
MOST_LINES = 20_000


@dataclass(frozen=True, slots=True)
class Candidate:
    """A number that a script printed or wrote, and how a menu names it."""

    label: str
    """``val loss``, as :func:`pattern_of` reads it."""
    name: str
    """Its words."""
    direction: Direction | None
    times: int = 0
    last: float = float("nan")
    line: str = ""
    """The last line that holds it, with the number marked; empty if it was not seen."""
    decimals: int = 0
    is_training: bool = False
    file: str = ""
    """File that holds it under the label, if it was not printed."""
    rank: tuple[float, ...] = ()
    """Less is better."""

    @property
    def labels(self) -> tuple[str, ...]:
        """The words by which a person may name it."""
        place = f"{self.file}:{self.label}" if self.file else self.label
        return place, self.name, self.label.removesuffix(THE_NUMBER).strip()


def candidates(lines: Iterable[str]) -> list[Candidate]:
    """Return the numbers with a label that lines hold, the most likely score first."""
    kept = [one[:500] for one in lines][-MOST_LINES:]
    seen: dict[tuple[str, ...], Candidate] = {}
    values: dict[tuple[str, ...], list[float]] = {}
    for line in kept:
        for key, one in _numbers(line):
            values.setdefault(key, []).append(one.last)
            seen.pop(key, None)
            seen[key] = one
    found = []
    for place, (key, one) in enumerate(seen.items()):
        times = len(values[key])
        label = _label(key[:-1], values[key], kept)
        rank = (*one.rank, -min(times, 2), -place)
        found.append(replace(one, label=label, times=times, rank=rank))
    return sorted(found, key=lambda one: one.rank)


def scored(found: Sequence[Candidate], evaluated: Iterable[str]) -> list[Candidate]:
    """Return candidates in order, where those of training data by their labels alone count as
    validation figures if a function that evaluates prints them.

    :param evaluated: the lines that such functions print.
    """
    names = {one.name for one in candidates(evaluated)}
    known = [
        replace(one, is_training=False, rank=(*one.rank[:2], 0, *one.rank[3:]))
        if one.name in names and one.rank[2] == 1
        else one
        for one in found
    ]
    return sorted(known, key=lambda one: one.rank)


def in_files(lines: Iterable[str]) -> list[Candidate]:
    """Return the numbers in files that a run left, among the lines that it printed."""
    found = []
    for line in lines:
        if line.startswith(FILE_MARK):
            file, key, value = json.loads(line.removeprefix(FILE_MARK))
            direction = direction_of(key)
            held = re.search(rf"(?i){_HELD_OUT}", f"{file} {key}") is not None
            rank = (direction is None, False, 0 if held else 1, False, _figure(key), True)
            if direction is not None:
                shown = f"{file}: {key} = [{value}]"
                found.append(
                    Candidate(
                        *(key, key.replace("_", " ")[:40], direction, 1, float(value), shown),
                        is_training=not held,
                        file=file,
                        rank=tuple(map(float, rank)),
                    )
                )
    return found


def last_step(lines: Iterable[str], label: str) -> int:
    """Return the last step of a curve in printed lines; 0 if there is none."""
    if not label:
        return 0
    number = re.compile(curve_pattern(label))
    return max((int(found["step"]) for one in lines if (found := number.search(one))), default=0)


MOST_CELLS = 2
"""Cells of a drawn table's row that names a number."""


def _label(labels: Sequence[str], values: Sequence[float], lines: Sequence[str]) -> str:
    """Return the shortest label whose pattern finds these numbers and no others."""
    for label in labels:
        number = Number(pattern_of(label))
        found = [match[1] for line in lines if (match := number.search(line))]
        if str(found) == str(values):  # nan is no value of its own
            return label
    return labels[-1]


def _numbers(line: str) -> Iterator[tuple[tuple[str, ...], Candidate]]:
    """Yield the numbers of a line that have a label, each with its key among all lines."""
    if line.count("│") > MOST_CELLS + 1:
        return  # a table of the model's layers, say, and not of a metric and its value
    matches = list(_NUMBER_IN.finditer(line))
    listed = _listed(line, matches)
    end, begin, words = 0, 0, ""
    for place, match in enumerate(matches):
        before = line[end : match.start()]
        end = match.end("unit") if match["unit"] == "%" else match.end()
        is_mean = bool(words) and re.fullmatch(r"\s*\(\s*(?:avg:?\s*)?", before) is not None
        if place in listed:
            words = listed[place]
        elif not is_mean and not (words and before.strip() == "/"):
            words = before if re.search(r"[A-Za-z]", before) else ""
        is_counted = re.match(r"\s*/\s*\d", line[match.end() :]) or _NAMES_NO_VALUE.search(words)
        if not words or is_counted or (match["unit"] not in {None, "%"}) or before.strip() == "/":
            continue
        own = _clause(words)
        if direction_of(own) is None and _COUNTS.match(own.strip(" :=\t")):
            continue
        near = _holed(line[begin : match.start()])
        yield _one(line, match, own, near, is_listed=place in listed, is_mean=is_mean)
        begin = end


def _one(
    line: str, match: re.Match[str], own: str, near: str, *, is_listed: bool, is_mean: bool
) -> tuple[tuple[str, ...], Candidate]:
    """Return a number with what its line says of it, and its key among all lines: the labels that
    it may have, the shortest first, and whether it is a mean.

    :param own: the text that belongs to it alone.
    :param near: the text since the last number with a label.
    """
    prefix = line[: match.start()]
    whole, said = _holed(prefix), near.replace(ANY, " ")
    closing = ")" if is_mean and line[match.end() : match.end() + 1] == ")" else ""
    labels = [whole + THE_NUMBER]
    direction = direction_of(own, line)
    split = list(_SPLIT.finditer(prefix))
    if split and direction and not is_listed:
        labels.insert(0, _holed(prefix[split[-1].start() :]) + THE_NUMBER + closing)
    if not is_listed and (direction or direction_of(said) is None):
        plain = own.strip(" \t:=|>-[](){}'\",.")
        labels.insert(0, plain + (f" {ANY} ({THE_NUMBER}{closing}" if is_mean else ""))
    held = bool(split) and split[-1]["held"] is not None
    name = _words(own)
    if direction is None and (direction := direction_of(said)):
        name = _words(re.split(r"[|;\t]", said)[-1])
    elif split and not _SPLIT.search(own):
        name = f"{split[-1][0].lower()} {name}"
    is_test = held and split[-1]["held"].lower().startswith("test")
    kind = 0 if held else 2 if split else 1
    best = _BEST.search(line) is not None
    rank = (direction is None, best, kind, is_test, _figure(name), not is_mean)
    text = match["lost"] or match["number"].replace(",", "")
    digits = re.search(r"\.(\d+)$", text)
    seen = Candidate(
        labels[-1],
        name[:40],
        direction,
        last=float(text),
        line=f"{prefix}[{match[0]}]{line[match.end() :]}".strip(),
        decimals=len(digits[1]) if digits else 0,
        is_training=not held,
        rank=tuple(map(float, rank)),
    )
    return (*labels, str(is_mean)), seen


_FIGURES = (
    *("bpb|bits per byte", "rewards?|returns?", "loss", "nll|likelihood", "ppl|perplexity"),
    "acc|accuracy",
)


def _figure(name: str) -> int:
    """Return the rank of a figure among others on the same data: a loss is finer than a share, and
    beside a reward it is a policy's."""
    return next(
        (n for n, one in enumerate(_FIGURES) if re.search(rf"\b(?:{one})\b", words_of(name))),
        len(_FIGURES),
    )


def _holed(text: str) -> str:
    """Return a text with its numbers as any text."""
    return _NUMBER_IN.sub(ANY, text)


def _clause(label: str) -> str:
    """Return the words of a label that belong to its value alone."""
    marks = list(re.finditer(r"[,;|\[\](){}\t]+\s*(?=\S*\w)|\s[->]+\s+(?=\w)", label))
    return label[marks[-1].end() :] if marks else label


def _words(label: str) -> str:
    return re.sub(r"[^\w%@]+", " ", label).strip().lower()


def _listed(line: str, matches: Sequence[re.Match[str]]) -> dict[int, str]:
    """Return the names of the numbers in a list, by their places: ``test loss, test acc: [0.5,
    0.9]``."""
    found = re.search(r"^(?P<names>[^\d\[(]*,[^\d\[(]*?)[\s:=]*[\[(](?P<values>[^\])]*)[\])]", line)
    if found is None:
        return {}
    names = [one.strip() for one in found["names"].split(",")]
    begin, end = found.span("values")
    inside = [place for place, one in enumerate(matches) if begin <= one.start() < end]
    if len(names) != len(inside):
        return {}
    return dict(zip(inside, names, strict=True))
