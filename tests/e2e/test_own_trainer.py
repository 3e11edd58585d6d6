import json
from pathlib import Path

import pytest

from tests.support.commands import script
from tests.support.in_process import run_here
from tests.support.own_trainers import DATA, TRAIN, Own, by_hand
from tests.support.waiting import wait_until
from trajectory.curves import read_curve


def test_from_a_menu_to_the_mornings_list(tmp_path: Path) -> None:
    own = Own(tmp_path)
    # What cannot begin says so before anything is made.
    menu = own.checkout / "own.toml"
    text = menu.read_text()
    menu.write_text(text.replace("train.py", "trian.py", 1))
    refused = run_here(("loop", "--menu=own.toml", "--iters=1"), own.checkout, own.env)
    assert (refused.returncode, refused.stderr.count("\n")) == (1, 1)
    assert not own.campaign.exists()
    checks = json.loads(own("doctor", "--json", "--menu=own.toml", code=1))["checks"]
    assert checks[-1]["state"] == "bad"
    menu.write_text(text)

    assert "bpb" not in own.loop(6, "--no-confirm", "--seed=3")
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
        points = read_curve(own.campaign, trial["trial_id"])
        assert [(point.step, point.loss) for point in points] == curve
        assert trial["result"]["score"] == score
    listed = own("top")
    assert "bpb" not in listed
    best = json.loads(own("top", "--json"))
    assert (best["unit"], best["direction"]) == ("nats per point", "minimise")
    first_config = best["configs"][0]
    assert first_config["score"] == first_config["objective"]
    assert first_config["score_lo"] < first_config["score"] < first_config["score_hi"]
    # Resuming needs only the campaign; another file beside the script changes nothing.
    script(own.checkout, "notes", "notes.txt")
    own.loop(8, "--no-confirm")
    assert len(own.rows("iteration")) == 8
    # Another script is another evaluation.
    script(own.checkout, DATA.replace("0.6", "0.9"), "data.py")
    again = ("loop", "--menu=own.toml", "--iters=9", "--baseline-seeds=2", "--no-confirm")
    assert run_here(again, own.checkout, own.env).returncode == 1
    assert len(own.rows("iteration")) == 8


@pytest.mark.slow
def test_failures_are_told_and_what_a_kill_left_goes(tmp_path: Path) -> None:
    own = Own(tmp_path / "failing")
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

    # What a kill left of a trial goes when the campaign is resumed.
    own = Own(tmp_path / "killed")
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
