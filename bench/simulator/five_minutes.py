"""10,202 published runs of five minutes each of a recipe with 14 knobs, on one H200.

Ferreira et al. 2026, "Can LLMs Beat Classical Hyperparameter Optimization Algorithms?" (arXiv
2603.24647): nine searches over karpathy/autoresearch's train.py, three seeds each. Read from a
checkout of github.com/ferreirafabio/autoresearch-automl at commit 2959c3c, whose
``docs/data/trials.json`` still has the values (later ones have ranks); nothing of it is kept here.

Config lacks most of these knobs, so they are carried on fields of the like domain: what is searched
is the same space with other names. The window patterns are carried by their place in the order of
how many layers see the whole sequence.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from agent.menu.files import parse_menu
from autoresearch.errors import SpecError
from autoresearch.values import Scalar
from bench.simulator.runs import KnownRun, RunTable
from trainer.spec import gpt

FILE = "docs/data/trials.json"
LONGEST_FAILURE_S = 250.0
"""A run that was told as failed after more than this had the time to be one that was not scored for
another reason than its config: there are three, and they are left out."""
PATTERNS = ("SSSS", "SSSL", "SSLL", "SLSL", "LSSL", "LLLL")
CARRIED = {
    "DEPTH": "n_layer",
    "ASPECT_RATIO": "d_ff",
    "HEAD_DIM": "n_head",
    "DEVICE_BATCH_SIZE": "batch_size",
    "TOTAL_BATCH_SIZE": "seq_len",
    "EMBEDDING_LR": "grad_clip",
    "UNEMBEDDING_LR": "rope_base",
    "MATRIX_LR": "lr",
    "SCALAR_LR": "init_scale",
    "WEIGHT_DECAY": "weight_decay",
    "WARMUP_RATIO": "beta1",
    "WARMDOWN_RATIO": "decay_share",
    "FINAL_LR_FRAC": "lr_min_ratio",
    "WINDOW_PATTERN": "lr_warmup",
}
"""Their knob, and the field of Config that stands for it."""
MENU = """\
name = "five-minutes"
doc = "The 14 knobs of a published recipe of five minutes, on fields of the like domain."
knobs.n_layer = { type = "int", low = 4, high = 24, default = 8, doc = "DEPTH" }
knobs.d_ff = { type = "int", low = 32, high = 128, default = 64, doc = "ASPECT_RATIO" }
knobs.n_head = { type = "int", choices = [64, 128, 256], default = 128, doc = "HEAD_DIM" }
knobs.batch_size = { type = "int", choices = [32, 64, 128, 256], default = 128 }
knobs.seq_len = { type = "int", choices = [65536, 131072, 262144, 524288, 1048576, 2097152], \
default = 524288, doc = "TOTAL_BATCH_SIZE" }
knobs.grad_clip = { type = "float", low = 0.01, high = 2.0, scale = "log", default = 0.6 }
knobs.rope_base = { type = "float", low = 5e-4, high = 0.05, scale = "log", default = 0.004 }
knobs.lr = { type = "float", low = 0.005, high = 0.2, scale = "log", default = 0.04 }
knobs.init_scale = { type = "float", low = 0.05, high = 2.0, scale = "log", default = 0.5 }
knobs.weight_decay = { type = "float", low = 0.0, high = 0.5, default = 0.2 }
knobs.beta1 = { type = "float", low = 0.0, high = 0.3, default = 0.0, doc = "WARMUP_RATIO" }
knobs.decay_share = { type = "float", low = 0.1, high = 0.8, default = 0.5 }
knobs.lr_min_ratio = { type = "float", low = 0.0, high = 0.2, default = 0.0 }
knobs.lr_warmup = { type = "int", choices = [0, 1, 2, 3, 4, 5], default = 1, \
doc = "WINDOW_PATTERN" }

[constants]
d_model = 256
activation = "relu2"
norm = "rmsnorm"
positions = "learned"
tie_embeddings = false
beta2 = 0.95
precision = "bf16"
schedule = "wsd"

[campaign]
budget = "60 steps"
"""
"""The steps are nominal: every run had five minutes."""


def five_minutes(checkout: Path) -> RunTable:
    """The runs of all searches that kept to the 14 knobs."""
    menu = parse_menu(MENU, "five-minutes")
    published: dict[str, dict[str, list[dict[str, Any]]]] = json.loads(
        (checkout / FILE).read_text(encoding="utf-8")
    )
    runs = []
    told = [one for seeds in published.values() for trials in seeds.values() for one in trials]
    for number, one in enumerate(told):
        if not CARRIED.keys() <= one.keys():
            continue  # a search that edited the code itself
        if not one["success"] and one["wt"] > LONGEST_FAILURE_S:
            continue
        try:
            config = gpt(menu.apply(menu.baseline, _knobs(one)))
        except SpecError:
            continue
        score = float(one["val_bpb"]) if one["success"] else None
        runs.append(KnownRun(config, number, score, float(one["wt"])))
    return RunTable("five-minutes", menu, runs, shares_seeds=False)


def _knobs(one: dict[str, Any]) -> dict[str, Scalar]:
    return {
        field: PATTERNS.index(one[knob]) if knob == "WINDOW_PATTERN" else one[knob]
        for knob, field in CARRIED.items()
    }
