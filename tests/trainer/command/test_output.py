"""Scores, curves and failures are parsed from a command's output."""

import math
import re
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.commands import command
from tests.support.present import known
from trainer.command.number import ESCAPE, Number, needle
from trainer.command.out_of_memory import shortage
from trainer.command.output import MAX_LINE_BYTES, Lines, Printed, taken
from trainer.schema import CurveRule, ScoreRule


@given(st.binary(max_size=300), st.lists(st.integers(0, 300), max_size=5))
def test_lines_are_the_same_wherever_they_are_cut(data: bytes, cuts: list[int]) -> None:
    def read(pieces: list[bytes]) -> list[str]:
        lines = Lines()
        return [line for piece in pieces for line in lines.feed(piece)] + list(lines.rest())

    places = [0, *sorted(min(cut, len(data)) for cut in cuts), len(data)]
    pieces = [data[a:b] for a, b in pairwise(places)]
    assert read(pieces) == read([data])


def test_a_carriage_return_ends_a_line_and_a_line_without_end_is_cut() -> None:
    assert list(Lines().feed(b"step 1\rstep 2\r\nstep 3\n")) == ["step 1", "step 2", "step 3"]
    lines = Lines()
    for _ in range(100):
        assert not list(lines.feed(b"x" * 10_000))
    assert len(next(lines.feed(b"\n"))) == MAX_LINE_BYTES


NANO = r"val loss ([0-9.]+)"


@pytest.mark.parametrize(
    ("pattern", "line", "number"),
    [
        (NANO, "step 5: train loss 2.1, val loss 2.5", 2.5),
        (NANO, "val loss nan", math.nan),
        (NANO, "val loss inf", math.inf),
        (r"loss=(?P<x>\d+\.\d+)", "loss=NaN", math.nan),
        (r"(?:loss|err)[([]* ([-+\d.e]+)", "err([ 1e-3", 1e-3),
        (r"acc \(([\d.]+)%\)", "acc (nan%)", math.nan),
        (NANO, "val loss banana", None),
        (NANO, "val loss 3.2abc", None),
        (NANO, "val loss 3.2.1", None),
        (NANO, "saved epoch=3-val loss 3.21.ckpt", None),
        (r"val loss ([-+0-9.eE]+)", "val loss 3.2e", None),
        (r"val loss (\S+)", "val loss 3,2", None),
        (r"val loss ([0-9.]+)(?:s|ms)", "val loss 3.2ms", 3.2),
        (NANO, "val loss 1,234.5", 1234.5),
        (r"val loss (\S+)", "val loss 1,234.5", 1234.5),
        (NANO, "\x1b[32mval \x1b[0mloss \x1b[1m3.2\x1b[0m", 3.2),
        (NANO, "val loss \x1b]8;;http://x\x1b\\3.2\x1b[K", 3.2),
        (r"val loss\D*(\d[\d.]*)", "val loss \x1b[1;31mnone", None),
        (r"\x1b\[1m([0-9.]+)", "val loss \x1b[1m3.2", 3.2),
        (NANO, "val loss tensor([3.2], device='cuda:0', grad_fn=<NllLossBackward0>)", 3.2),
        (NANO, "val loss tf.Tensor(3.2, shape=(), dtype=float32)", 3.2),
        (r"val loss\D*(\d[\d.]*)", "val loss np.float64(3.2)", 3.2),
        (NANO, "val loss tensor([3.2, 4.1])", None),
        (NANO, "val loss [3.]", 3),
        (NANO, "step [5]: val loss [[ 3.25]]", 3.25),
        (NANO, "val loss [nan]", math.nan),
        (NANO, "val loss [3.2 4.1]", None),
        (r"val loss \[([0-9.]+)\]", "val loss [3.2]", 3.2),
        (r"tensor\(([0-9.]+)", "val loss tensor(3.2)", 3.2),
        (NANO, "train loss 2.5", None),
    ],
)
def test_a_number_is_found_even_if_lost(pattern: str, line: str, number: float | None) -> None:
    found = Number(pattern).search(line)
    if number is None:
        assert found is None
    else:
        assert known(found)[1] == pytest.approx(number, rel=0, abs=0, nan_ok=True)


