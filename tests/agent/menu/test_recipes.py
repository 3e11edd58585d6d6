"""The menus of today's recipe differ from the older ones in the recipe alone."""

import pytest

from agent.menu.files import load_menu
from trainer.memory.parts import parameter_count
from trainer.schema import gpt


@pytest.mark.parametrize(
    ("modern", "older"), [("cpu-modern", "cpu-tiny"), ("spark-modern", "spark-354m")]
)
def test_a_menu_of_today_has_the_shape_and_the_trials_of_the_older_one(
    modern: str, older: str
) -> None:
    ours, theirs = load_menu(modern), load_menu(older)
    assert ours.campaign == theirs.campaign
    for field in ("n_layer", "d_model", "d_ff", "batch_size", "seq_len", "precision"):
        assert ours.baseline.value(field) == theirs.baseline.value(field), field
    sizes = [parameter_count(gpt(menu.baseline), 1024) for menu in (ours, theirs)]
    assert sizes[0] / sizes[1] == pytest.approx(1, abs=0.15), (
        "an untied head is all that it has more"
    )


@pytest.mark.parametrize("menu", ["cpu-modern", "spark-modern"])
def test_muon_is_the_default_and_its_ratio_counts_only_with_it(menu: str) -> None:
    chosen = load_menu(menu)
    assert chosen.baseline.value("optimizer") == "muon"
    adamw = chosen.apply(chosen.baseline, {"optimizer": "adamw", "muon_lr_ratio": 2.0})
    assert adamw == chosen.apply(chosen.baseline, {"optimizer": "adamw"})
    muon = chosen.apply(chosen.baseline, {"muon_lr_ratio": 2.0})
    assert chosen.knob_values(muon)["muon_lr_ratio"] == 2.0


def test_learned_positions_have_no_base_of_rotation() -> None:
    chosen = load_menu("cpu-modern")
    learned = chosen.apply(chosen.baseline, {"positions": "learned"})
    assert chosen.apply(learned, {"rope_base": 1000.0}) == learned
