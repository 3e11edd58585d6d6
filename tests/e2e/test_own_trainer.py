"""Run the loop around a person's own script, through the installed command."""

from __future__ import annotations

import json
import os
import re
import sys
from pathlib import Path

import pytest

from tests.support.commands import script
from tests.support.own_trainers import DATA, TRAIN, Own, by_hand
from tests.support.waiting import wait_until
from trainer.isolation.trial_files import read_curve


def test_from_a_menu_to_the_mornings_list(tmp_path: Path) -> None:
    own = Own(tmp_path)
    said = own.loop(6, "--no-confirm", "--seed=3")
    assert "val loss ([0-9.]+)', last), in nats per point, lower is better" in said
    assert "no network" in said
    assert "baseline  seed 3000" in said
    assert "bpb" not in said
    first = own.rows("campaign")[0]
    assert first["measure"]["unit"] == "nats per point"
    assert "corpus" not in first
    scored = [
        trial
        for row in own.rows("iteration")
        for trial in row["trials"]
        if trial["result"]["status"] == "scored"
    ]
    for trial in scored[:3]:
        curve, score = by_hand(own, trial["trial_id"])
        points = read_curve(own.campaign / "trials" / trial["trial_id"])
        assert [(point.step, point.loss) for point in points] == curve
        assert trial["result"]["score"] == score
    listed = own("top")
    assert "the script itself evaluates" in listed
    assert "bpb" not in listed
    best = json.loads(own("top", "--json"))
    assert (best["unit"], best["direction"]) == ("nats per point", "minimise")
    first_config = best["configs"][0]
    assert first_config["score"] == first_config["objective"]
    assert first_config["score_lo"] < first_config["score"] < first_config["score_hi"]
    # Resuming needs only the campaign.
    assert "8 iterations" in own.loop(8, "--no-confirm")


@pytest.mark.slow
def test_what_the_record_is_asked_for_works_on_it(tmp_path: Path) -> None:
    own = Own(tmp_path)
    own.loop(14, "--seed=1")  # the best config of this seed survives 200 steps
    here = f"--campaign={own.campaign}"
    assert own.rows("confirmed")
    shown = json.loads(own("report", here, "--json"))["summary"]["best"]
    assert 0 < shown["score_lo"] < shown["score"] < shown["score_hi"]
    page = (own.campaign / "report" / "report.html").read_text()
    assert "How it was measured is that script" in page
    assert "bits per byte" not in page
    assert "The score, in nats per point, ± half its 95 % interval" in " ".join(page.split())
    assert "the command&#39;s runs, its own evaluation included" in page
    assert "<td>evaluation</td>" not in page
    said = own("stress", here, "--top=1", "--steps=200", "--seeds=1")
    assert "survives" in said
    assert "nats per point" in said
    refused = own("handoff", here, "--target=llama-7b", code=1)
    assert "nobody but that script knows" in refused
    assert "Traceback" not in refused
    for words in (("ladder", "--hours=1"), ("cost",)):
        assert "only the knobs of its menu" in " ".join(own(*words, here, code=1).split())
    assert "leave --fidelity out" in own("calibrate", here, "--fidelity", code=1)
    for words in (("envelope",), ("compare",)):
        assert "no shape and no tokens" in own(*words, "--menu=own.toml", code=1)
    own("attribute", here, "--seeds=1", "--steps=150")
    own("export", here, "--to=csv", "--out=t.csv")
    head, *lines = (own.checkout / "t.csv").read_text().splitlines()
    assert {"score", "config.lr", "config.l2"} <= set(head.split(","))
    assert len(lines) > 8
    own("export", here, "--to=jsonl", "--out=t.jsonl")
    assert "nats per point, lower is better" in own("import", "t.jsonl", "--campaign=runs/again")
    again = json.loads(own("top", "--campaign=runs/again", "--json"))
    assert again["configs"] == json.loads(own("top", here, "--json"))["configs"]
    own("reindex", here)
    assert "sd" in own("calibrate", here, "--seeds=3")


@pytest.mark.slow
def test_what_is_to_grow_grows(tmp_path: Path) -> None:
    own = Own(tmp_path, what="accuracy", unit="accuracy")
    own.loop(10)
    best = json.loads(own("top", "--json"))["configs"]
    assert best[0]["objective"] <= best[-1]["objective"] < 0  # objectives: the sign is flipped
    assert 0 < best[0]["score_lo"] < best[0]["score"] < best[0]["score_hi"]
    summary = json.loads(own("report", "--json"))["summary"]
    assert (summary["unit"], summary["direction"]) == ("accuracy", "maximise")
    assert summary["best"]["score"] == best[0]["score"] == -summary["best"]["objective"]
    assert 0 < summary["baseline"]["score_lo"] < summary["baseline"]["score"] < 1
    listed = own("top")
    assert "accuracy, higher is better" in listed
    shown = [float(line.split()[3]) for line in listed.splitlines() if re.match(r" +\d+ ", line)]
    assert shown == sorted(shown, reverse=True)
    assert 0 < shown[0] < 1


@pytest.mark.slow
def test_another_script_is_another_ruler(tmp_path: Path) -> None:
    own = Own(tmp_path)
    own.loop(1, "--no-confirm")
    script(own.checkout, "notes", "notes.txt")
    own.loop(2, "--no-confirm")
    script(own.checkout, DATA.replace("0.6", "0.9"), "data.py")
    refused = own.loop(3, "--no-confirm", code=1)
    assert "is another than" in refused
    assert "put it back, or start another campaign" in refused


