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


def test_tokens_win_over_steps_and_bits_per_byte_over_nats(tmp_path: Path) -> None:
    log = read(tmp_path, "step,consumed_tokens,loss,bpb\n1,5000,4.5,1.5\n2,1e4,4.25,1.4\n")
    assert log.unit == "bits_per_byte"
    assert [(p.step, p.tokens, p.loss) for p in log.points] == [(1, 5000, 1.5), (2, 10_000, 1.4)]


HEADERS = (
    "step,loss", "iteration,lm loss", "Iter,train/loss", "_step,train_loss", "global_step,LOSS",
)  # fmt: skip


@pytest.mark.parametrize(
    "text",
    [
        *(f"{header}\n10,4.5\n20,4.25\n" for header in HEADERS),
        "s:0 tel:11.0092\ns:10 trl:4.5 lr:0.000001 norm:15.37\ns:20 trl:4.25 lr:0.1 norm:1\n",
        "iter 39 step 10: loss 4.5, iter time: 1ms\niter 79 step 20: loss 4.25, iter time: 1ms\n",
        "Epoch 1 | iter 50 step 10 | loss train: 4.5, val: 2.861 | iter time: 1 ms (step)\n"
        "Epoch 1 | iter 99 step 20 | loss train: 4.25, val: n/a | iter time: 1 ms\n",
        "Ep 1 | iter 4 | stEp 10: loss train (curr): 4.5, val (prev val iter): None |\n"
        "Ep 1 | iter 8 | step 20: loss train (curr): 4.25, val (prev val iter): None |\n",
        "[x] INFO [olmo.train:816, rank=0] [step=10/739328]\n    train/CrossEntropyLoss=4.5\n"
        "    train/Perplexity=76,631\n[x] INFO [olmo.train:816] [step=20/739328]\n"
        "    train/CrossEntropyLoss=4.25\n[x] INFO [olmo.train:9] [step=20/739328]\n"
        "    eval/validation/CrossEntropyLoss=9.0\n",
        "epoch,step,train_loss_step,val_loss\n0,10,4.5,\n0,15,,4.4\n0,20,4.25,\n",
    ],
    ids=[*HEADERS, "llm.c", "litgpt-2023", "litgpt", "litgpt-finetune", "olmo", "lightning"],
)
def test_trainers_logs_as_published(tmp_path: Path, text: str) -> None:
    assert pairs(read(tmp_path, text)) == [(10_000, 4.5), (20_000, 4.25)]


# The format of megatron/training/training.py in core_v0.17.1.
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


# Formats of trainers, consoles and exports for a loss of 6.0965 after 10 steps and 4.3 after 1,020.
SAME = {
    "nanogpt": "step 0: train loss 9.1, val loss 9.2\n"
    "iter 10: loss 6.0965, time 500.10ms, mfu 40.1%\n"
    "step 1020: train loss 4.2, val loss 4.35\niter 1020: loss 4.3000, time 500.10ms, mfu 40.1%\n",
    "nanogpt's averages": "step 10: train loss 6.0965, val loss 9.2\n"
    "step 1020: train loss 4.3000, val loss 4.35\n",
    "torchtitan": "\x1b[32m[titan] 2025-01-02 INFO - \x1b[31mstep: 10  \x1b[32mloss:  6.0965  "
    "\x1b[34mmemory:  1.2GiB(9%)  \x1b[39m\n\x1b[33mvalidate step: 10  \x1b[32mloss:  7.1\x1b[39m\n"
    "[titan] \x1b[31mstep: 1,020  \x1b[32mloss:  4.3\x1b[39m\n",
    "nemo": "Training epoch 0, iteration 9/4000 | lr: 3e-4 | global_step: 10 | reduced_train_loss: "
    "6.0965\nTraining epoch 0, iteration 1019/4000 | lr: 3e-4 | global_step: 1020 | "
    "reduced_train_loss: 4.3 | val_loss: 9\n",
    "wrapped at words": "[0]: iteration      10/  4000 | elapsed time per iteration (ms): 50.1 |\n"
    "learning rate: 3.0E-04 | lm loss:\n6.096500E+00 | loss scale: 1.0 |\n"
    "[0]: iteration    1020/\n4000 | lm\nloss: 4.3E+00 | loss scale: 1.0 |\n",
    "wrapped anywhere": "iteration 1\n0/  4000 | lm loss: 6.0965E+0\n0 | loss scale: 1.0 |\n"
    " iteration 1020/  4000 | lm loss: 43.0E-\n01 | loss scale: 1.0 |\n",
    "wandb": '"Step","my - run - train/loss","my - run - train/loss__MIN"\n'
    '"10","6.0965","5"\n"1,020","4.3","3"\n',
    "tensorboard": "Wall time,Step,Value\n1.7e9,10,6.0965\n1.7e9,1020,4.3\n",
    "decimal commas": "step;loss\n10;6,0965\n1020;4,300\n",
    "decimal commas, tabs": "step\tloss\n10\t6,0965\n1020\t4,3\n",
    "thousands": "step,loss\n0.01k,6.0965\n1.02k,4.3\n",
    "trainer_state.json": '{\n "global_step": 9,\n "log_history": [\n'
    '  {"step": 10, "loss": 6.0965},\n'
    '  {"step": 10, "eval_loss": 7},\n  {"step": 1020, "loss": 4.3},\n'
    '  {"step": 1020, "train_loss": 5.1, "train_runtime": 9.1}\n ]\n}\n',
    "build-nanogpt": "0 val 10.9\n0 hella 0.25\n10 train 6.0965\n1020 val 4.4\n1020 train 4.3000\n",
    "dictionaries": "{'loss': 6.0965, 'epoch': 0.0, 'step': 10}\n{'eval_loss': 4.4, 'step': 10}\n"
    "{'loss': '4.3', 'epoch': '0.1', 'step': '1020'}\n{'train_runtime': 9.1, 'train_loss': 5.1}\n",
    "json lines": '{"_step": 10, "train/loss": 6.0965, "lr": 0.1}\n{"_step": 10, "eval/loss": 4}\n'
    '{"_step": 11, "train/loss": null}\n{"_step": 1020, "train/loss": 4.3}\n',
    "carriage returns": "step 10 loss=6.0965\rstep 1020 loss=tensor(4.3, device='cuda')\r\n",
}


