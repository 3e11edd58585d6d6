"""The plan's statement on documents within a sequence agrees with Megatron-Core's own model."""

import contextlib
import sys
from collections.abc import Iterator

import pytest
import torch
from torch import Tensor, distributed

from tests.support.configs import config
from tests.support.megatron_on_cpu import needs_megatron, stand_in
from trainer.backends.megatron import MegatronBackend

pytestmark = [needs_megatron, pytest.mark.filterwarnings("ignore")]
VOCAB = 64


@pytest.fixture
def on_cpu(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with stand_in(monkeypatch):
        yield
    with contextlib.suppress(AssertionError, ValueError):
        distributed.destroy_process_group()
    sys.modules["megatron.core.parallel_state"].destroy_model_parallel()


def logits(positions: str, position_ids: Tensor) -> Tensor:
    recipe = config(
        n_layer=2, n_head=4, d_model=32, d_ff=48, seq_len=16, precision="fp32", positions=positions
    )
    torch.manual_seed(0)
    model = MegatronBackend().build(recipe, VOCAB, torch.device("cpu"))
    tokens = torch.arange(16).remainder(VOCAB)[None]
    with torch.no_grad():
        seen = model.gpt(tokens, position_ids[None], None)
    assert isinstance(seen, Tensor)
    return seen


@pytest.mark.usefixtures("on_cpu")
@pytest.mark.parametrize(("positions", "are_read"), [("rotary", False), ("learned", True)])
def test_restarting_ids_are_read_by_learned_positions_alone(positions: str, are_read: bool) -> None:
    running = torch.arange(16)
    anew = torch.cat([torch.arange(8), torch.arange(8)])
    same = torch.equal(logits(positions, running), logits(positions, anew))
    assert same != are_read
