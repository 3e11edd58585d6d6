"""A trial's details show the memory of the device that it ran on."""

import pytest

from tests.support.rows import iteration_row, ok, trial
from tests.support.trials import trial_spec
from trainer.schema import CommandOk, TrialFailed, TrialOk, parse_result
from trajectory.report.details import details_of

ON_HOST = CommandOk(score=1.0, train_s=1.0, setup_s=0.1, peak_mem_gib=0.5)
ON_GPU = ON_HOST.model_copy(update={"peak_gpu_mem_gib": 3.25, "gpu_util_pct": 50.0})
FAILED = TrialFailed(status="oom", message="out of GPU memory: …", peak_gpu_mem_gib=79.5)


@pytest.mark.parametrize(
    ("result", "peak_gpu_gib"), [(ON_HOST, None), (ON_GPU, 3.25), (FAILED, 79.5), (ok(4.2), None)]
)
def test_a_commands_gpu_memory_is_beside_the_hosts(
    result: CommandOk | TrialOk | TrialFailed, peak_gpu_gib: float | None
) -> None:
    config = trial_spec().gpt
    record = trial(1, config, 0, ok(4.2)).model_copy(update={"result": result})
    (shown,) = details_of(iteration_row(1, config, (record,)), config.said)["trials"]
    assert shown["peak_gpu_mem_gib"] == peak_gpu_gib
    assert shown["peak_mem_gib"] == result.peak_mem_gib


@pytest.mark.parametrize("result", [ON_HOST, ON_GPU, FAILED, ok(4.2)])
def test_what_is_unknown_is_left_out_of_a_row(result: CommandOk | TrialOk | TrialFailed) -> None:
    text = result.model_dump_json()
    names = {"peak_gpu_mem_gib", "gpu_util_pct"}
    known = {name for name in names if getattr(result, name, None) is not None}
    assert {name for name in names if f'"{name}"' in text} == known
    assert parse_result(text) == result
