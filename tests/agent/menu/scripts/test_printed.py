import ast
import contextlib
import io
import re
from types import SimpleNamespace
from typing import Any

import pytest

from agent.menu.scripts.printed import best_line, curve_printed, score_printed
from agent.menu.scripts.unlabelled import score_alone
from trainer.command.number import Number


def printed(source: str) -> str:
    """Return the line that is printed when the values are 7, 8, 9 … in order."""
    out = io.StringIO()
    names: dict[str, Any] = {
        "epoch": 7, "step": 7, "n": 1000, "loss": 0.125, "val_loss": 2.5, "ppl": 12.2, "acc": 0.75,
        "losses": {"train": 1.25, "val": 2.5}, "math": SimpleNamespace(exp=lambda x: x * 2),
    }  # fmt: skip
    with contextlib.redirect_stdout(out):
        exec(source, names)
    return out.getvalue()


def read(pattern: str, source: str) -> list[float]:
    """Return the numbers that a pattern finds in what a script prints."""
    number = Number(pattern)
    lines = printed(source).splitlines()
    return [match[1] for text in lines if (match := number.search(text))]


SCORES = r"""
2.5   print(f"step {step}: train loss {losses['train']:.4f}, val loss {losses['val']:.4f}")
2.5   print(f"val_bpb:          {val_loss:.6f}")
2.5   print('| end of epoch {:3d} | valid loss {:5.2f} | ppl {:8.2f}'.format(epoch, val_loss, ppl))
2.5   print('\nTest set: Average loss: {:.4f}, Accuracy: {}/{}\n'.format(val_loss, epoch, n))
2.5   print("epoch %d, val loss %.3f (100%%)" % (epoch, val_loss))
2.5   print("test loss:", val_loss)
2.5   print(f"The RMSE of prediction is: {val_loss}")
2.5   print(f"The RMSE of Ann's prediction is: {val_loss}")
2.5   print("Test error using softmax = {}".format(val_loss))
2.5   print(f"acc_val: {acc:.2f} loss_val: {val_loss:.2f} acc_train: {loss}")
2.5   print("val loss " + str(val_loss))
2.5   print(f"epoch {epoch} | loss: {val_loss:.3f}")
75.0  print(f"valid acc {acc:.1%} at {step}")
2.5   line = f"val loss {val_loss}"; print(line)
2.5   import json; print(json.dumps({"loss": loss, "val_loss": val_loss}))
2.5   print({"loss": loss, "val_loss": val_loss})
2.5   print(f"\x1b[32mval_loss\x1b[0m: \x1b[1m{val_loss:.5f}\x1b[0m")
0.75  print("Accuracy score on test data is {:.4f}".format(acc))
0.5   val_acc = 0.5; print(f"Loss: {loss:.4f}, Train: {acc:.4f}, Val: {val_acc:.4f}")
0.75  print("Accuracy:", acc); print("Train Accuracy:", loss)
"""
LONGER_SCORES = [
    """class click: style = staticmethod(lambda text, **how: text)
print(click.style("Validation loss: ", bold=True) + click.style(f"{val_loss:.3f}", fg="green"))""",
    """class log: info = staticmethod(lambda text, *a: print(text % a))
log.info("epoch %d: val loss %.4f (%d)", epoch, val_loss, n)""",
    """print('Loss of the network on the 10000 test images: {} %'.format(val_loss))
print('Epoch [{}/{}], Loss: {:.4f}'.format(epoch, n, loss))""",
    """print("Training Results - Epoch: {}  Avg loss: {:.2f}".format(epoch, loss))
print("Validation Results - Epoch: {}  Avg loss: {:.2f}".format(epoch, 2.5))
print("Training Results - Epoch: {}  Avg loss: {:.2f}".format(epoch, loss))""",
    """def train(): print(f"Epoch {epoch} Complete: Avg. Loss: {loss:.4f}")
def test(): print(f"===> Avg. PSNR: {val_loss:.4f} dB")
test()
train()""",
]
SHORT_SCORES = [line.split(maxsplit=1) for line in SCORES.strip().splitlines()]


@pytest.mark.parametrize(
    ("score", "source"), [*SHORT_SCORES, *((2.5, source) for source in LONGER_SCORES)]
)
def test_the_score_is_found_in_what_is_printed(score: str, source: str) -> None:
    found = score_printed(ast.parse(source))
    assert found is not None
    assert read(found.pattern, source) == [float(score)]
    assert found.is_training == ("Train Accuracy" in source)


BEST = """
print(f"best val_loss: {ppl:.4f}")
print(f"Best val_loss: {ppl:.4f} in epoch {epoch}")
print("best_val_loss: %.4f" % ppl)
print(f"Best: {ppl:.4f}")
print(f"lowest val_loss: {ppl}, min_val_loss: {ppl}")
"""


@pytest.mark.parametrize(
    ("source", "is_best", "also"),
    [
        ("""print(f"loss {loss}")\nprint(f"best val_loss: {val_loss:.4f}")""", True, None),
        ("""print(f"val_loss: {loss}")\nprint(f"best: epoch {n}, val_loss: {ppl}")""", False, 2),
        ("""print(f"val_loss: {loss}")\nbest = ppl\nprint(f"val_loss: {best}")""", False, 3),
        *((f'print("val_loss:", val_loss)\n{each}', False, None) for each in BEST.split("\n")),
    ],
)
def test_the_best_evaluation_is_not_read_as_the_last_or_else_noted(
    source: str, is_best: bool, also: int | None
) -> None:
    tree = ast.parse(source)
    found = score_printed(tree)
    assert found is not None
    assert (found.is_best, best_line(tree, found)) == (is_best, also)
    assert len(read(found.pattern, source)) == (1 if also is None else 2)


