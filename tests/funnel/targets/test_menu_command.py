"""Derive proxies from a target and search over them, through the command."""

from pathlib import Path

from funnel.plan.projection import project
from funnel.targets.architecture import load_target
from funnel.targets.ratios import RATIOS
from funnel.targets.shape import Shape
from tests.support.simulated.commands import SimulatedToy
from trainer.schema import Config


def test_a_written_menu_is_searched_resumed_and_carried(tmp_path: Path) -> None:
    toy = SimulatedToy(tmp_path)
    toy.menu.unlink()
    fixed = [word for name in RATIOS for word in ("--fix", name)]
    written = toy.run("menu", "from-target", "llama-7b", "--tiny", *fixed, "-o", str(toy.menu))
    assert written.returncode == 0, written.stderr
    short = ("--budget=12 steps", "--tokenizer=bytes", f"--corpus={tmp_path / 'text'}")

    first = toy.loop(1, *short, "--proposer=random")
    assert first.returncode == 0, first.stderr
    toy.menu.unlink()
    again = toy.run("loop", "--iters=2", "--campaign", str(toy.campaign))
    assert again.returncode == 0, again.stderr

    target = load_target("llama-7b")
    configs = [Config.model_validate(row["config"]) for row in toy.iterations()]
    assert len(configs) == 2
    for config in configs:
        departures = list(Shape.of(config).departures(Shape.of(target)))
        assert departures == ["head_dim is 16, the target's 128"]
        assert project(config, target, horizon_steps=1000).config.d_model == 4096
    assert toy.run("top", "--campaign", str(toy.campaign)).returncode == 0
