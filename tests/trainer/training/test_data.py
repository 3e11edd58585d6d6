"""Batches are drawn by seed from the whole split, with targets one to the right."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from autoresearch.errors import CorpusError
from trainer.training.schedule import Batches

STREAM = np.arange(1000, dtype="<u2")


def batches(
    seed: int = 1, batch_size: int = 4, seq_len: int = 8, stream: np.ndarray = STREAM
) -> Batches:
    return Batches(
        stream, seed=seed, batch_size=batch_size, seq_len=seq_len, device=torch.device("cpu")
    )


def test_targets_are_the_next_tokens() -> None:
    tokens_BT, targets_BT = batches()(1)
    assert tokens_BT.shape == targets_BT.shape == (4, 8)
    assert tokens_BT.dtype == targets_BT.dtype == torch.int64
    assert torch.equal(tokens_BT + 1, targets_BT)
    assert torch.equal(tokens_BT[:, 0] + 7, tokens_BT[:, 7])


def test_a_step_can_be_made_without_those_before_it() -> None:
    whole = batches()
    in_order = [whole(step)[0] for step in (1, 2, 3)]
    assert torch.equal(batches()(3)[0], in_order[2])
    assert not torch.equal(in_order[0], in_order[1])


def test_the_seed_decides_and_nothing_global_does() -> None:
    first = batches(seed=7)(1)[0]
    torch.manual_seed(123)
    np.random.seed(5)
    assert torch.equal(batches(seed=7)(1)[0], first)
    assert not torch.equal(batches(seed=8)(1)[0], first)


def test_a_smaller_batch_reads_the_text_of_a_larger_one() -> None:
    large = batches(batch_size=8, seq_len=8)(5)[0]
    small = batches(batch_size=4, seq_len=8)(5)[0]
    assert torch.equal(large[:4], small)
    longer = batches(batch_size=4, seq_len=16)(5)[0]
    # The same relative starts, in a split that has 8 fewer of them.
    assert (longer[:, 0] - small[:, 0]).abs().max() <= 8


def test_every_position_of_the_split_is_drawn() -> None:
    few = np.arange(12, dtype=np.uint8)
    source = batches(seq_len=4, stream=few)
    starts = {int(s) for step in range(1, 100) for s in source(step)[0][:, 0]}
    assert starts == set(range(8))  # 12 tokens hold a window of 4 and its last target 8 times


def test_a_split_too_short_for_one_sequence_is_refused() -> None:
    with pytest.raises(CorpusError):
        batches(seq_len=8, stream=STREAM[:8])
    assert batches(seq_len=8, stream=STREAM[:9])(1)[0][0].tolist() == list(range(8))