@pytest.mark.parametrize(
    ("pattern", "line", "cut"),
    [
        (NANO, "val loss 3.4e-5", "3.4e-5"),
        (NANO, "val loss 3,2", "3,2"),
        (r"val loss.*([0-9.]+)", "val loss 3.25", "3.25"),
        (r"val loss\D*(\d[\d.]*)", "val loss -3.2", "-3.2"),
        (r"val loss (\d+)", "val loss 2.5.", "2.5"),
        (r"val loss (\d\.\d\d)", "val loss 2.512", "2.512"),
        (NANO, "val loss 2.5, 123", ""),
        (NANO, "val loss 1234,567", "1234,567"),
        (NANO, "val loss 2.5.", ""),
        (r"val loss ([-+0-9.eE]+)", "val loss 3.4e-5", ""),
    ],
)
def test_a_number_that_is_read_in_part_is_told(pattern: str, line: str, cut: str) -> None:
    printed = Printed(command(score=ScoreRule(pattern=pattern)))
    printed.take(line)
    assert printed.cut == cut


@pytest.mark.parametrize(
    ("take", "scores", "wanted"),
    [
        ("last", [3.0, 2.0, 2.5], 2.5),
        ("first", [3.0, 2.0, 2.5], 3.0),
        ("lowest", [3.0, 2.0, 2.5], 2.0),
        ("highest", [3.0, 2.0, 2.5], 3.0),
        ("last", [], None),
        ("last", [2.0, math.nan], math.nan),
        ("lowest", [2.0, math.nan, 1.0], math.nan),
        ("lowest", [math.nan, 1.0], math.nan),
    ],
)
def test_which_score_is_taken(take: Any, scores: list[float], wanted: float | None) -> None:
    found = taken(scores, take)
    both_lost = wanted is not None and found is not None and math.isnan(wanted)
    assert math.isnan(found) if both_lost and found is not None else found == wanted


def test_a_curve_is_read_with_its_steps_from_nought() -> None:
    printed = Printed(command())
    lines = ["iter 0: loss 4.1", "step 0: val loss 4.0", "iter 1: loss 3.9", "iter x: loss 1"]
    assert [printed.take(line) for line in lines] == [(0, 4.1), None, (1, 3.9), None]
    assert printed.scores == [4.0]
    rule = CurveRule(pattern=r"(?P<loss>[\d.]+) at step (?P<step>\d+)")
    assert Printed(command(curve=rule)).take("2.5 at step 7") == (7, 2.5)


def test_a_loss_that_is_lost_is_a_point_without_number() -> None:
    step, loss = known(Printed(command()).take("iter 5: loss nan"))
    assert (step, math.isnan(loss)) == (5, True)


@pytest.mark.parametrize(
    "line",
    [
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 MiB",
        "RuntimeError: [enforce fail at alloc_cpu.cpp] DefaultCPUAllocator: can't allocate memory",
        "MemoryError",
        "terminate called after throwing an instance of 'std::bad_alloc'",
        "XlaRuntimeError: RESOURCE_EXHAUSTED: Out of memory",
        "my allocator is sad",
        "numpy._core._exceptions._ArrayMemoryError: Unable to allocate 7.45 TiB",
        "RuntimeError: CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`",
        "CUDA Runtime Error: cudaErrorMemoryAllocation",
    ],
)
def test_out_of_memory_is_known_by_what_frameworks_print(line: str) -> None:
    printed = Printed(command(oom=("allocator is sad",)))
    printed.take("all is well")
    assert not printed.out_of_memory
    printed.take(line)
    assert printed.out_of_memory == line


GPU, HOST, ANY = "out of GPU memory", "out of host memory", "out of memory"


@pytest.mark.parametrize(
    ("line", "on_cuda", "on_cpu"),
    [
        ("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 MiB", GPU, GPU),
        ("RuntimeError: CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublas…`", GPU, GPU),
        ("CUDA Runtime Error: cudaErrorMemoryAllocation", GPU, GPU),
        ("XlaRuntimeError: RESOURCE_EXHAUSTED: Out of memory", GPU, HOST),
        ("MemoryError", HOST, HOST),
        ("_ArrayMemoryError: Unable to allocate 7.45 TiB", HOST, HOST),
        ("terminate called after throwing an instance of 'std::bad_alloc'", HOST, HOST),
        ("[enforce fail at alloc_cpu.cpp] DefaultCPUAllocator: can't allocate memory", HOST, HOST),
        ("OSError: [Errno 12] Cannot allocate memory", HOST, HOST),
        ("my allocator is sad", ANY, HOST),
    ],
)
def test_a_gpus_memory_is_told_from_the_hosts(line: str, on_cuda: str, on_cpu: str) -> None:
    assert (shortage(line, "cuda:1"), shortage(line, "cpu")) == (on_cuda, on_cpu)