@pytest.mark.slow
def test_a_script_that_does_nothing_with_its_seed_is_seen_to(tmp_path: Path) -> None:
    own = Own(tmp_path)
    script(own.checkout, TRAIN.replace("points(args.seed)", "points(1)"))
    said = own("loop", "--menu=own.toml", "--iters=4", "--baseline-seeds=4", "--max-runs=3")
    same = "every run of a config is the same"
    assert said.count(same) == 1
    assert "not confirmed" not in said
    assert len(own.rows("baseline")) == 2
    raced = [row for row in own.rows("iteration") if row["trials"]]
    assert raced
    assert all(len(row["trials"]) == 1 for row in raced)
    assert {row["decision"]["action"] for row in raced} == {"keep", "discard"}
    assert same in own("confirm", "--campaign=runs/own", code=1)
    assert "no interval knows of chance" in " ".join(own("top", "--campaign=runs/own").split())
    assert same not in own.loop(5, "--baseline-seeds=4", "--max-runs=3").split("baseline")[-1]
    assert len(own.rows("baseline")) == 2


@pytest.mark.slow
@pytest.mark.parametrize("told", [True, False])
def test_runs_that_differ_are_confirmed_whatever_the_menu_tells(
    tmp_path: Path, *, told: bool
) -> None:
    """A script that takes no seed and sets none gives different results at every run."""
    own = Own(tmp_path)
    menu = own.checkout / "own.toml"
    if not told:
        menu.write_text(menu.read_text().replace('"--seed={seed}", ', ""))
    own("loop", "--menu=own.toml", "--iters=2", "--baseline-seeds=3", "--no-confirm")
    assert len({row["trial"]["result"]["score"] for row in own.rows("baseline")}) == 3
    assert "intervals" in own("confirm", "--campaign=runs/own", "--top=1", "--seeds=2")
    assert "knows of chance" not in " ".join(own("top", "--campaign=runs/own").split())


@pytest.mark.slow
def test_failures_are_told_with_what_the_script_said_and_no_more(tmp_path: Path) -> None:
    own = Own(tmp_path)
    menu = own.checkout / "own.toml"
    menu.write_text(menu.read_text().replace("high = 1e3", "high = 1e9"))
    own.loop(14, "--no-confirm", "--proposer=random")
    failed = [
        trial["result"]["message"]
        for row in own.rows("iteration")
        for trial in row["trials"]
        if trial["result"]["status"] == "crash"
    ]
    assert failed
    assert any("blew up" in message for message in failed)
    assert all(message.isprintable() for message in failed)
    own("report")
    page = (own.campaign / "report" / "report.html").read_text()
    assert "<script>alert(1)" not in page


@pytest.mark.slow
def test_what_cannot_begin_says_so_before_anything_is_made(tmp_path: Path) -> None:
    own = Own(tmp_path)
    assert "brings its own text" in own.loop(1, "--corpus=stdlib", code=1)
    menu = own.checkout / "own.toml"
    text = menu.read_text()
    for old, new, says in (
        ("train.py", "trian.py", "there is no trian.py in"),
        ("{python}", "pyhton", "no program 'pyhton'"),
        ("unit = ", 'directory = "nowhere"\nunit = ', "is not there"),
        ("unit = ", f'directory = "{own.home}"\nunit = ', "holds the home"),
        ("unit = ", 'reads = ["nothing"]\nunit = ', "which reads names, is not there"),
    ):
        menu.write_text(text.replace(old, new, 1))
        refused = own.loop(1, code=1)
        assert says in refused
        assert "Traceback" not in refused
        assert not own.campaign.exists()
        checks = json.loads(own("doctor", "--json", "--menu=own.toml", code=1))["checks"]
        assert says in checks[-1]["found"]


def test_the_interpreter_of_another_environment_is_asked_where_it_lies() -> None:
    from trainer.command.program import environment_of, find_program

    assert find_program("{python}", Path("/")) == Path(sys.executable)
    assert environment_of(Path(sys.executable)) == ()
    base = Path(os.path.realpath(sys.executable))
    if base.parent != Path(sys.executable).parent:
        found = environment_of(base)
        assert any((path / "python3").exists() or path.name == "lib" for path in found)
        assert not any(Path.home().is_relative_to(path) for path in found)


@pytest.mark.slow
def test_what_a_killed_night_left_of_a_trial_goes_when_it_is_taken_up(tmp_path: Path) -> None:
    own = Own(tmp_path)
    hang = "import time\nopen('ckpt.pt', 'w').write('weights')\nprint('here', flush=True)\n"
    script(own.checkout, TRAIN.replace("# Logistic", f"{hang}time.sleep(2)\n# Logistic"))
    night = own.start("loop", "--menu=own.toml", "--iters=1")
    kept = own.campaign / "trials" / "t000001" / "tmp" / "work" / "ckpt.pt"
    wait_until(kept.exists)
    night.kill()
    night.wait()
    assert kept.exists()
    own.loop(1, "--no-confirm")
    assert list(own.campaign.glob("trials/*/tmp*")) == []
