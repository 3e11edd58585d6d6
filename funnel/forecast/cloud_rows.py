"""Split a cloud run's log into rows: JSON lines, CSV, Hugging Face's dictionaries, printed lines.

A row maps columns to values. Column names are lower case, ``train/loss`` becomes ``train_loss``,
and the run names in a chart exported by Weights & Biases are removed. A last line without a newline
is still being written and is ignored.
"""

import csv
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

Row = tuple[int, Mapping[str, object] | None]
"""Line number, from 1, and the line's values by column; None if the line is invalid."""

STEP_NAMES = (
    "step", "_step", "iteration", "iter", "global_step", "train_iter", "trainer_global_step",
    "train_global_step",
)  # fmt: skip
LOSS_NAMES = (
    "loss", "train_loss", "lm_loss", "training_loss", "nll", "reduced_train_loss", "train_lm_loss",
    "train_loss_step", "loss_train", "loss_metrics_global_avg_loss",
)  # fmt: skip
TOKEN_NAMES = (
    "tokens", "consumed_tokens", "train_tokens", "tokens_seen", "total_tokens", "num_tokens",
)  # fmt: skip
BPB_NAMES = ("bpb", "bits_per_byte", "train_bpb")

_ESCAPE = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\^_])")
_FIGURE = (
    r"(?:\s*[:=]\s*|\s+)(?:[\w.]{1,20}\()?"
    r"([-+]?(?:nan|inf|\.?\d)(?:[^\s|;()\[\]{}',]|,(?=\d))*(?:\n[\d.eE+-]+(?=[ ]*\|))?)"
)
"""A separator and a number; a console may have wrapped the number before a ``|``."""
_STEP = re.compile(
    r"(?<![\w/])(?<!per )(?:iteration\s+(\d[\d\s]*)/[\d\s]+\||"
    r"(?:global_?step|train_?step|iteration|iter|step|s(?=:\d+ +trl:))[ \t:=#\[]+"
    r"(\d[\d,_]*(?:\.\d+)?[kmb]?)(?![\w.]))",
    re.IGNORECASE,
)
_GLOBAL_STEP = re.compile(rf"\bglobal_step{_FIGURE}|\biter +\d+[ |]+step +(\d+)", re.IGNORECASE)
"""The optimizer's step; LitGPT's ``iter 76 step 38`` also counts batches."""
_LM_LOSS = re.compile(
    rf"\b(?:lm[\s_]loss|reduced_train_loss|train/CrossEntropyLoss){_FIGURE}", re.IGNORECASE
)
_LOSS = re.compile(
    r"(?<![\w/])(?:train(?:ing)?[ _/]loss|loss[ ]train(?:[ ]\(curr\))?|trl|"
    rf"(?<![a-z][ /_-])loss){_FIGURE}",
    re.IGNORECASE,
)
_HELD_OUT = re.compile(r"\b(?:val|valid(?:ation|ate)?|eval(?:uation)?)\b", re.IGNORECASE)
_SAMPLES = re.compile(rf"\bconsumed[\s_]samples{_FIGURE}")
_EPOCH = re.compile(r"\bepoch[ :=\[]+(\d+)", re.IGNORECASE)
RANK_NAMES = ("rank", "global_rank", "local_rank", "node_rank", "process", "process_index")
_RANK = re.compile(r"\brank[ =:_]?\s?(\d+)\b|\[(?:default|rank)(\d+)\]", re.IGNORECASE)
"""The process that printed a line: ``rank=3``, and torchrun's ``[rank3]:`` and ``[default3]:``."""
_WRAPPED = re.compile(r"\biteration\s+\d[\d\s]*(?:/|$)|\bglobal_step:|\[step=\d+/")
"""Beginnings of records that span several lines: OLMo's, and those of Megatron-LM and NeMo, which
consoles wrap."""
_MOST_WRAPPED = 8
"""Largest number of lines that a console makes of one record."""
_DICTIONARY = re.compile(r"\{'[^{}]*\}")
_ITEM = re.compile(r"'([^']+)'\s*:\s*'?([^,'{}]+)")

_SUMMARY = "train_runtime"
"""Key of Hugging Face's last row, whose ``train_loss`` is the mean over the run."""
_STEP_TRAIN = re.compile(rf"\s*(\d+) train{_FIGURE}\s*")
"""A line of build-nanogpt's log: ``250 train 5.9``."""
_DECIMAL_COMMA = re.compile(r"\A(\s*[-+]?\d+),(\d+\s*)\Z")


def log_rows(text: str) -> Iterable[Row]:
    """Return the rows of a log.

    :raises csv.Error: if the log is CSV and cannot be read.
    """
    lines = re.sub(r"\r+\n?", "\n", _ESCAPE.sub("", text)).split("\n")
    unfinished = lines.pop()
    first = next(filter(str.strip, [*lines, unfinished]), "").lstrip()
    if re.match(r"\{(?!')|\[\s*(\{|$)", first):
        return _json_rows(lines, unfinished)
    return (
        _dictionary_rows(lines)
        or _printed_rows(lines)
        or [
            (number, {"step": found[1], "loss": found[2]})
            for number, line in enumerate(lines, start=1)
            if (found := _STEP_TRAIN.fullmatch(line))
        ]
        or _csv_rows(lines, unfinished, first)
    )