@pytest.mark.parametrize("text", SAME.values(), ids=SAME)
def test_the_logs_of_the_field_say_the_same(tmp_path: Path, text: str) -> None:
    log = read(tmp_path, text)
    assert pairs(log) == [(10_000, 6.0965), (1_020_000, 4.3)]
    assert log.repeated == 0


def test_a_log_without_steps_is_placed_by_how_often_it_was_written(tmp_path: Path) -> None:
    path = tmp_path / "hf.log"
    path.write_text("{'loss': 6.1, 'epoch': 0.0}\n{'eval_loss': 5}\n{'loss': nan, 'epoch': 0.0}\n")
    with pytest.raises(HandoffError, match="--log-every"):
        read_cloud_log(path, COUNT)
    first, second = read_cloud_log(path, TokenCount(1000, 100, log_every=50)).points
    assert (first.step, first.tokens, first.loss) == (50, 50_000, 6.1)
    assert second.tokens == 100_000
    assert math.isnan(second.loss)


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
        ("Name,State,Created,iter,train/loss\na,finished,2026,5000,1.5\n", "cannot be read as CSV"),
        ("step,accuracy\n1,0.5\n", r"no losses \(columns: accuracy, step\)"),
        ("loss\n4.5\n", r"no steps; .* --log-every"),
        ("step;loss\n1.000;4,5\n", "1 line that cannot"),
        ("step,loss\n10,6,0965\n20,5,4094\n", "2 lines that cannot"),
        ("step\tloss\n10\t6,096\n", "1 line that cannot"),
        ("step 10: loss 6,096\n", "1 line that cannot"),
        ("step 10 loss 3.2x\n", "1 line that cannot"),
        ('"Step","a - train/loss","b - train/loss"\n"1","4","5"\n', "2 columns are train_loss"),
        ("epoch 1 step 90 loss 4\nepoch 2 step 10 loss 3\n", "begin anew with each epoch"),
        ("step 10: eval | loss 4.2\nvalidate step: 20  loss: 4.1\n", "no losses"),
        ("step 10 val loss 4.2\n", "no losses"),
        ("import os, sys\nstep:10/20 val_loss:4.2\nprint(1, 2, 3)\n", "no losses"),
        ("run,tag,step,value\na,lr,1,0.1\n", "no losses"),
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
    with pytest.raises(HandoffError):
        read_cloud_log(tmp_path / "none.csv", COUNT)
    (tmp_path / "binary").write_bytes(b"\xff\xfe\x00\x01")
    with pytest.raises(HandoffError):
        read_cloud_log(tmp_path / "binary", COUNT)


@given(st.text(max_size=300))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
def test_any_text_is_a_log_or_one_sentence(tmp_path: Path, text: str) -> None:
    path = tmp_path / "any"
    path.write_bytes(text.encode("utf-8", "replace"))
    try:
        assert read_cloud_log(path, COUNT).points
    except HandoffError as error:
        assert "\n" not in str(error)


def _of_ranks(form: str, order: str = "steps") -> str:
    """Return the log of eight processes over 40 steps; each one's loss is off by its rank."""
    places = [(step, rank) for step in range(1, 41) for rank in range(8)]
    if order == "mixed":  # a process is up to a step behind the others
        places.sort(key=lambda one: one[0] + one[1] / 9)
        places = [*places[:3], *places[4:6], places[3], *places[6:]]
    lines = (
        form.format(step=step, rank=rank, loss=5 - step / 20 + (rank - 3.5) / 100)
        for step, rank in places
    )
    return "\n".join([*lines, ""])


@pytest.mark.parametrize("order", ["steps", "mixed"])
@pytest.mark.parametrize(
    "form",
    [
        "[rank{rank}]: step {step} | loss {loss:.4f}",
        "[default{rank}]:step {step} loss {loss:.4f}",
        "INFO rank={rank} step {step} loss {loss:.4f}",
        "step {step} loss {loss:.4f}",
        '{{"rank": {rank}, "step": {step}, "loss": {loss:.4f}}}',
    ],
)
def test_a_log_of_eight_ranks_is_one_run_with_their_mean_loss(
    form: str, order: str, tmp_path: Path
) -> None:
    log = read(tmp_path, _of_ranks(form, order))
    assert (log.ranks, log.repeated, len(log.points)) == (8, 0, 40)
    for point in log.points:
        assert point.step is not None
        assert point.loss == pytest.approx(5 - point.step / 20)


def test_a_restart_of_eight_ranks_is_a_restart(tmp_path: Path) -> None:
    lines = _of_ranks("[rank{rank}]: step {step} | loss {loss:.4f}").splitlines()
    log = read(tmp_path, "\n".join([*lines[:200], *lines[160:], ""]))
    assert (log.ranks, log.repeated, len(log.points)) == (8, 5, 40)


def test_one_named_rank_and_a_run_that_began_again_are_one_process(tmp_path: Path) -> None:
    text = "".join(f"[rank0]: step {step} loss {5 - step / 20}\n" for step in range(1, 20))
    assert read(tmp_path, text).ranks == 1
    again = read(tmp_path, text + text)
    assert (again.ranks, again.repeated) == (1, 19)
