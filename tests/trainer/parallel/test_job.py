import pytest
from pydantic import ValidationError

from tests.support.configs import config
from trainer.parallel.job import SINGLE, Layout, ParallelJob
from trainer.spec import Config

TENSOR = Layout(name="tensor", tensor=2)


def job(of: Config, *layouts: Layout) -> ParallelJob:
    return ParallelJob(
        config=of, vocab_size=64, seed=0, steps=1, device="cpu", layouts=layouts, deadline_s=9
    )


@pytest.mark.parametrize(
    ("changes", "layout", "what"),
    [
        ({"n_kv_head": 1}, TENSOR, "n_kv_head 1"),
        ({"d_ff": 511}, TENSOR, "d_ff 511"),
        ({"n_layer": 3}, Layout(name="pipe", pipeline=2), "n_layer 3"),
        ({"batch_size": 3}, Layout(name="data", data=2), "batch_size 3"),
        ({"precision": "bf16"}, SINGLE, "bf16"),
    ],
)
def test_what_cannot_be_shared_or_compared_is_refused(
    changes: dict[str, object], layout: Layout, what: str
) -> None:
    with pytest.raises(ValidationError, match=what):
        job(config(**{"precision": "fp32"} | changes), layout)


@pytest.mark.parametrize(
    "axes",
    [
        {"tensor": 2, "data": 2},
        {"pipeline": 2, "data": 2},
        {"pipeline": 3},
        {"averaged": False},
        {"data": 2, "sharded": True, "averaged": False},
    ],
)
def test_impossible_layouts_are_refused(axes: dict[str, int]) -> None:
    with pytest.raises(ValidationError):
        Layout(name="impossible", **axes)


def test_one_job_has_one_world_size() -> None:
    with pytest.raises(ValidationError):
        job(config(precision="fp32"), SINGLE, TENSOR)