def _json_rows(lines: Sequence[str], unfinished: str) -> Iterator[Row]:
    whole = _json("\n".join([*lines, unfinished]))
    if isinstance(whole, dict):
        whole = whole.get("log_history")  # Hugging Face's trainer_state.json
    if isinstance(whole, list):
        objects = list(enumerate(whole, start=1))
    else:
        texts = enumerate([*lines, *([unfinished] if _json(unfinished) else [])], start=1)
        objects = [(number, _json(line)) for number, line in texts if line.strip()]
    for number, values in objects:
        if not isinstance(values, dict):
            yield number, None
        elif _SUMMARY not in values:
            yield number, _plain(values)


def _json(text: str) -> object:
    """Return the value of a JSON text; None if it is not valid JSON."""
    try:
        value: object = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return value


def _dictionary_rows(lines: Sequence[str]) -> list[Row]:
    """Return the dictionaries that Hugging Face's Trainer prints, without its final summary."""
    rows: list[Row] = []
    for found in _DICTIONARY.finditer("\n".join(lines)):
        values = dict(_ITEM.findall(found[0]))
        if "loss" in values and _SUMMARY not in values:
            rows.append((len(rows) + 1, _plain(values)))
    return rows


def _printed_rows(lines: Sequence[str]) -> list[Row]:
    """Return the lines that name a step and a training loss.

    nanoGPT also prints averages (``step 100: train loss 4.2, val loss 4.3``). They count only if
    the log has no losses of single batches, which a forecast predicts.
    """
    rows: list[Row] = []
    averages: list[Row] = []
    for number, line, joined in _records(lines):
        step = _GLOBAL_STEP.search(joined) or _STEP.search(joined)
        loss = _LM_LOSS.search(joined) or _LOSS.search(line)
        if step is None or loss is None:
            continue
        is_bare = loss[0][:4].lower() == "loss"
        if is_bare and _HELD_OUT.search(line[: loss.start()]):
            continue
        samples, epoch, rank = _SAMPLES.search(joined), _EPOCH.search(line), _RANK.search(line)
        values = {
            "step": re.sub(r"\s", "", step[step.lastindex or 0]),
            "consumed_samples": samples[1] if samples else None,
            "loss": re.sub(r"\s", "", loss[1]),
            "epoch": epoch[1] if epoch else None,
            "rank": next(filter(None, rank.groups())) if rank else None,
        }
        is_average = not is_bare and _HELD_OUT.search(line) is not None
        (averages if is_average else rows).append((number, values))
    return rows or averages


def _records(lines: Sequence[str]) -> Iterator[tuple[int, str, str]]:
    """Yield each line that has a step: its number, the line, and the line with its wrapped rest."""
    for at, line in enumerate(lines):
        if _STEP.search(line) is None:
            continue
        end = at + 1
        if _WRAPPED.search(line):
            last = min(len(lines), at + _MOST_WRAPPED)
            while end < last and _STEP.search(lines[end]) is None:
                end += 1
        yield at + 1, line, "\n".join(lines[at:end])


def _csv_rows(lines: list[str], unfinished: str, first: str) -> Iterator[Row]:
    delimiter = max(",;\t", key=first.count)
    records = csv.reader([*lines, unfinished], delimiter=delimiter)
    names = [_plain_name(name) for name in next(records, [])]
    if sorted(names) == ["step", "value", "wall_time"]:  # TensorBoard
        names[names.index("value")] = "loss"
    if {"name", "state", "created"} <= set(names):
        raise csv.Error("it is a table with a line for each run; export the chart of one")
    for name in {*STEP_NAMES, *LOSS_NAMES}:
        if names.count(name) > 1:
            raise csv.Error(f"{names.count(name)} columns are {name}, of several runs perhaps")
    is_table = not {*STEP_NAMES, *TOKEN_NAMES, *LOSS_NAMES, *BPB_NAMES}.isdisjoint(names)
    for record in records:
        if not record:
            continue
        if len(record) == len(names):
            cells = record
            if delimiter == ";":
                cells = [_DECIMAL_COMMA.sub(r"\1.\2", cell) for cell in record]
            yield records.line_num, dict(zip(names, cells, strict=True))
        elif is_table and records.line_num <= len(lines):
            yield records.line_num, None


def _plain(values: Mapping[str, object]) -> dict[str, object]:
    return {_plain_name(name): value for name, value in values.items()}


def _plain_name(name: str) -> str:
    return re.sub(r"[\s/.-]+", "_", name.rsplit(" - ", 1)[-1].strip().lower())


_GROUPED = re.compile(r"[-+]?\d{1,3}(?:,\d{3})+(\.\d+)?")
_SCALES = {"k": 1e3, "m": 1e6, "b": 1e9}


def as_number(value: object, *, is_count: bool) -> float:
    """Return the number in a cell, such as ``1,010``, ``1.5k`` or ``6,0965``.

    :raises ValueError: if the cell is not a number, or is ambiguous: a loss ``6,096``, a step
        ``1.000``.
    """
    if not isinstance(value, str):
        return float(value if isinstance(value, (int, float)) else str(value))
    text = value.strip().rstrip(".:,")
    scale = _SCALES.get(text[-1:].lower(), 1.0) if is_count else 1.0
    if scale > 1:
        return round(float(text[:-1]) * scale, 3)
    grouped = _GROUPED.fullmatch(text)
    if grouped and (is_count or grouped[1]):
        text = text.replace(",", "")
    elif grouped or (is_count and re.fullmatch(r"\d{1,3}(\.\d{3})+", text)):
        raise ValueError(text)
    elif not is_count and "." not in text:
        text = text.replace(",", ".")
    return float(text)