def test_a_flood_of_scores_is_bounded() -> None:
    printed = Printed(command(score=ScoreRule(pattern=r"s(\d+)"), curve=None))
    for number in range(100_500):
        printed.take(f"s{number}")
    assert len(printed.scores) <= 100_000
    assert (printed.scores[0], printed.scores[-1]) == (0, 100_499)


WORDS = st.sampled_from(
    "iter |step |: loss |val loss |val_loss|loss| |1|2.5|nan|-inf|3e-5|[ |]|tensor(|np.float64(|)|"
    "\x1b[32m|\x1b[0m|\x1b|out of memory|MemoryError|é|٣|\udcff|\n|\r|\r\n|x|,".split("|")
)
PATTERNS = (
    r"val loss ([0-9.]+)",
    r"(?i)VAL LOSS ([0-9.]+)",
    r"loss([-+0-9.e]+)",
    r"(?:val|train)[ _]loss\s*(\S+)",
    r"1(\d)",
)


@settings(max_examples=200)
@given(
    st.lists(WORDS, max_size=40),
    st.sampled_from(PATTERNS),
    st.sampled_from([None, CurveRule(pattern=r"(?:iter|step) (\d+): loss ([0-9.]+)")]),
    st.integers(1, 40),
)
def test_output_is_read_as_a_whole_as_by_its_lines(
    words: list[str], pattern: str, curve: CurveRule | None, size: int
) -> None:
    data = "".join(words).encode("utf-8", "surrogateescape")
    told = command(score=ScoreRule(pattern=pattern), curve=curve, oom=("x.*é",))
    by_lines, whole, lines = Printed(told), Printed(told), Lines()
    points = [by_lines.take(line) for line in [*lines.feed(data), *lines.rest()]]
    found = [
        point for at in range(0, len(data), size) for point in whole.feed(data[at : at + size])
    ]
    assert repr([*found, *whole.rest()]) == repr([one for one in points if one])
    assert repr(whole.scores) == repr(by_lines.scores)
    assert (whole.cut, whole.out_of_memory) == (by_lines.cut, by_lines.out_of_memory)


@pytest.mark.parametrize(
    ("pattern", "text"),
    [
        (r"(?<!\w)val\s*loss(?!\w)(\d+)", "loss"),
        (r"mean loss (\d+)", "mean loss"),
        (r"\blosses?\s*[:=] *([0-9.]+)", "losse"),
        (r"(?:a|b) loss (?:[|]|:)(\d+)", "loss"),
        (r"out|ast(\d+)", ""),
        (r"(?i)loss (\d+)", ""),
        (r"(\d+\.\d+)", ""),
        (r"\x41bc (\d)", ""),
    ],
)
def test_the_text_that_a_pattern_needs(pattern: str, text: str) -> None:
    assert needle(pattern) == text


PARTS = st.sampled_from(
    r"loss val ar 1 - \. (?:a|lo) (?:s|) s* s+ \s \S . \b ^ $ [ab] (?=a) (?:va){2} x? :".split()
)
BITS = st.sampled_from(
    "loss|val|ar|lo|a|s|1|-|.|:| |x|[|]|tensor(|float32(|)|])|1.5|nan|2e|١|ſ|é".split("|")
)


@settings(max_examples=500)
@given(st.lists(PARTS, min_size=1, max_size=6), st.lists(BITS, max_size=12))
def test_no_line_is_lost(parts: list[str], bits: list[str]) -> None:
    pattern, line = "".join(parts) + r"([-+.\d]+|nan)", "".join(bits)
    try:
        number = Number(pattern)
    except re.error:
        return
    if re.search(pattern, number.cleaned(line)):
        assert ESCAPE in line or needle("".join(parts)) in line
