import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.commands import script
from tests.support.own_trainers import TRAIN, Own, by_hand
from tests.support.ray_clusters import LocalCluster

pytestmark = pytest.mark.slow


def on(cluster: LocalCluster) -> tuple[str, ...]:
    return (f"--executor=ray:{cluster.address}", "--lanes=2", "--threads=1", "--no-confirm")


def trials_of(own: Own) -> list[dict[str, Any]]:
    found = [row["trial"] for row in own.rows("baseline")]
    return found + [trial for row in own.rows("iteration") for trial in row["trials"]]


CALLED = (
    "import sys\nPRELOADED = set(sys.modules)\nimport wave\ndef main():\n    global math\n"
    + "".join(f"    {line}\n" for line in TRAIN.strip().splitlines())
    + "    print('FORKED', 'agent' not in sys.modules and 'wave' in PRELOADED)\n"
    + "if __name__ == '__main__':\n    main()\n"
)


def test_a_function_on_nodes_scores_as_by_hand(cluster: LocalCluster, tmp_path: Path) -> None:
    own = Own(tmp_path)
    script(own.checkout, CALLED)
    # What is too much to send is refused before anything is made, unless the menu reads it there.
    (own.checkout / "big").mkdir()
    with (own.checkout / "big" / "train.bin").open("wb") as file:
        file.truncate(300 << 20)
    own.loop(0, *on(cluster), code=1)
    assert not own.campaign.exists()
    menu = own.checkout / "own.toml"
    more = 'reads = ["big"]\nmain = "main"\npreload = ["wave"]\nunit = '
    menu.write_text(menu.read_text().replace("unit = ", more, 1))
    scripts = cluster.data_dir / "node" / "scripts"  # of both nodes; real ones have one each
    before = set(scripts.iterdir()) if scripts.exists() else set()
    assert json.loads(own("doctor", "--json", "--menu=own.toml", on(cluster)[0]))["ready"]
    own.loop(4, *on(cluster))
    trials = trials_of(own)
    assert {trial["place"]["node"] for trial in trials} == {"spark1", "spark2"}
    scored = [trial for trial in trials if trial["result"]["status"] == "scored"]
    assert len(scored) > 4
    for trial in scored:
        assert trial["result"]["score"] == by_hand(own, trial["trial_id"])[1]
        log = own.campaign / "trials" / trial["trial_id"] / "trainer.log"
        assert "FORKED True" in log.read_text()
    assert set(scripts.iterdir()) <= before, "a lane's copy goes with it"
    # Trained on this machine, by the script as a program, baselines score the same to the bit.
    here = Own(tmp_path / "here")
    here.loop(0, "--threads=1", "--no-confirm")
    scores = [
        [row["trial"]["result"]["score"] for row in each.rows("baseline")] for each in (own, here)
    ]
    assert scores[0] == scores[1]
    # A changed script changes the evaluation, on a cluster as on one machine.
    script(own.checkout, CALLED + "\n")
    own.loop(6, *on(cluster), code=1)
    assert len(own.rows("iteration")) == 4


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


def test_a_script_cannot_write_elsewhere_on_its_node(cluster: LocalCluster, tmp_path: Path) -> None:
    own = Own(tmp_path)
    scripts = cluster.data_dir / "node" / "scripts"
    other = scripts / "other"
    script(other, "precious", "secret.txt")
    script(own.checkout, "KEY=precious", ".env")
    targets = [str(path) for path in (cluster.data_dir, own.home, Path.home(), Path("/tmp"))]
    secrets = [str(other / "secret.txt"), str(own.checkout / ".env"), str(own.checkout / "data.py")]
    script(own.checkout, TRAIN + ATTACK.format(targets=targets, secrets=secrets))
    own.loop(0, *on(cluster))
    for trial in trials_of(own):
        assert trial["result"]["status"] == "scored", trial
        log = (own.campaign / "trials" / trial["trial_id"] / "trainer.log").read_text()
        assert f"ATTACKED {cluster.data_dir}" in log
        assert "READ" not in log
    # In a world of its own a script has a /tmp of its own, and seems to write to all of it.
    for place in (cluster.data_dir, own.home):
        for path in place.rglob("attack"):
            parents = {parent.name for parent in path.parents}
            assert parents & {"trials", "compiled"}, path  # its own, and the campaign's code
    for place in (Path.home(), Path("/tmp")):
        assert not (place / "attack").exists()
    assert (scripts / "other" / "secret.txt").read_text() == "precious"
