"""Check which values of earlier campaigns become priors in this menu's knobs, and on which
scale."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from agent.menu.files import parse_menu
from agent.proposers.priors import NOTE, note_on, read_priors
from autoresearch.errors import CampaignError, FormatError
from tests.agent.menu.test_formulas import RATIOS
from tests.support.campaigns import MENU
from tests.support.configs import config
from tests.support.foreign import (
    BASELINE,
    HEADER,
    RESULTS_TSV,
    evaluated,
    single_knob_lines,
    write_jsonl,
)
from tests.support.rows import (
    baseline_row,
    campaign_row,
    iteration_row,
    ok,
    trial,
    write_journal,
)
from trajectory.formats.importing import import_campaign
from trajectory.rows import Row

TOY = parse_menu(MENU.format(corpus="stdlib"), "toy")
"""A menu with the knobs lr, d_ff (32 … 128), n_layer (1 … 3), norm, activation and beta2."""


def journal(path: Path, *changed: dict[str, Any], seeds: int = 3) -> Path:
    """Write a campaign with other constants: its baseline scored 5.0 ± 0.1, and each change 0.2
    less than the one before."""
    base = config(d_ff=64, n_layer=2)
    rows: list[Row] = [campaign_row()]
    rows += [baseline_row(s, 5.0 + 0.1 * (s - 1), s, base) for s in range(seeds)]
    for number, changes in enumerate(changed, start=1):
        candidate = config(**{"d_ff": 64, "n_layer": 2, **changes})
        score = ok(5.0 - 0.2 * number)
        rows.append(
            iteration_row(
                number, candidate, (trial(10 + number, candidate, 1, score),), changes=changes
            )
        )
    write_journal(path, iter(rows))
    return path


def test_a_gain_is_against_its_own_baseline_in_its_own_noise(tmp_path: Path) -> None:
    path = journal(tmp_path / "t.jsonl", {"lr": 0.004}, {"lr": 0.008})
    (prior,) = read_priors([path], TOY, tmp_path / "campaign")
    assert prior.why_no_gains is None
    gains = {entry.values["lr"]: entry.gain for entry in prior.configs}
    assert gains == pytest.approx({0.008: -4.0, 0.004: -2.0, 0.001: 0.0}, abs=0.05)
    # The other campaign's d_model, batch size, warm-up and so on are constants here.
    common = {"lr", "d_ff", "n_layer", "norm", "activation", "beta2"}
    assert {frozenset(entry.values) for entry in prior.configs} == {frozenset(common)}
    assert prior.dropped_values == 0


def test_a_gain_that_this_menu_cannot_say_is_not_given_to_what_it_can(tmp_path: Path) -> None:
    elsewhere = {"d_model": 64}, {"d_ff": 4096}, {"lr": 0.5}, {"lr": 0.004, "weight_decay": 0.3}
    path = journal(tmp_path / "t.jsonl", *elsewhere, {"norm": "rmsnorm"})
    (prior,) = read_priors([path], TOY, tmp_path / "campaign")
    assert prior.measured == 6
    assert [dict(entry.values)["norm"] for entry in prior.configs] == ["rmsnorm", "layernorm"]
    assert len(prior.findings) == 6


def test_values_outside_this_menu_that_nothing_changed_are_dropped_and_counted(
    tmp_path: Path,
) -> None:
    """The prior's baseline has 24 layers and d_ff 4096, more than the toy menu allows."""
    lines = [HEADER, *(evaluated(i, "lr", 1e-3, 10.5 + 0.1 * i) for i in (1, 2))]
    (prior,) = read_priors([write_jsonl(tmp_path / "t.jsonl", lines)], TOY, tmp_path / "campaign")
    assert [set(entry.values) for entry in prior.configs] == [{"lr", "beta2"}] * 2
    assert prior.dropped_values == 4
    best = prior.configs[0]
    assert best.values["lr"] == 1e-3
    assert best.gain == pytest.approx((10.65 - BASELINE) / (0.1 / 2**0.5), rel=1e-6)


