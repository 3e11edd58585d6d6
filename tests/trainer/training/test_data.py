"""Test batches and the evaluation against computations that share nothing with them."""

import math
from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from autoresearch.errors import CorpusError
from tests.support.corpora import VOCAB_SIZE, byte_stream, prose
from tests.support.gpts import build, stirred
from trainer.backends.torch_gpt import TorchGPT
from trainer.training import scoring
from trainer.training.schedule import Batches
from trainer.training.scoring import evaluate

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


def test_a_batch_depends_on_seed_and_step_alone() -> None:
    whole = batches(seed=7)
    in_order = [whole(step)[0] for step in (1, 2, 3)]
    torch.manual_seed(123)
    np.random.seed(5)
    assert torch.equal(batches(seed=7)(3)[0], in_order[2])
    assert not torch.equal(in_order[0], in_order[1])
    assert not torch.equal(batches(seed=8)(1)[0], in_order[0])


def test_a_smaller_batch_reads_the_text_of_a_larger_one() -> None:
    small = batches()(5)[0]
    assert torch.equal(batches(batch_size=8)(5)[0][:4], small)
    longer = batches(seq_len=16)(5)[0]
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


def model_of(seq_len: int) -> TorchGPT:
    """Return a model away from the uniform start, where every mistake looks alike."""
    return stirred(build(n_layer=1, n_head=2, d_model=16, d_ff=32, seq_len=seq_len))


@pytest.mark.parametrize("seq_len", [16, 37, 128])
def test_bits_per_byte_equal_an_independent_computation(seq_len: int) -> None:
    model = model_of(seq_len)
    documents = [prose(700, seed=1), "Größe 学習 🙂".encode() * 9, prose(333, seed=2)]
    stream = byte_stream(documents)
    scored = evaluate(model, stream, seq_len=seq_len, vocab_size=VOCAB_SIZE)

    nll_nats = 0.0
    scored_once = 0
    for start in range(0, len(stream) - 1, seq_len):
        context = stream[start : min(start + seq_len, len(stream) - 1)].astype(np.int64)
        with torch.no_grad():
            logits = model.logits(torch.tensor(context)[None])[0].double().tolist()
        for offset, row in enumerate(logits):
            largest = max(row)
            log_sum = largest + math.log(math.fsum(math.exp(x - largest) for x in row))
            nll_nats += log_sum - row[int(stream[start + offset + 1])]
            scored_once += 1
    text_bytes = sum(map(len, documents))
    assert scored.tokens == scored_once == text_bytes + len(documents) - 1
    expected = nll_nats / (math.log(2) * text_bytes)
    assert scored.bits_per_byte(text_bytes) == pytest.approx(expected, rel=1e-9)
    assert scored.bits_per_token * scored.tokens == pytest.approx(expected * text_bytes, rel=1e-9)


class Exact(nn.Module):
    """Model in float64, so that only the evaluation's own arithmetic can differ."""

    def __init__(self) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(9)
        self.table_VV = nn.Parameter(
            torch.randn(VOCAB_SIZE, VOCAB_SIZE, generator=generator, dtype=torch.float64)
        )

    def forward(self, tokens_BT: Tensor, targets_BT: Tensor) -> Tensor:
        log_p = self.table_VV.log_softmax(-1)
        return -log_p[tokens_BT, targets_BT]


@given(
    length=st.integers(2, 300),
    seq_len=st.integers(1, 320),
    per_pass=st.sampled_from([1, 7, 64, 4096]),
)
@settings(max_examples=20)
def test_the_sum_is_exact_whatever_the_windows(length: int, seq_len: int, per_pass: int) -> None:
    stream = np.random.default_rng(length).integers(0, VOCAB_SIZE, length).astype("<u2")
    model = Exact()
    log_p = model.table_VV.detach().log_softmax(-1).numpy()
    expected = -math.fsum(log_p[a, b] for a, b in pairwise(stream))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(scoring, "TOKENS_PER_PASS", per_pass)
        scored = evaluate(model, stream, seq_len=seq_len, vocab_size=VOCAB_SIZE)
    assert scored.tokens == length - 1
    assert scored.nll_nats == pytest.approx(expected, rel=1e-12)


def test_a_pass_is_bounded_by_the_vocabulary_too(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[int] = []

    class Spy(Exact):
        def forward(self, tokens_BT: Tensor, targets_BT: Tensor) -> Tensor:
            seen.append(tokens_BT.numel())
            return super().forward(tokens_BT, targets_BT)

    monkeypatch.setattr(scoring, "LOGITS_PER_PASS", 50 * VOCAB_SIZE)
    evaluate(Spy(), byte_stream([prose(1000)]), seq_len=16, vocab_size=VOCAB_SIZE)
    assert max(seen) == 48


def test_a_gpus_passes_are_large_and_bounded_where_all_logits_are_held() -> None:
    cpu, cuda = torch.device("cpu"), torch.device("cuda")
    chunked, whole = model_of(16), Exact()
    assert scoring.tokens_per_pass(chunked, cuda, 50_257) == 16_384
    assert scoring.tokens_per_pass(whole, cuda, 50_257) == (1 << 28) // 50_257
    assert scoring.tokens_per_pass(whole, cuda, 1024) == 16_384
    for model in (chunked, whole):
        assert scoring.tokens_per_pass(model, cpu, 50_257) == 4096
