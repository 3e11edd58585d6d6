"""Try every idea of the library alone against the baseline, on paired seeds.

``python -m bench.code_ideas OUT.jsonl`` trains on the CPU for hours; started again it goes on where
it stopped. ``--table`` prints what is there as a table for bench/RESULTS.md and trains nothing.
"""

import json
import math
import tempfile
from collections.abc import Iterator
from pathlib import Path
from statistics import fmean, median, stdev
from typing import Annotated, Any

import typer

from agent.menu.files import load_menu
from agent.proposers.base import SearchView
from agent.proposers.code import changes_for
from agent.settings.environment import data_dir
from autoresearch.ideas import ideas
from trainer.corpus import prepare
from trainer.executors.local import LocalExecutor
from trainer.schema import AnyConfig, RunSchedule, TrialOk, TrialSpec
from trajectory.evidence import Evidence
from trajectory.statistics.intervals import student_t

SEEDS = range(9000, 9012)
BASELINE = "baseline"


def run(
    out: Path,
    menu: Annotated[str, typer.Option(help="A menu with code knobs.")] = "cpu-tiny-code",
    steps: Annotated[
        int | None, typer.Option(help="Steps of a trial. Default: the menu's.")
    ] = None,
    only: Annotated[list[str] | None, typer.Option(help="Only these ideas.")] = None,
    table: Annotated[bool, typer.Option("--table", help="Print the results so far.")] = False,
) -> None:
    """Train what is missing from OUT, one seed of every idea after the other."""
    done = [json.loads(line) for line in out.read_text().splitlines()] if out.exists() else []
    if table:
        print("\n".join(table_lines(done)))
        return
    known = {(one["idea"], one["seed"]) for one in done}
    configs = {
        name: config for name, config in _configs(menu) if not only or name in {*only, BASELINE}
    }
    with (
        tempfile.TemporaryDirectory() as directory,
        LocalExecutor() as executor,
        out.open("a") as file,
    ):
        for number, (seed, name) in enumerate((seed, name) for seed in SEEDS for name in configs):
            if (name, seed) in known:
                continue
            spec = spec_of(menu, configs[name], seed, steps, number)
            result = executor.run(spec, Path(directory, str(number))).result
            said = {"idea": name, "seed": seed, **_said(result)}
            file.write(json.dumps(said) + "\n")
            file.flush()


def _said(result: Any) -> dict[str, Any]:
    if not isinstance(result, TrialOk):
        return {"failed": f"{result.status}: {result.message}"}
    return {name: getattr(result, name) for name in ("val_bpb", "train_s", "peak_mem_gib")}


def _configs(name: str) -> Iterator[tuple[str, AnyConfig]]:
    menu = load_menu(name)
    view = SearchView(menu, menu.baseline, Evidence(), iter=1, seed=0, max_changes=len(menu.knobs))
    yield BASELINE, menu.baseline
    for idea in ideas():
        yield idea.name, menu.apply(menu.baseline, changes_for(idea, view))


def spec_of(name: str, config: AnyConfig, seed: int, steps: int | None, number: int) -> TrialSpec:
    """Return the spec of a trial of a config, by a menu's campaign defaults."""
    given = load_menu(name).campaign
    corpus = prepare(
        [given.corpus],
        cache_dir=data_dir() / "corpora",
        tokenizer=given.tokenizer,
        heldout_bytes=given.heldout_bytes,
    )
    schedule = {field: getattr(given, field) for field in RunSchedule.model_fields}
    if steps is not None:
        schedule["budget"] = f"{steps} steps"
    return TrialSpec(
        trial_id=str(number),
        config=config,
        seed=seed,
        corpus_dir=str(corpus.directory),
        corpus_sha256=corpus.info.sha256,
        threads=given.threads,
        **schedule,
    )


def table_lines(done: list[dict[str, Any]]) -> Iterator[str]:
    """Yield the table's lines: each idea's difference from the baseline with its 95 % interval, the
    best first."""
    base = {one["seed"]: one for one in done if one["idea"] == BASELINE and "val_bpb" in one}
    yield "| idea | slot | bpb minus the baseline's, mean (95 %) | seeds | time of a run | memory |"
    yield "| --- | --- | --- | --- | --- | --- |"
    rows = []
    for idea in ideas():
        own = [one for one in done if one["idea"] == idea.name]
        runs = [one for one in own if "val_bpb" in one and one["seed"] in base]
        failed = [one["failed"] for one in own if "failed" in one]
        name = f"| [{idea.name}](https://arxiv.org/abs/{idea.arxiv}) | {idea.slot} |"
        if failed:
            rows.append((math.inf, f"{name} failed: {failed[0][:80]} | {len(failed)} | | |"))
        if len(runs) < 2:
            continue
        differences = [one["val_bpb"] - base[one["seed"]]["val_bpb"] for one in runs]
        mean, count = fmean(differences), len(differences)
        half = student_t(0.975, count - 1) * stdev(differences) / math.sqrt(count)
        ratios = [  # medians, since a busy machine lengthens single runs tenfold
            median(one[key] / base[one["seed"]][key] for one in runs)
            for key in ("train_s", "peak_mem_gib")
        ]
        text = f"{mean:+.4f} ({mean - half:+.4f} … {mean + half:+.4f})".replace("-", "−")
        rows.append((mean, f"{name} {text} | {count} | {ratios[0]:.2f} × | {ratios[1]:.2f} × |"))
    yield from (line for _, line in sorted(rows, key=lambda row: row[0]))


if __name__ == "__main__":
    typer.run(run)