CURVES = r"""
print(f"iter {step}: loss {loss:.4f}, time {n:.2f}ms")
print(f"\rstep {step:05d} ({acc:.1f}%) | loss: {loss:.6f} | lrm", end="")
print('Train Epoch: {} [{}/{} ({:.0f}%)]\tLoss: {:.6f}'.format(epoch, n, n, acc, loss))
"""


@pytest.mark.parametrize("line", CURVES.strip().splitlines())
def test_the_curve_is_found_in_what_is_printed(line: str) -> None:
    found = curve_printed(ast.parse(line))
    assert found is not None
    match = re.search(found.pattern, printed(line))
    assert match is not None
    assert (int(match[1]), float(match[2])) == (7, 0.125)


def test_validation_comes_before_test_and_both_before_training() -> None:
    lines = [
        'print(f"loss {loss}")',
        'print(f"test loss {loss}")',
        'print(f"val ppl {ppl}, val loss {val_loss}")',
    ]
    labels = [score_printed(ast.parse("\n".join(lines[:n]))) for n in (1, 2, 3)]
    assert [one and (one.label, one.is_training) for one in labels] == [
        ("loss", True), ("test loss", False), ("val loss", False),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("label", "more"),
    [
        ("val accuracy", True),
        ("val loss", False),
        ("log likelihood", True),
        ("negative log likelihood", False),
    ],
)
def test_more_is_better_of_some_figures(label: str, more: bool) -> None:
    found = score_printed(ast.parse(f'print(f"{label} {{a}}")'))
    assert found is not None
    assert found.more_is_better is more


def test_what_a_tracker_is_handed_is_not_printed() -> None:
    line = "print(f\"step {n}: val loss {losses['val']:.4f}\")"
    tracked = 'wandb.log({"iter": n, "val/loss": losses["val"]})'
    found = score_printed(ast.parse(f"{line}\n{tracked}"))
    assert (found and (found.label, found.line)) == ("val loss", 1)
    assert score_printed(ast.parse(tracked)) is None


def test_a_script_that_says_no_score() -> None:
    tree = ast.parse(
        'print("hello", name)\nvalue = f"{x} of {y}"\nprint(f"took {t} s, value {v}")\n'
        'print(f"Preconditioning & loss: {opts.precond}")'
    )
    assert score_printed(tree) is None
    assert curve_printed(tree) is None


@pytest.mark.parametrize(
    ("line", "decimals"),
    [
        ('print(f"val_bpb:  {val_loss:.6f}, took {n:.1f}")', 6),
        ('print("val loss {:.5f}, took {:.1f}".format(val_loss, n))', 5),
        ('print("took {n:.1f}, val loss {loss:.7f}".format(n=n, loss=val_loss))', 7),
        ('print("took %.1f, val loss %8.6f" % (n, val_loss))', 6),
        ('print(f"val acc {acc:.1%}")', 1),
        ('print(f"val loss {val_loss:.{n}f}, {val_loss:.3e}")', None),
    ],
)
def test_the_decimals_of_a_score_are_those_of_its_format(line: str, decimals: int | None) -> None:
    found = score_printed(ast.parse(line))
    assert found is not None
    assert found.decimals == decimals


@pytest.mark.parametrize(
    ("line", "score", "label"),
    [
        ("print(step, loss)", 0.125, "loss"),
        ("""print(f"{epoch} {float(val_loss):.3f}\\t{n}")""", 2.5, "val loss"),
        ("""print("{}  {:.2f}".format(epoch, losses["train"]), 3)\nprint("of", n)""", None, ""),
        ("print(epoch, acc)", 0.75, "acc"),
        ("print(epoch, loss, acc)", None, ""),
        ("print(-loss)", None, ""),
        ("print(loss)\nprint(n)", None, ""),
        ("print(epoch, math.exp(loss))", None, ""),
        ("best_loss = loss\nprint(best_loss)", None, ""),
        ("print(f'{epoch}{loss}')", None, ""),
    ],
)
def test_a_score_without_words_is_named_by_its_code_if_nothing_else_can_be_meant(
    line: str, score: float | None, label: str
) -> None:
    tree = ast.parse(line)
    assert score_printed(tree) is None
    found = score_alone(tree)
    assert (found.label if found else "") == label
    if found:
        read = Number(found.pattern).search(printed(line).splitlines()[0])
        assert (read and read[1]) == score
        assert (found.more_is_better, found.is_training) == ("acc" in label, "val" not in label)
        assert Number(found.pattern).search("7 0.5 of 9") is None


def test_another_line_of_values_in_a_module_beside_makes_a_score_uncertain() -> None:
    tree = ast.parse("print(epoch, loss.data[0])")
    assert score_alone(tree, [ast.parse("print('of', n)")]) is not None
    assert score_alone(tree, [ast.parse("print(n)")]) is None
