"""The step's arithmetic agrees with published runs, and a measurement replaces the estimate."""

from pathlib import Path
from statistics import fmean

import pytest

from autoresearch.errors import HandoffError
from funnel.cost.gpus import GPUS, MACHINES
from funnel.plan.layout import Cluster, Layout, layouts
from funnel.plan.step_time import step_time
from funnel.plan.utilisation import ERROR, MeasuredSpeed, fastest, read_measured, utilisation
from funnel.targets.architecture import load_target
from tests.support.present import known
from tests.support.scaling_tables import held_out_errors, readme_errors

TARGET = load_target("llama-7b")
CLUSTER = Cluster(nodes=2, gpus=8, gpu=GPUS["h100"])
LAYOUT = Layout(tensor=2, pipeline=1, data=8, micro_batch=1, global_batch=128)
MEASURED = MeasuredSpeed(
    target="llama-7b", gpu="h100", nodes=2, gpus=8, seq_len=8192, layout=LAYOUT, step_s=10.0
)


def test_the_published_table_comes_out_again() -> None:
    errors = [abs(error) for error in readme_errors()]
    assert len(errors) == 9
    assert fmean(errors) < 0.05
    assert max(errors) < ERROR


def test_runs_that_nothing_was_fitted_to() -> None:
    assert max(abs(error) for error in held_out_errors()) < ERROR


def seconds(**changes: object) -> dict[str, float]:
    layout = LAYOUT.model_copy(update=changes)
    return dict(step_time(TARGET, layout, CLUSTER, MACHINES["h100"]).parts())


def test_each_part_is_its_formula() -> None:
    """By hand: two reductions of 8192 × 4096 bf16 per layer forward and two backward. TP 2 moves
    half of twice that, over 32 layers and 16 micro-batches, at 80% of 450 GB/s."""
    moved = 4 * 8192 * 4096 * 2 * 32 * 16
    assert seconds()["tensor parallel"] == pytest.approx(moved / (0.8 * 450e9))
    assert seconds(tensor=1, data=16)["tensor parallel"] == 0
    piped = seconds(tensor=1, pipeline=2)
    assert piped["pipeline bubble"] > 0
    assert seconds()["pipeline bubble"] == 0
    recomputed = seconds(recompute="full")
    assert recomputed["products"] > 1.25 * seconds()["products"]


def test_traffic_that_a_micro_batch_hides_is_not_counted() -> None:
    hidden = seconds()["data parallel, not hidden"]
    narrow = MACHINES["h100"].model_copy(update={"fabric_gb_s": 1.0})
    parts = dict(step_time(TARGET, LAYOUT, CLUSTER, narrow).parts())
    assert hidden == 0
    # Two nodes linked at one gigabyte per second need seconds for 16 GB of gradients.
    assert parts["data parallel, not hidden"] > 1


def test_a_measurement_replaces_what_was_computed() -> None:
    computed = utilisation(TARGET, LAYOUT, CLUSTER, fp8=False)
    seen = utilisation(TARGET, LAYOUT, CLUSTER, fp8=False, measured=MEASURED)
    assert (computed.source, seen.source) == ("computed", "measured")
    tokens_flops = 128 * 8192 * 6 * (6_979_584_000 + 128_256 * 4096) + 128 * 8192 * (
        12 * 32 * 4096 * 8192
    )
    assert seen.mfu == pytest.approx(tokens_flops / 10 / (16 * 989.4e12), rel=1e-3)
    other = LAYOUT.model_copy(update={"micro_batch": 2})
    scaled = utilisation(TARGET, other, CLUSTER, fp8=False, measured=MEASURED)
    assert scaled.source == "scaled"
    plain = utilisation(TARGET, other, CLUSTER, fp8=False)
    assert scaled.mfu / plain.mfu == pytest.approx(seen.mfu / computed.mfu)


def test_a_measured_fabric_is_the_one_that_is_reckoned_with() -> None:
    four = Cluster(nodes=2, gpus=1, gpu=GPUS["h100"])
    target = load_target("llama-1b")
    layout = Layout(tensor=1, pipeline=1, data=2, micro_batch=1, global_batch=2)
    slow = MEASURED.model_copy(
        update={
            "target": "llama-1b",
            "gpus": 1,
            "layout": layout.model_copy(update={"global_batch": 4}),
            "fabric_gb_s": 1.0,
        }
    )
    wide = known(utilisation(target, layout, four, fp8=False).step)
    narrow = known(utilisation(target, layout, four, fp8=False, measured=slow).step)
    assert narrow.data_s > 10 * wide.data_s


def test_a_measurement_of_something_else_is_refused(tmp_path: Path) -> None:
    wrong = MEASURED.model_copy(update={"nodes": 1})
    with pytest.raises(HandoffError):
        utilisation(TARGET, LAYOUT, CLUSTER, fp8=False, measured=wrong)
    (tmp_path / "bad.json").write_text("{}")
    for name in ("none.json", "bad.json"):
        with pytest.raises(HandoffError):
            read_measured(tmp_path / name)
    (tmp_path / "good.json").write_text(MEASURED.model_dump_json())
    assert read_measured(tmp_path / "good.json") == MEASURED


def test_the_fastest_layout_is_taken_and_the_simplest_of_those() -> None:
    uses = layouts(TARGET, CLUSTER, 128, fp8=False)
    chosen = fastest(uses, TARGET, CLUSTER, fp8=False)
    share = utilisation(TARGET, chosen.layout, CLUSTER, fp8=False).mfu
    for use in uses:
        if use.is_usable and use.layout.recompute == "selective":
            other = utilisation(TARGET, use.layout, CLUSTER, fp8=False).mfu
            assert other <= share / 0.97
