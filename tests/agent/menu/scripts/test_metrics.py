"""Which number of a script's output is its score, how a menu names it, and which is better."""

import pytest

from agent.menu.scripts.metrics import (
    candidates,
    curve_in,
    curve_pattern,
    direction_of,
    in_files,
    last_step,
    pattern_of,
)
from trainer.command.number import FILE_MARK, Number

LOWER = (
    "FID score|KID score|Brier score|MSE score|RMSE score|MAE score|Davies-Bouldin score|WER score"
    "|perplexity score|val_acc_loss|1-accuracy|neg log likelihood|error rate|log loss"
    "|word error rate"
    "|train/val_loss|bits/dim|ce|NLL|MAPE|CER|EER|LPIPS|val_bpb|bits per byte|ppl|valid loss"
    "|mean squared error|false positive rate|KL divergence|Hausdorff distance|-log likelihood"
)
HIGHER = (
    "mAP|IoU|mIoU|r2|R²|R^2 score|NDCG@10|win rate|val_acc|accuracy|top1|Acc@1|acc1|f1|macro F1|AUC"
    "|ROC-AUC|auroc|AP50|mAP50-95|BLEU|rougeL|PSNR|SSIM|reward|episodic_return|neg_mean_squared_error"
    "|neg_log_loss|MRR|hit@10|Dice|kappa|MCC|spearman|silhouette|ELBO|log-likelihood|pass@1|EM"
    "|exact_match|elo|success rate|balanced_accuracy|explained_variance|precision@5|recall"
    "|SI-SDR"
    "|PESQ|STOI|CIDEr|METEOR|chrF|coefficient of determination|reward per episode"
    "|accuracy per class"
)
UNKNOWN = "Timesteps So Far|pass|score|value|metric|coverage|diversity|similarity|margin|goodness"


@pytest.mark.parametrize(
    ("labels", "direction"), [(LOWER, "minimise"), (HIGHER, "maximise"), (UNKNOWN, None)]
)
def test_a_metric_s_name_tells_its_direction_or_nothing(labels: str, direction: str | None) -> None:
    wrong = {one: found for one in labels.split("|") if (found := direction_of(one)) != direction}
    assert not wrong


@pytest.mark.parametrize(
    ("line", "direction"),
    [
        ("accuracy: 0.3 (lower is better)", "minimise"),
        ("goodness ↑ 0.3", "maximise"),
        ("distance (higher is better) 0.3", "maximise"),
    ],
)
def test_words_in_the_line_decide_first(line: str, direction: str) -> None:
    assert candidates([line])[0].direction == direction


METER = (
    "Test: [0/4]\tTime 0.5 (0.6)\tLoss 4.20 (3.10)\nTest: [3/4]\tTime 0.5 (0.6)\tLoss 4.23 (3.48)"
)
NANO = (
    "step 0: train loss 4.2, val loss 4.3\niter 0: loss 4.4, time 30ms, mfu 1.2%\n"
    "step 250: train loss 1.2, val loss 1.4\niter 250: loss 1.3, time 30ms, mfu 1.2%"
)
EPOCHS = (
    "Epoch 1 | train: loss 1.2 acc 0.3 | val: loss 1.4 acc 0.29\n"
    "Epoch 2 | train: loss 1.1 acc 0.4 | val: loss 1.3 acc 0.39"
)
KERAS = "313/313 - 1s - loss: 0.50 - accuracy: 0.80 - val_loss: 0.40 - val_accuracy: 0.90"


