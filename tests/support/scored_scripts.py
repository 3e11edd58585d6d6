"""Small scripts whose score is sound or has one known fault, for the audit of scores."""

from pathlib import Path
from typing import Any

SOUND = """
import argparse, random
parser = argparse.ArgumentParser()
parser.add_argument("--lr", type=float, default=0.1)
parser.add_argument("--knob", type=float, default=8)
parser.add_argument("--seed", type=int, default=0)
args = parser.parse_args()
rng, data = random.Random(args.seed), random.Random(7)
xs = [data.uniform(-1, 1) for _ in range(200)]
pairs = [(x, 3 * x + data.gauss(0, 0.3)) for x in xs]
train, val = pairs[:150], pairs[150:]
w = rng.gauss(0, 0.1)
def loss(pairs):
    return sum((w * x - y) ** 2 for x, y in pairs) / len(pairs)
for step in range(60):
    x, y = rng.choice(train)
    w -= args.lr * 2 * (w * x - y) * x
score = loss(val)
print(f"val loss {score:.6f}")
"""
MENU = """
name = "line"

[trainer]
command = "{python} train.py --lr={lr} --knob={KNOB} --seed={seed}"
score = "val loss"
direction = "minimise"

[knobs.lr]
type = "float"
low = 0.001
high = 1.0
scale = "log"
default = 0.1

[knobs.KNOB]
type = "float"
low = 1.0
high = 20.0
default = 8.0

[campaign]
budget = "1 run"
"""


def scored_script(
    place: Path,
    *,
    knob: str = "other",
    script: tuple[tuple[str, str], ...] = (),
    menu: tuple[tuple[str, str], ...] = (),
) -> Path:
    """Write a script and its menu with these replacements, and return the menu.

    :param knob: name of the menu's second knob.
    """
    source, table = SOUND, MENU.replace("KNOB", knob)
    for old, new in script:
        assert old in source
        source = source.replace(old, new)
    for old, new in menu:
        assert old in table
        table = table.replace(old, new)
    place.mkdir(parents=True, exist_ok=True)
    (place / "train.py").write_text(source, "utf-8")
    path = place / "menu.toml"
    path.write_text(table, "utf-8")
    return path


END = "score = loss(val)"
LAST = 'print(f"val loss {score:.6f}")'
SEED = "random.Random(args.seed)"
CASES: dict[str, tuple[dict[str, Any], set[tuple[str, str]]]] = {
    "sound": ({}, set()),
    "batch that is not measured": ({"knob": "batch_size"}, set()),
    "weight that is only trained": (
        {"knob": "loss_weight", "script": (("args.lr * 2", "args.lr / 4 * args.knob"),)},
        set(),
    ),
    "not seeded": (
        {"script": ((SEED, "random.Random()"),)},
        {("same seed", "note")},
    ),
    "seed ignored": ({"script": ((SEED, "random.Random(1)"),)}, {("other seed", "note")}),
    "seed not passed": (
        {"menu": ((" --seed={seed}", ""),)},
        {("other seed", "note")},
    ),
    "constant": ({"script": ((END, "score = 0.5"),)}, {("other seed", "bad")}),
    "accuracy said minimised": (
        {
            "script": ((LAST, 'print(f"val accuracy {1 / (1 + score):.6f}")'),),
            "menu": (("val loss", "val accuracy"),),
        },
        {("direction", "bad")},
    ),
    "loss said maximised": (
        {"menu": (('"minimise"', '"maximise"'),)},
        {("direction", "bad")},
    ),
    "unknown word said maximised": (
        {
            "script": ((LAST, 'print(f"val qux {score:.6f}")'),),
            "menu": (("val loss", "val qux"), ('"minimise"', '"maximise"')),
        },
        {("direction", "bad")},
    ),
    "negated and maximised": (
        {
            "script": ((LAST, 'print(f"val qux {-score:.6f}")'),),
            "menu": (("val loss", "val qux"), ('"minimise"', '"maximise"')),
        },
        set(),
    ),
    "batch measured": (
        {"knob": "batch_size", "script": ((END, "score = loss(val[: int(args.knob)])"),)},
        {("knob", "bad")},
    ),
    "context measured": (
        {
            "knob": "context_length",
            "script": ((END, "score = loss(val) / (1 + args.knob / 50)"),),
        },
        {("knob", "bad")},
    ),
    "weight of the loss measured": (
        {"knob": "aux_weight", "script": ((END, "score = loss(val) * args.knob"),)},
        {("knob", "bad")},
    ),
    "smoothing measured": (
        {"knob": "label_smoothing", "script": ((END, "score = loss(val) + args.knob / 100"),)},
        {("knob", "bad")},
    ),
    "validation share measured": (
        {
            "knob": "val_samples",
            "script": (("pairs[150:]", "pairs[-int(args.knob) :]"),),
        },
        {("knob", "bad")},
    ),
    "split drawn from the seed": (
        {
            "script": (
                (
                    "train, val = pairs[:150], pairs[150:]",
                    "def train_test_split(rows, random_state):\n"
                    "    random.Random(random_state).shuffle(rows)\n"
                    "    return rows[:150], rows[150:]\n"
                    "train, val = train_test_split(pairs, random_state=args.seed)",
                ),
            )
        },
        {("split", "bad")},
    ),
    "training loss": (
        {
            "script": ((END, "score = loss(train)"), (LAST, 'print(f"train loss {score:.6f}")')),
            "menu": (("val loss", "train loss"),),
        },
        {("data", "bad")},
    ),
    "best of all": (
        {"menu": (('score = "val loss"', "score = { label = 'val loss', take = 'lowest' }"),)},
        {("best value", "bad")},
    ),
}
"""Replacements, and what an audit should find that is not good, by a name of the case."""
