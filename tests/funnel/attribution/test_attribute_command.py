"""Undo each of a config's changes alone, through the command with simulated trials."""

import json
from pathlib import Path

from agent.menu.files import load_menu
from tests.support.simulated.commands import SimulatedToy
from trainer.schema import Config
from trajectory.journal import read_rows
from trajectory.rows import AttributionRow


def test_changes_are_taken_back_alone_on_fresh_seeds_and_once(tmp_path: Path) -> None:
    toy = SimulatedToy(tmp_path)
    loop = toy.loop(3, "--proposer=random")
    assert loop.returncode == 0, loop.stderr
    where = f"--campaign={toy.campaign}"

    menu = load_menu(str(toy.menu))
    winner = next(row["config"] for row in toy.iterations() if row["config"] and row["trials"])
    won = Config.model_validate(winner)
    asked = (
        "attribute",
        where,
        "--steps=12",
        "--seeds=2",
        f"--config={won.config_hash[:12]}",
        "--json",
    )
    first = toy.run(*asked)
    assert first.returncode == 0, first.stderr

    found = json.loads(first.stdout)
    knobs = {knob for knob, value in menu.knob_values(won).items() if value != menu.defaults[knob]}
    assert {change["knob"] for change in found["changes"]} == knobs
    rows = [
        row
        for row in read_rows(toy.campaign / "trajectory.jsonl")
        if isinstance(row, AttributionRow)
    ]
    used = {trial["seed"] for row in toy.iterations() for trial in row["trials"]}
    assert {row.trial.seed for row in rows} == {999, 998}
    assert not used & {999, 998}
    assert {row.without for row in rows} <= {None, *knobs}
    for row in rows:
        if row.without is not None:
            undone = {row.without: menu.defaults[row.without]}
            assert row.config == menu.apply(won, undone)

    again = toy.run(*asked)
    assert json.loads(again.stdout) == found
    assert sum(row["kind"] == "attribution" for row in toy.rows()) == len(rows)
    assert toy.run("reindex", where).returncode == 0
    assert toy.run("top", where).returncode == 0
