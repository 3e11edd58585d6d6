"""Compare menus' defaults on paired seeds, and Muon's step with AdamW's.

``python -m bench.recipes compare OUT.jsonl`` trains each menu's baseline on the CPU; started again
it goes on where it stopped, and then prints the differences. ``python -m bench.recipes step`` takes
steps of both optimizers in turn in one process, so that other load affects both.
"""

import json
import math
import tempfile
import time
from pathlib import Path
from statistics import fmean, median, stdev
from typing import Annotated

import torch
import typer

from agent.menu.files import load_menu
from bench.code_ideas import spec_of
from trainer.backends import choose_backend
from trainer.backends.optimizer import optimizer_of
from trainer.executors.local import LocalExecutor
from trainer.schema import TrialOk, gpt
from trajectory.statistics.intervals import student_t

app = typer.Typer(help=__doc__)
UNCOUNTED = 5
"""Steps at the start that the medians leave out."""


@app.command()
def compare(
    out: Path,
    menus: Annotated[str, typer.Option(help="Menus, the first is the reference.")] = (
        "cpu-tiny,cpu-modern"
    ),
    steps: Annotated[int, typer.Option(help="Steps of a trial.")] = 60,
    seeds: Annotated[int, typer.Option(help="Number of paired seeds.")] = 6,
) -> None:
    """Train what is missing from OUT, and print each menu's difference from the first."""
    done = [json.loads(line) for line in out.read_text().splitlines()] if out.exists() else []
    scores = {(one["menu"], one["steps"], one["seed"]): one["val_bpb"] for one in done}
    names = menus.split(",")
    with (
        tempfile.TemporaryDirectory() as directory,
        LocalExecutor() as executor,
        out.open("a") as file,
    ):
        for number, (seed, name) in enumerate((s, n) for s in range(seeds) for n in names):
            if (name, steps, seed) in scores:
                continue
            spec = spec_of(name, load_menu(name).baseline, seed, steps, number)
            result = executor.run(spec, Path(directory, str(number))).result
            assert isinstance(result, TrialOk), result
            scores[name, steps, seed] = result.val_bpb
            said = {"menu": name, "steps": steps, "seed": seed, "val_bpb": result.val_bpb}
            file.write(json.dumps({**said, "step_ms": result.step_ms}) + "\n")
            file.flush()
    for name in names[1:]:
        gains = [scores[name, steps, s] - scores[names[0], steps, s] for s in range(seeds)]
        half = student_t(0.975, seeds - 1) * stdev(gains) / math.sqrt(seeds)
        print(f"{name} minus {names[0]}: {fmean(gains):+.4f} ± {half:.4f} on {seeds} seeds")


@app.command()
def step(
    menu: str = "cpu-tiny",
    rounds: int = 40,
    threads: int = 1,
    device: str = "cpu",
    vocabulary: int = 1024,
) -> None:
    """Print the median time of a step with each optimizer, and their ratio."""
    torch.set_num_threads(threads)
    arms, taken_ms = {}, {}
    for name in ("adamw", "muon"):
        recipe = gpt(load_menu(menu).baseline).model_copy(update={"optimizer": name})
        model = choose_backend("torch").build(recipe, vocabulary, torch.device(device))
        model.train()
        arms[name], taken_ms[name] = (model, optimizer_of(model, recipe)), list[float]()
    shape = recipe.batch_size, recipe.seq_len + 1
    for _ in range(rounds):
        tokens = torch.randint(vocabulary, shape, device=device)
        for name, (model, optimizer) in arms.items():
            began = time.perf_counter()
            loss = model(tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous())
            loss.backward()
            float(optimizer.step(loss, 1e-3))  # waits for a GPU
            taken_ms[name].append(1000 * (time.perf_counter() - began))
    adamw, muon = (median(taken_ms[name][UNCOUNTED:]) for name in arms)
    print(f"adamw {adamw:.1f} ms, muon {muon:.1f} ms a step: {muon / adamw:.3f} times")


if __name__ == "__main__":
    app()