def test_without_noise_or_baseline_nothing_is_told_in_numbers(tmp_path: Path) -> None:
    (tmp_path / "results.tsv").write_text(RESULTS_TSV)
    single = [HEADER, evaluated(1, "lr", 1e-3, 10.6)]
    headless = single_knob_lines(20)[1:]
    paths = [
        tmp_path / "results.tsv",
        write_jsonl(tmp_path / "single.jsonl", single),
        write_jsonl(tmp_path / "headless.jsonl", headless),
    ]
    priors = read_priors(paths, TOY, tmp_path / "campaign")
    assert [prior.configs for prior in priors] == [(), (), ()]
    reasons = [prior.why_no_gains or "" for prior in priors]
    assert "baseline's config or score is not known" in reasons[0], "its score is"
    assert "twice" in reasons[1]
    assert "baseline" in reasons[2]
    assert priors[0].findings[0].said == "b2c3d4e"
    assert priors[0].findings[0].reason == "increase LR to 0.04"
    assert priors[0].findings[0].gain is None


def test_what_is_no_trajectory_is_refused(tmp_path: Path) -> None:
    (tmp_path / "x").write_text("prose\n")
    for path in (tmp_path / "x", tmp_path / "nowhere", tmp_path):
        with pytest.raises(FormatError):
            read_priors([path], TOY, tmp_path / "campaign")


def test_the_journal_is_told_where_the_priors_change(tmp_path: Path) -> None:
    priors = read_priors([journal(tmp_path / "t.jsonl", {"lr": 0.004})], TOY, tmp_path / "campaign")
    note = note_on(priors, None)
    assert note is not None
    assert note.startswith(NOTE)
    assert priors[0].sha256[:12] in note
    assert str(tmp_path / "t.jsonl") in note
    assert note_on(priors, note) is None
    gone = note_on((), note)
    assert gone is not None
    assert note_on((), gone) is None
    assert note_on((), None) is None


def test_a_campaign_is_no_prior_of_itself_nor_is_a_copy_of_it(tmp_path: Path) -> None:
    own = tmp_path / "own"
    own.mkdir()
    path = journal(own / "trajectory.jsonl", {"lr": 0.004})
    longer = journal(tmp_path / "export.jsonl", {"lr": 0.004}, {"lr": 0.002})
    import_campaign(path, tmp_path / "imported")
    for named in (path, own, longer, tmp_path / "imported"):
        with pytest.raises(CampaignError):
            read_priors([named], TOY, own)


def test_a_campaign_counts_once_however_it_is_named(tmp_path: Path) -> None:
    path = journal(tmp_path / "t.jsonl", {"lr": 0.004})
    night = write_jsonl(tmp_path / "night.jsonl", single_knob_lines(5))
    for source in (path, night):
        to = tmp_path / f"imported-{source.stem}"
        import_campaign(source, to)
        for again in (source, to):
            with pytest.raises(CampaignError) as raised:
                read_priors([source, again], TOY, tmp_path / "campaign")
            assert "\n" not in str(raised.value)
    assert len(read_priors([path, night], TOY, tmp_path / "campaign")) == 2


def test_what_could_not_be_read_of_a_prior_is_counted(tmp_path: Path) -> None:
    path = journal(tmp_path / "t.jsonl", {"lr": 0.004}, {"lr": 0.002})
    with path.open("a") as file:
        file.write("{torn\n{torn\n")
    (prior,) = read_priors([path], TOY, tmp_path / "campaign")
    assert (prior.measured, prior.left_out) == (3, 2)


def test_a_comment_in_the_menu_leaves_a_prior_its_ratios(tmp_path: Path) -> None:
    ratios = parse_menu(RATIOS, "ratios")
    path = tmp_path / "t.jsonl"
    base, wide = ratios.baseline, ratios.apply(ratios.baseline, {"ffn_ratio": 4.0})
    rows: list[Row] = [
        campaign_row().model_copy(update={"menu_toml": ratios.toml, "menu_sha256": ratios.sha256})
    ]
    rows += [baseline_row(s, 5.0 + 0.1 * (s - 1), s, base) for s in range(3)]
    rows.append(iteration_row(1, wide, (trial(11, wide, 1, ok(4.8)),), changes={"ffn_ratio": 4.0}))
    write_journal(path, iter(rows))
    for toml in (RATIOS, f"# a comment\n{RATIOS}"):
        (prior,) = read_priors([path], parse_menu(toml, "ratios"), tmp_path / "campaign")
        assert {config.values["ffn_ratio"] for config in prior.configs} == {2.7, 4.0}
