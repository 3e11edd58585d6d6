from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from autoresearch.errors import HandoffError
from funnel.forecast.cloud_log import CloudLog, TokenCount, read_cloud_log

COUNT = TokenCount(per_step=1000, per_sample=100)


def read(folder: Path, text: str) -> CloudLog:
    path = folder / "cloud.log"
    path.write_text(text)
    return read_cloud_log(path, COUNT)


def pairs(log: CloudLog) -> list[tuple[int, float]]:
    return [(point.tokens, point.loss) for point in log.points]


@pytest.mark.parametrize(
    "header",
    ["step,loss", "iteration,lm loss", "Iter,train/loss", "_step,train_loss", "global_step,LOSS"],
)
def test_columns_go_by_the_names_of_the_field(tmp_path: Path, header: str) -> None:
    assert pairs(read(tmp_path, f"{header}\n10,4.5\n20,4.25\n")) == [(10_000, 4.5), (20_000, 4.25)]


def test_tokens_win_over_steps(tmp_path: Path) -> None:
    log = read(tmp_path, "step,consumed_tokens,loss\n1,5000,4.5\n2,1e4,4.25\n")
    assert pairs(log) == [(5000, 4.5), (10_000, 4.25)]
    assert [point.step for point in log.points] == [1, 2]


def test_bits_per_byte_are_taken_as_they_are(tmp_path: Path) -> None:
    log = read(tmp_path, "step,loss,bpb\n1,4.5,1.5\n2,4.25,1.4\n")
    assert log.unit == "bits_per_byte"
    assert [point.loss for point in log.points] == [1.5, 1.4]


def test_json_lines_with_evaluations_between(tmp_path: Path) -> None:
    rows = [
        {"_step": 1, "train/loss": 4.5, "lr": 0.1},
        {"_step": 1, "eval/loss": 4.4},
        {"_step": 2, "train/loss": None},
        {"_step": 3, "train/loss": 4.25},
    ]
    log = read(tmp_path, "".join(json.dumps(row) + "\n" for row in rows))
    assert pairs(log) == [(1000, 4.5), (3000, 4.25)]


# As megatron/training/training.py of core_v0.17.1 formats it.
MEGATRON = (
    " [2026-03-01 10:00:00.123456] iteration {step:8d}/  100000 | consumed samples: {samples:12d} |"
    " elapsed time per iteration (ms): 1234.5 | throughput per GPU (TFLOP/s/GPU): 390.1 |"
    " learning rate: 3.000000E-04 | global batch size:    64 | lm loss: {loss:.6E} |"
    " loss scale: 1.0 | grad norm: 0.512 | number of skipped iterations:   0 |"
    " number of nan iterations:   0 |\n"
)


def test_megatrons_own_log_counts_tokens_by_its_samples(tmp_path: Path) -> None:
    text = "building GPT model ...\n" + "".join(
        MEGATRON.format(step=step, samples=64 * step, loss=5 - step / 10) for step in (1, 2, 3)
    )
    text += " validation loss at iteration 3 | lm loss value: 4.1E+00 | lm loss PPL: 6.0E+01 |\n"
    assert pairs(read(tmp_path, text)) == [(6400, 4.9), (12_800, 4.8), (19_200, 4.7)]


def test_a_last_line_still_being_written_is_left_for_later(tmp_path: Path) -> None:
    assert pairs(read(tmp_path, "step,loss\n1,4.5\n2,4.25\n3")) == [(1000, 4.5), (2000, 4.25)]
    whole = '{"step": 1, "loss": 4.5}\n'
    assert pairs(read(tmp_path, whole + '{"step": 2, "lo')) == [(1000, 4.5)]
    assert len(read(tmp_path, whole + '{"step": 2, "loss": 4.0}').points) == 2
    torn = MEGATRON.format(step=2, samples=128, loss=4.8)[:180]
    assert len(read(tmp_path, MEGATRON.format(step=1, samples=64, loss=4.9) + torn).points) == 1


def test_what_a_resumed_run_repeats_counts_as_it_was_the_last_time(tmp_path: Path) -> None:
    log = read(tmp_path, "step,loss\n1,4\n2,3\n3,9\n4,9\n3,2\n4,1\n")
    assert pairs(log) == [(1000, 4), (2000, 3), (3000, 2), (4000, 1)]
    assert log.repeated == 2


def test_losses_that_are_not_finite_are_kept(tmp_path: Path) -> None:
    log = read(tmp_path, "step,loss\n1,4.5\n2,nan\n3,inf\n")
    assert math.isnan(log.points[1].loss)
    assert math.isinf(log.points[2].loss)
    assert math.isnan(read(tmp_path, '{"step": 1, "loss": NaN}\n').points[0].loss)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("step,loss\n1,4.5\n2,oops\nx,4\n4,4.2\n", r"2 lines that cannot .* \(3, 4\)"),
        ("step,loss\n1,4.5,7\n2,4.4\n", r"1 line that cannot .* \(2\)"),
        ('{"step": 1, "loss": 4.5}\n{"step": 2,\n{"step": 3, "loss": 4}\n', r"\(2\)"),
        ('{"step": 1, "loss": [4.5]}\n', r"1 line that cannot"),
        ("step,loss\n1.5,4.5\n", r"1 line that cannot"),
        ("step,loss\n-1,4.5\n", r"1 line that cannot"),
        ("step,loss\n" + "x,y\n" * 9, r"9 lines .* \(2, 3, 4, 5, 6 and 4 more\)"),
        ("step,accuracy\n1,0.5\n", r"no losses \(columns: accuracy, step\)"),
        ("loss\n4.5\n", r"no losses"),
        ("", r"no losses"),
        ("\n\n", r"no losses"),
        ('step,loss\n1,"' + "4" * 200_000 + '"\n2,4\n', "cannot be read as CSV"),
        ('{"step": 1' + "0" * 400 + ', "loss": 4}\n', "1 line that cannot"),
    ],
)
def test_what_makes_no_sense_is_said_in_one_sentence(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(HandoffError, match=said) as caught:
        read(tmp_path, text)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 600


def test_a_file_that_is_not_there_or_not_text(tmp_path: Path) -> None:
    with pytest.raises(HandoffError, match="No such file"):
        read_cloud_log(tmp_path / "none.csv", COUNT)
    (tmp_path / "binary").write_bytes(b"\xff\xfe\x00\x01")
    with pytest.raises(HandoffError, match="not UTF-8"):
        read_cloud_log(tmp_path / "binary", COUNT)


LOSSES = st.lists(st.floats(0.01, 20), min_size=1, max_size=30)


@given(LOSSES)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
def test_every_format_says_the_same(tmp_path: Path, losses: list[float]) -> None:
    numbered = list(enumerate(losses, start=1))
    as_csv = "step,loss\n" + "".join(f"{step},{loss!r}\n" for step, loss in numbered)
    as_json = "".join(json.dumps({"step": step, "loss": loss}) + "\n" for step, loss in numbered)
    expected = [(1000 * step, loss) for step, loss in numbered]
    assert pairs(read(tmp_path, as_csv)) == expected
    assert pairs(read(tmp_path, as_json)) == expected


@given(st.text(max_size=300))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
def test_any_text_is_a_log_or_one_sentence(tmp_path: Path, text: str) -> None:
    path = tmp_path / "any"
    path.write_bytes(text.encode("utf-8", "replace"))
    try:
        assert read_cloud_log(path, COUNT).points
    except HandoffError as error:
        assert "\n" not in str(error)