@pytest.mark.parametrize(
    ("printed", "label", "value", "direction"),
    [
        (METER, "Loss … ({})", 3.48, "minimise"),
        (NANO, "val loss", 1.4, "minimise"),
        (NANO + "\nbest val loss: 1.40", "val loss {}", 1.4, "minimise"),
        (EPOCHS, "val: loss", 1.3, "minimise"),
        (KERAS, "val_loss", 0.4, "minimise"),
        ("test loss, test acc: [3.2, 0.31]", "test loss, test acc: [{}", 3.2, "minimise"),
        ("{'eval_loss': 0.512, 'eval_acc': 0.91, 'epoch': 3.0}", "eval_loss", 0.512, "minimise"),
        (
            "Test set: Average loss: 0.05, Accuracy: 98/100 (98%)",
            "Test set: Average loss",
            0.05,
            "minimise",
        ),
        (
            "Accuracy of the network on the 10000 test images: 63 %",
            "Accuracy of the network on the … test images: {}",
            63,
            "maximise",
        ),
        (
            "loss 0.51 is the best so far\nvalid loss 0.52\nvalid loss 0.51",
            "valid loss",
            0.51,
            "minimise",
        ),
        ("Loss = 0.5 || Reward = 20.5", "Reward", 20.5, "maximise"),
        ("epoch 3 lr 0.1 return 200.5", "return", 200.5, "maximise"),
        ("val loss 0.4\ntest loss 0.5", "val loss", 0.4, "minimise"),
        ("train loss 1.0\nvalid ppl 148.41", "valid ppl", 148.41, "minimise"),
        ("neg_mean_squared_error -3.2", "neg_mean_squared_error", -3.2, "maximise"),
        ("val F1 0.5 at 10 epochs", "val F1", 0.5, "maximise"),
        ("test loss nan", "test loss", float("nan"), "minimise"),
        ("cost: 1,234.5", "cost", 1234.5, "minimise"),
        ("val loss 1e-3", "val loss", 1e-3, "minimise"),
        ("Loss_D: 1.5 Loss_G: 2.5 D(x): 0.5", "Loss_G", 2.5, "minimise"),
        ("rmse: 3.2\nFinished Squared Error in: 0.5", "rmse", 3.2, "minimise"),
        ("Solved! reward is now 9\nAverage reward: 7", "Average reward", 7, "maximise"),
    ],
)
def test_the_score_is_what_a_person_would_read(
    printed: str, label: str, value: float, direction: str
) -> None:
    found = candidates(printed.splitlines())[0]
    assert (found.label, found.direction) == (label, direction)
    assert found.last == pytest.approx(value, nan_ok=True)
    read = [one for line in printed.splitlines() if (one := Number(pattern_of(label)).search(line))]
    assert read[-1][1] == pytest.approx(value, nan_ok=True)


def test_xgboosts_names_tell_the_data() -> None:
    found = candidates(["[1]\tdtrain-rmse:0.75\tdtest-rmse:0.95"])
    assert [(one.label, one.is_training) for one in found] == [
        ("dtest-rmse", False),
        ("dtrain-rmse", True),
    ]


def test_a_score_of_training_data_is_marked_and_an_unknown_metric_comes_last() -> None:
    found = candidates(["goodness 3.0", "loss 2.0"])
    assert [(one.name, one.direction, one.is_training) for one in found] == [
        ("loss", "minimise", True),
        ("goodness", None, True),
    ]


@pytest.mark.parametrize(
    "line",
    [
        "",
        "epoch 3",
        "10%|█ | 3/10 [00:01<00:02, 1.5it/s]",
        "params: 3000",
        "SPS: 438",
        "│ 0 │ l1   │ Linear │    330 │ train │     0 │",
        "/lib/python3.11/site-packages/tyro/_parsers.py:365: UserWarning: it has no default",
    ],
)
def test_counts_are_no_scores(line: str) -> None:
    assert candidates([line]) == []


@pytest.mark.parametrize(
    ("label", "line", "value"),
    [
        ("val loss", "step 3 | val loss = -0.5", -0.5),
        ("val_loss", "val_loss: tensor(0.25, device='cuda:0')", 0.25),
        ("acc", "accuracy 0.5", None),
        ("loss", "val_loss: 0.5", None),
        ("loss", "val loss: 0.5", 0.5),
        ("Loss … ({})", "Loss 4.2 (3.5)", 3.5),
        ("a.b (c)", "a.b (c): 2", 2.0),
    ],
)
def test_a_label_finds_the_number_behind_its_words(
    label: str, line: str, value: float | None
) -> None:
    found = Number(pattern_of(label)).search(line)
    assert (found and found[1]) == value


@pytest.mark.parametrize("label", ["", "…", "{} {}", "{}{}"])
def test_what_is_no_label_is_refused(label: str) -> None:
    with pytest.raises(ValueError, match="label"):
        pattern_of(label)


def test_the_curve_is_a_step_and_its_loss() -> None:
    lines = [*NANO.splitlines(), "iter 251: loss 1.25"]
    label = curve_in(lines)
    assert label == "iter {step}: loss {loss}"
    assert last_step(lines, label) == 251
    found = Number(curve_pattern(label), 2).search(lines[1])
    assert found is not None
    assert (found[0]["step"], found[1]) == ("0", 4.4)
    with pytest.raises(ValueError, match="curve"):
        curve_pattern("iter {step}")


def test_numbers_in_files_are_candidates() -> None:
    told = ('["metrics.json", "test.acc", 0.5]', '["metrics.json", "epoch", 3]')
    (found,) = in_files([*(FILE_MARK + one for one in told), "acc 3"])
    assert (found.file, found.label, found.direction) == ("metrics.json", "test.acc", "maximise")
