"""A trainer that trains nothing: each of its processes tries to read every file of the corpus."""

from pathlib import Path

from trainer.schema import TrialFailed, TrialSpec


def run_trial(spec: TrialSpec, trial_dir: Path, *, born: float, phase: str) -> TrialFailed | None:
    """Note which files can be read; "score" reports the notes of both."""
    read = []
    for name in ("heldout.bin", "meta.json", "train.bin"):
        try:
            (Path(spec.corpus_dir) / name).read_bytes()
        except PermissionError:
            continue
        read.append(name)
    note, line = trial_dir / "tmp" / "note", f"{phase}: {' '.join(read)}"
    if phase == "train":
        note.write_text(line)
        return None
    return TrialFailed(status="crash", message=f"{note.read_text()} / {line}")
