"""Test drafts from public trainers, karpathy's autoresearch among them, in their own checkouts.

PUBLIC_TRAINERS names the folder of the checkouts. The tests are skipped without it.
"""

import os
from pathlib import Path

import pytest

from agent.menu.files import parse_menu
from agent.menu.scripts.draft import Draft, draft_of
from agent.menu.scripts.draft_text import text_of
from agent.menu.scripts.reading import read_script

CHECKOUTS = Path(os.environ.get("PUBLIC_TRAINERS", "/nonexistent"))


def draft(name: str, set_by: str) -> Draft:
    script = CHECKOUTS / name
    if not script.is_file():
        pytest.skip(f"PUBLIC_TRAINERS has no {name}")
    return draft_of(read_script(script, set_by), None)


def test_karpathys_autoresearch_has_its_constants_drafted() -> None:
    found = draft("autoresearch/train.py", "edit")
    menu = parse_menu(text_of(found), "drafted")
    assert list(menu.knobs) == [
        *("ASPECT_RATIO", "HEAD_DIM", "WINDOW_PATTERN", "TOTAL_BATCH_SIZE", "EMBEDDING_LR"),
        *("UNEMBEDDING_LR", "MATRIX_LR", "SCALAR_LR", "WEIGHT_DECAY", "ADAM_BETAS_0"),
        *("ADAM_BETAS_1", "WARMUP_RATIO", "WARMDOWN_RATIO", "FINAL_LR_FRAC", "DEPTH"),
        "DEVICE_BATCH_SIZE",
    ]
    assert [one.expr for one in menu.constraints] == [
        "TOTAL_BATCH_SIZE % (DEVICE_BATCH_SIZE * 2048) == 0"
    ]
    assert menu.trainer is not None
    assert menu.trainer.score.pattern is not None
    assert "val_bpb:" in menu.trainer.score.pattern
    assert (str(menu.campaign.budget), menu.trainer.tells_seed) == ("1 run", True)
    assert menu.trainer.edits.keys() == {"torch_manual_seed", "torch_cuda_manual_seed"}
    assert {"momentum", "beta2"} <= {one.option.name for one in found.left}
