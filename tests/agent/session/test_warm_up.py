from collections.abc import Callable, Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from agent.menu.files import load_menu, parse_menu
from agent.search.campaign import Campaign
from agent.search.campaign_start import new_settings
from agent.search.stopping import Goal, StopRequest
from agent.session.campaign_run import warm_up
from autoresearch.errors import MachineryError
from tests.support.executors import InstantExecutor
from tests.support.nights import WORLD, work
from tests.support.simulated.night import no_corpus
from tests.support.trials import trial_ok
from trainer.executors.base import Finished
from trainer.schema import CurvePoint, Measured, TrialFailed, TrialSpec


class Recording(InstantExecutor):
    """Keep the specs it receives."""

    def __init__(self, comes: Callable[[TrialSpec], Measured | TrialFailed] = trial_ok) -> None:
        self.ran: list[TrialSpec] = []
        self._comes = comes

    def train(
        self, spec: TrialSpec, trial_dir: Path, tell: Callable[[CurvePoint], None]
    ) -> Finished:
        self.ran.append(spec)
        return Finished(self._comes(spec), 41.6)


def campaign_on(directory: Path, **chosen: Any) -> Campaign:
    settings = new_settings(WORLD.menu, WORLD.menu.name, chosen)
    corpus = no_corpus(directory)
    return Campaign(directory / "campaign", settings, WORLD.menu, corpus, sandbox="simulated")


@pytest.fixture
def on_gpu(tmp_path: Path) -> Iterator[Campaign]:
    with campaign_on(tmp_path, device="cuda", average="lawa:20") as campaign:
        yield campaign


def test_two_steps_of_the_defaults_run_and_no_row_names_them(on_gpu: Campaign) -> None:
    executor = Recording()
    rows = len(list(on_gpu.journal.rows()))
    line = warm_up(on_gpu, executor, StopRequest())
    assert line is not None
    assert "42 s" in line
    (spec,) = executor.ran
    assert TrialSpec.model_validate_json(spec.model_dump_json()) == spec
    assert (spec.steps, spec.config, spec.device) == (2, on_gpu.menu.baseline, "cuda")
    assert spec.compile_cache is not None
    assert len(list(on_gpu.journal.rows())) == rows
    assert not on_gpu.evidence.configs


@pytest.mark.parametrize("status", [None, "crash"])
def test_each_number_format_of_the_menu_is_tried(status: Any, tmp_path: Path) -> None:
    def comes(spec: TrialSpec) -> Measured | TrialFailed:
        if status and spec.gpt.precision == "fp8":
            return TrialFailed(status=status, message="no such product")
        return trial_ok(spec)

    text = load_menu("spark-354m").toml
    knob = '[knobs.precision]\ntype = "choice"\nchoices = ["bf16", "fp8"]\ndefault = "bf16"\n'
    menu = parse_menu(text.replace('precision = "bf16"\n', "") + knob, "both.toml")
    settings = new_settings(menu, menu.name, {"device": "cuda", "backend": "megatron"})
    executor = Recording(comes)
    with Campaign(
        tmp_path / "campaign", settings, menu, no_corpus(tmp_path), sandbox="simulated"
    ) as campaign:
        expected = nullcontext() if status is None else pytest.raises(MachineryError)
        with expected:
            warm_up(campaign, executor, StopRequest())
    assert [spec.gpt.precision for spec in executor.ran] == ["bf16", "fp8"]


@pytest.mark.parametrize("status", ["oom", "nonfinite", "crash"])
def test_whatever_fails_in_it_is_the_machinerys(status: Any, on_gpu: Campaign) -> None:
    executor = Recording(lambda _: TrialFailed(status=status, message="no luck"))
    with pytest.raises(MachineryError):
        warm_up(on_gpu, executor, StopRequest())


def test_nothing_runs_on_a_cpu_or_once_the_baseline_is_measured(tmp_path: Path) -> None:
    executor = Recording()
    work(tmp_path, Goal(iterations=1))
    with campaign_on(tmp_path, seed=3, max_changes=2) as campaign:
        assert warm_up(campaign, executor, StopRequest()) is None
        campaign.settings = campaign.settings.model_copy(update={"device": "cuda"})
        assert warm_up(campaign, executor, StopRequest()) is None
    assert not executor.ran
