"""Run the loop around a person's own script on a Ray cluster of two nodes.

The tests use the installed command.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from autoresearch.errors import SettingsError
from tests.support.commands import script
from tests.support.own_trainers import TRAIN, Own, by_hand
from tests.support.ray_clusters import LocalCluster
from trainer.executors.local import COMMAND_ENTRY
from trainer.executors.ray.cluster import RayCluster
from trainer.executors.ray.needs import Needs

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def node_dir(cluster: LocalCluster) -> Path:
    """Return the folder in which both nodes keep received files; real nodes have one each."""
    return cluster.data_dir


def on(cluster: LocalCluster) -> tuple[str, ...]:
    return (f"--executor=ray:{cluster.address}", "--lanes=2", "--threads=1", "--no-confirm")


def trials_of(own: Own) -> list[dict[str, Any]]:
    found = [row["trial"] for row in own.rows("baseline")]
    return found + [trial for row in own.rows("iteration") for trial in row["trials"]]


def test_a_script_trains_on_nodes_and_scores_as_by_hand(
    cluster: LocalCluster, node_dir: Path, tmp_path: Path
) -> None:
    own = Own(tmp_path)
    scripts = node_dir / "node" / "scripts"
    before = set(scripts.iterdir()) if scripts.exists() else set()
    doctor = own("doctor", "--menu=own.toml", on(cluster)[0])
    assert "BAD" not in doctor, doctor
    said = own.loop(4, *on(cluster))
    assert "sent to each node once: 3 files" in said
    trials = trials_of(own)
    assert {trial["place"]["node"] for trial in trials} == {"spark1", "spark2"}
    scored = [trial for trial in trials if trial["result"]["status"] == "scored"]
    assert len(scored) > 4
    for trial in scored:
        assert trial["result"]["score"] == by_hand(own, trial["trial_id"])[1]
    assert set(scripts.iterdir()) <= before, "a lane's copy goes with it"
    # Baselines trained on this machine have the same scores to the bit.
    here = Own(tmp_path / "here")
    here.loop(0, "--threads=1", "--no-confirm")
    scores = [
        [row["trial"]["result"]["score"] for row in each.rows("baseline")] for each in (own, here)
    ]
    assert scores[0] == scores[1]
    # A changed script changes the evaluation, on a cluster as on one machine.
    script(own.checkout, TRAIN + "\n", "train.py")
    assert "put it back, or start another campaign" in own.loop(6, *on(cluster), code=1)


PRELOADED = "import sys\nimport wave\ndef main():\n" + "".join(
    f"    {line}\n" for line in TRAIN.strip().splitlines()
)


def test_a_function_is_called_in_a_fork_there_too(cluster: LocalCluster, tmp_path: Path) -> None:
    own = Own(tmp_path)
    seen = "    print('FORKED', 'agent' not in sys.modules and 'wave' in PRELOADED)\n"
    text = "import sys\nPRELOADED = set(sys.modules)\n" + PRELOADED + seen
    script(
        own.checkout, text.replace("    import argparse", "    global math\n    import argparse")
    )
    menu = own.checkout / "own.toml"
    menu.write_text(
        menu.read_text().replace("unit = ", 'main = "main"\npreload = ["wave"]\nunit = ', 1)
    )
    own.loop(0, *on(cluster))
    for trial in trials_of(own):
        assert trial["result"]["status"] == "scored", trial
        log = own.campaign / "trials" / trial["trial_id"] / "trainer.log"
        assert "FORKED True" in log.read_text()


ATTACK = """
import os
from pathlib import Path
TARGETS = {targets!r}
def told(place):
    for folder in (place, *sorted(p for p in place.rglob("*") if p.is_dir())):
        yield folder / "attack"
for target in map(Path, TARGETS):
    for path in told(target):
        for how in (lambda: path.write_text("x"), path.mkdir, lambda: path.symlink_to("/etc")):
            try:
                how()
                print("WROTE", path)
            except OSError:
                pass
for path in (Path(__file__), Path(__file__).resolve(), Path("data.py")):
    for how in (lambda: path.write_text("x"), lambda: path.chmod(0o777), lambda: path.unlink()):
        try:
            if path.is_symlink() and how.__code__.co_names[-1] == "unlink":
                continue  # its own link, in its own place
            how()
            print("WROTE", path)
        except OSError:
            pass
for path in map(Path, {secrets!r}):
    try:
        print("READ", path.read_text())
    except OSError:
        pass
print("ATTACKED", os.getcwd())
"""


def test_a_script_that_writes_elsewhere_on_its_node_fails_to(
    cluster: LocalCluster, node_dir: Path, tmp_path: Path
) -> None:
    own = Own(tmp_path)
    other = node_dir / "node" / "scripts" / "other"
    script(other, "precious", "secret.txt")
    script(own.checkout, "KEY=precious", ".env")
    targets = [str(path) for path in (node_dir, own.home, Path.home(), Path("/tmp"))]
    secrets = [str(other / "secret.txt"), str(own.checkout / ".env"), str(own.checkout / "data.py")]
    script(own.checkout, TRAIN + ATTACK.format(targets=targets, secrets=secrets))
    own.loop(0, *on(cluster))
    for trial in trials_of(own):
        assert trial["result"]["status"] == "scored", trial
        log = (own.campaign / "trials" / trial["trial_id"] / "trainer.log").read_text()
        assert f"ATTACKED {node_dir}" in log
        assert "READ" not in log
        wrote = [line for line in log.splitlines() if line.startswith("WROTE")]
        assert [line for line in wrote if trial["trial_id"] not in line] == []
    for place in (own.home, node_dir / "node" / "scripts"):
        assert not list(place.rglob("attack"))


def test_what_a_node_lacks_or_is_too_much_to_send_is_refused_before_anything_is_made(
    cluster: LocalCluster, tmp_path: Path
) -> None:
    needs = Needs(program="/opt/none/python", reads=("/",))
    with RayCluster(cluster.address) as opened:
        why = r"no room .* spark1: there is no program /opt/none/python, with which \[trainer\]"
        with pytest.raises(SettingsError, match=why):
            opened.open_lanes(1, entry=COMMAND_ENTRY, needs=needs)

    own = Own(tmp_path)
    (own.checkout / "big").mkdir()
    with (own.checkout / "big" / "train.bin").open("wb") as file:
        file.truncate(300 << 20)
    own.loop(0, *on(cluster), code=1)
    assert not own.campaign.exists()
    menu = own.checkout / "own.toml"
    menu.write_text(menu.read_text().replace("unit = ", 'reads = ["big"]\nunit = ', 1))
    own.loop(0, *on(cluster))
    assert all(trial["result"]["status"] == "scored" for trial in trials_of(own))
    assert json.loads(own("doctor", "--json", "--menu=own.toml", on(cluster)[0]))["ready"]
