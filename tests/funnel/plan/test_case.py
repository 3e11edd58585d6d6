from __future__ import annotations

import json
from pathlib import Path

import pytest

from agent.menu.files import load_menu
from autoresearch.errors import HandoffError
from funnel.plan.case import read_case
from tests.support.configs import config
from tests.support.confirmed import confirmation
from tests.support.present import known
from tests.support.rows import at
from tests.support.stressed import stressed_campaign
from trainer.spec import Config
from trajectory.rows import FinalistsRow, dump_row

CONFIGS = [config(lr=lr) for lr in (2e-3, 5e-4)]


def test_it_counts_what_the_campaign_did(stressed: Path) -> None:
    case = read_case(stressed)
    assert (case.search.iterations, case.search.configs, case.search.trials) == (3, 4, 5)
    assert case.search.kept == 1
    assert case.search.stressed == 3
    assert [candidate.config.lr for candidate in case.candidates] == [2e-3, 1.5e-3, 8e-4]
    assert case.candidates[0].horizon_steps == 1000
    assert [len(curve) for curve in case.curves(case.candidates[0])] == [1000, 1000]
    # The finalist's standard error is that of a mean of two runs.
    assert case.run_sd == pytest.approx(0.01 * 2**0.5 / 2.212)
    assert case.ranking_test is None


def test_long_runs_of_one_seed_borrow_the_noise_of_short_ones(tmp_path: Path) -> None:
    case = read_case(stressed_campaign(tmp_path, CONFIGS, seeds=1))
    assert case.candidates[0].standing.stderr is None
    assert case.search.sigma_bpb is not None
    assert case.run_sd == pytest.approx(case.search.sigma_bpb / case.ranked[0].mean_objective)


def test_the_latest_stress_test_counts(tmp_path: Path) -> None:
    journal = stressed_campaign(tmp_path, CONFIGS) / "trajectory.jsonl"
    last = json.loads(journal.read_text().splitlines()[-1])
    later = FinalistsRow.model_validate(last | {"finalists": last["finalists"][1:]})
    with journal.open("a") as file:
        file.write(dump_row(later) + "\n")
    assert [c.config.lr for c in read_case(tmp_path).candidates] == [5e-4]


@pytest.mark.parametrize("is_finished", [False, True])
def test_without_a_finalist_there_is_nothing_to_launch(tmp_path: Path, is_finished: bool) -> None:
    journal = stressed_campaign(tmp_path, CONFIGS) / "trajectory.jsonl"
    lines = journal.read_text().splitlines(keepends=True)[:-1]
    none = FinalistsRow(at=at(2000), steps=1000, finalists=())
    journal.write_text("".join(lines) + (dump_row(none) + "\n") * is_finished)
    with pytest.raises(HandoffError, match=r"--(campaign|top)"):
        read_case(tmp_path)


def confirm(directory: Path, of: Config, *, gain: float = 0.3) -> None:
    """Append a confirmation of ``of`` to the journal."""
    runs, end = confirmation(500, load_menu("cpu-tiny").baseline, {1: of}, gain=gain)
    with (directory / "trajectory.jsonl").open("a") as file:
        file.writelines(dump_row(row) + "\n" for row in (*runs, end))


def test_the_latest_confirmation_that_had_the_winner_counts(tmp_path: Path) -> None:
    stressed_campaign(tmp_path, CONFIGS)
    confirm(tmp_path, CONFIGS[1])
    assert read_case(tmp_path).confirmed is None
    confirm(tmp_path, CONFIGS[0], gain=0.1)
    confirm(tmp_path, CONFIGS[0], gain=0.3)
    confirm(tmp_path, CONFIGS[1])
    _, found = known(read_case(tmp_path).confirmed)
    assert found.config_hash == CONFIGS[0].config_hash
    assert found.claimed == pytest.approx(-0.36)


def test_a_curve_that_is_gone_is_named(tmp_path: Path) -> None:
    case = read_case(stressed_campaign(tmp_path, CONFIGS))
    gone = case.candidates[0].trial_ids[1]
    (tmp_path / "trials" / gone / "curve.jsonl").unlink()
    with pytest.raises(HandoffError):
        case.curves(case.candidates[0])
