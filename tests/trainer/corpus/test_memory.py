"""A preparation holds batches and hashes in memory, never the whole text."""

import subprocess
import sys
from pathlib import Path

import pyarrow
import pyarrow.parquet
import pytest

MIB = 1 << 20
GROWTH_MIB = 96
"""Maximum growth over a preparation of three files of 96 MiB, against one of 1 MiB in the same
process.

Measured were 50 to 67 MiB, mostly what Arrow's reader keeps, which is the same for a Parquet file
of half the size. Holding one file whole would add its 96 MiB.
"""

# The peak of this process alone; rusage's would include its parent's before the fork.
MEASURE = """
import sys
from pathlib import Path
from trainer.corpus import prepare

def peak_mib():
    status = Path("/proc/self/status").read_text()
    return int(status.split("VmHWM:")[1].split()[0]) / 1024

small, cache, *large = sys.argv[1:]
prepare([small], cache_dir=Path(cache))
before = peak_mib()
info = prepare(large, cache_dir=Path(cache)).info
print(peak_mib() - before, info.train_bytes + info.heldout_bytes)
"""


def line(number: int) -> str:
    return f"{number:09d} " + "the loss falls as the width grows " * 28


def write_lines(path: Path, size: int, first: int) -> None:
    with path.open("w") as file:
        for number in range(first, first + size // len(line(0))):
            file.write(line(number) + "\n")


@pytest.mark.slow
def test_memory_does_not_grow_with_the_input(tmp_path: Path) -> None:
    text, records, table = (tmp_path / name for name in ("a.txt", "b.jsonl", "c.parquet"))
    write_lines(text, 96 * MIB, 0)
    with records.open("w") as file:
        for number in range(10**6, 10**6 + 96 * 1024):
            file.write(f'{{"text": "{line(number)}"}}\n')
    texts = [line(number) for number in range(2 * 10**6, 2 * 10**6 + 96 * 1024)]
    schema = pyarrow.table({"text": texts})
    pyarrow.parquet.write_table(schema, table, row_group_size=len(texts), compression="none")
    (tmp_path / "small").mkdir()
    write_lines(tmp_path / "small" / "s.txt", MIB, 0)
    pyarrow.parquet.write_table(schema[:100], tmp_path / "small" / "s.parquet")

    done = subprocess.run(
        [
            *(sys.executable, "-c", MEASURE, str(tmp_path / "small"), str(tmp_path / "cache")),
            *map(str, (text, records, table)),
        ],
        capture_output=True,
        text=True,
        check=True,
    )
    growth_mib, prepared_bytes = map(float, done.stdout.split())
    assert prepared_bytes > 270 * MIB
    assert growth_mib < GROWTH_MIB
