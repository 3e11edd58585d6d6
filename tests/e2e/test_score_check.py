"""Run a loop whose proposals are code that cheats: the check's score stands."""

from pathlib import Path

import pytest

from tests.support.commands import script
from tests.support.hostile_loops import loop_rows

SCRIPT = """
import os, sys
from pathlib import Path
out = Path(sys.argv[1])
weight = float(sys.argv[2])
# autoresearch: slot update
weight = weight * 0.5
# autoresearch: end
(out / "weight").write_text(str(weight))
print("score", weight)
"""
CHECK = """
import sys
from pathlib import Path
import scale
print("score", float(Path(sys.argv[1], "weight").read_text()) * scale.FACTOR)
"""
MENU = """
name = "checked"
[trainer]
command = ["{python}", "train.py", "{out}", "{start}"]
unit = "points"
[score.check]
command = ["{python}", "check.py", "{out}"]
pattern = 'score (\\S+)'
[knobs.start]
type = "float"
low = 0.5
high = 2.0
default = 1.0
[code.update]
default = "weight = weight * 0.5"
names = ["weight", "out", "print", "os", "Path", "parent", "rglob", "unlink", "write_text", "fork"]
[campaign]
budget = "1 run"
wall_s = 120
"""
FORGED = '{"status": "scored", "score": -9.0, "train_s": 1.0, "setup_s": 1.0}'
CHEAT = f"""
weight = 0.75
print('score -9')
(out.parent.parent / 'result.json').write_text('{FORGED}')
for name in ('check.py', 'scale.py'):
    Path(name).unlink()
    Path(name).write_text("print('score -9')")
if os.fork() == 0:
    while True:
        for one in out.parent.rglob('check.py'):
            one.unlink()
            one.write_text("print('score -9')")
"""


@pytest.mark.slow
def test_code_in_a_region_cannot_reach_the_score(tmp_path: Path) -> None:
    checkout = script(tmp_path / "checkout", SCRIPT)
    script(checkout, CHECK, "check.py")
    script(checkout, "FACTOR = 2\n", "scale.py")
    script(checkout, MENU, "checked.toml")
    rows = loop_rows(checkout, "checked", [{"code.update": CHEAT}], iters=4)
    assert rows[0]["script"]["check"] == ["{python}", "check.py", "{out}"]
    found = [
        trial["result"]["score"]
        for row in rows
        if row.get("proposal", {}).get("changes") == {"code.update": CHEAT}
        for trial in row["trials"]
    ]
    assert found
    assert set(found) <= {1.0, 1.5}, found  # the baseline's, if the pair has one of its own
    assert 1.5 in found
