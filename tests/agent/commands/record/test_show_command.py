import json
import subprocess
import tomllib
from pathlib import Path

import pytest

from tests.support.in_process import run_here
from tests.support.reports import simulated
from tests.support.rows import write_journal
from tests.support.simulated.commands import SimulatedOwn
from trajectory.evidence import Evidence
from trajectory.ranking import Posteriors


def test_the_command_line_trains_the_config_as_its_trials_did(tmp_path: Path) -> None:
    own = SimulatedOwn(tmp_path)
    own.loop(4)
    row = next(row for row in own.rows("iteration") if row["trials"])
    words = ("show", str(row["iter"]), "--campaign", str(own.campaign))
    line = own(*words, "--as", "command", "--seed", "7")
    values = row["config"]["values"]
    assert all(f"--{name}={value}" in line for name, value in values.items())
    assert ("--seed=7" in line, "--steps=100" in line) == (True, True)
    ran = subprocess.run(line, shell=True, check=True, cwd="/", capture_output=True, text=True)
    assert "val loss" in ran.stdout  # the script was started, in its own directory

    assert json.loads(own(*words, "--as", "json")) == values
    assert tomllib.loads(own(*words, "--as", "toml")) == values
    assert row["config_hash"][:12] in own(*words)
    own(*words, "--as", "script", code=1)
    own("show", "999", "--campaign", str(own.campaign), code=1)


@pytest.mark.parametrize("sent_by", ["env", "toml"])
def test_values_that_are_sent_in_another_way_are_sent(sent_by: str, tmp_path: Path) -> None:
    own = SimulatedOwn(tmp_path)
    menu = own.checkout / "own.toml"
    table, _, rest = menu.read_text("utf-8").partition("command = [")
    script = "import os; print(os.environ.get('AR_LR') or open(os.sys.argv[1]).read())"
    file = ', "{values}"' if sent_by == "toml" else ""
    command = f'command = ["{{python}}", "-c", {json.dumps(script)}{file}]\nvalues = "{sent_by}"\n'
    menu.write_text(table + command + rest.partition("]\n")[2], "utf-8")
    own.loop(1)
    line = own("show", "0", "--campaign", str(own.campaign), "--as", "command")
    ran = subprocess.run(line, shell=True, check=True, cwd="/", capture_output=True, text=True)
    said = ran.stdout if sent_by == "env" else str(tomllib.loads(ran.stdout)["lr"])
    assert float(said) == 0.01


def test_an_edited_script_is_written_whole(tmp_path: Path) -> None:
    own = SimulatedOwn(tmp_path)
    (own.checkout / "train.py").write_text("lr = 0.01\nl2 = 0.5\nprint('val loss', lr + l2)\n")
    menu = own.checkout / "own.toml"
    table, _, rest = menu.read_text("utf-8").partition("command = [")
    command = 'command = ["{python}", "train.py", "{steps}", "{seed}"]\nset_by = "edit"\n'
    menu.write_text(table + command + rest.partition("]\n")[2], "utf-8")
    own.loop(2)
    row = next(row for row in own.rows("iteration") if row["trials"])
    words = ("show", str(row["iter"]), "--campaign", str(own.campaign), "--as")
    own(*words, "command", code=1)
    values: dict[str, float] = {}
    exec(own(*words, "script"), values)
    assert {name: values[name] for name in ("lr", "l2")} == row["config"]["values"]


def test_of_the_built_in_model_the_result_is_shown_without_a_number(tmp_path: Path) -> None:
    rows = simulated(12)
    write_journal(tmp_path / "trajectory.jsonl", rows)
    menu_toml = next(row for row in rows if row.kind == "campaign").menu_toml
    evidence = Evidence(rows)
    best = Posteriors.of(evidence).of_configs([evidence.incumbent_hash or ""])[0]
    here = ("--campaign", str(tmp_path))
    assert "knobs" in menu_toml
    ended = run_here(("show", *here), tmp_path, {})
    assert (ended.returncode, ended.stderr) == (0, "")
    assert all(one in ended.stdout for one in (best.config_hash[:12], best.footprint))
    values = json.loads(run_here(("show", *here, "--as", "json"), tmp_path, {}).stdout)
    assert values["lr"] == best.config.value("lr")
    # Its trials are not here, so no command could train it again.
    ended = run_here(("show", *here, "--as", "command"), tmp_path, {})
    assert (ended.returncode, ended.stdout, ended.stderr.count("\n")) == (1, "", 1)
    trial = tmp_path / "trials" / next(iter(evidence.configs[best.config_hash].trial_ids.values()))
    trial.mkdir(parents=True)
    (trial / "spec.json").write_text("{}")
    ended = run_here(("show", *here, "--as", "command"), tmp_path, {})
    assert (ended.returncode, str(trial / "spec.json") in ended.stdout) == (0, True)
