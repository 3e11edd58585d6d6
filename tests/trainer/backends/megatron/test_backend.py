"""The Megatron-Core backend agrees with the reference, on a CPU through Megatron-Core's own layers.

A CPU cannot test TransformerEngine's layers, fp8, NVIDIA's generators, speed or memory.
"""

import math
from typing import Any

import pytest
import torch
from torch import Tensor, distributed, nn

from tests.support.configs import PAIRWISE
from tests.support.megatron_on_cpu import CPU, QUIET, VOCAB, batch, build, small, stirred
from tests.support.recipes import PARTS
from trainer.backends import Backend
from trainer.backends.megatron.backend import MegatronBackend
from trainer.backends.megatron.weights import as_megatron, filled_up, load_from_torch
from trainer.backends.torch_gpt import TorchBackend, TorchGPT
from trainer.memory.estimate import parameter_count
from trainer.spec import Config, Fp8Recipe

pytestmark = QUIET
CHOICES = [
    {"activation": activation, "norm": norm, "positions": positions, "tie_embeddings": tied}
    for activation, norm, positions, tied in PAIRWISE
]


@pytest.mark.usefixtures("on_cpu")
@pytest.mark.parametrize(
    "changes",
    [
        *CHOICES,
        {"n_kv_head": 1},
        {"n_kv_head": 2, "positions": "rotary"},
        *(changes for changes in PARTS if not {"norm_place", "mup_base_depth"} & changes.keys()),
    ],
    ids=str,
)
def test_the_same_weights_give_the_same_logits_and_gradients(changes: dict[str, Any]) -> None:
    """They agree within 2e-5 of the largest logit and 1e-4 of each gradient's largest entry, in
    fp32."""
    recipe = small(**changes)
    source, model = stirred(recipe), build(recipe)
    load_from_torch(model.gpt, source)
    for ours, back in zip(source.parameters(), model.as_torch().parameters(), strict=True):
        assert torch.equal(ours, back)
    tokens_BT, targets_BT = batch()

    ours, theirs = source.logits(tokens_BT), model.logits(tokens_BT)
    assert ours.std() > 0.3 * recipe.width_factor
    assert (ours - theirs).abs().max() < 2e-5 * ours.abs().max()

    loss, expected_loss = model(tokens_BT, targets_BT), source(tokens_BT, targets_BT)
    assert (loss.dtype, loss.shape) == (torch.float32, ())
    torch.testing.assert_close(loss, expected_loss, rtol=1e-5, atol=2e-5)
    loss.backward()
    expected_loss.backward()
    expected = dict(as_megatron(source, fused_norms=False, gradients=True))
    parameters = dict(model.gpt.named_parameters())
    assert parameters.keys() == expected.keys()
    for name, gradient in expected.items():
        assert gradient.abs().max() > 0
        assert parameters[name].grad is not None, name
        difference = (parameters[name].grad - gradient).abs().max()
        assert difference < 1e-4 * gradient.abs().max(), name


@pytest.mark.usefixtures("on_cpu")
def test_evaluation_is_of_the_logits_in_double_precision() -> None:
    recipe = small(positions="rotary")
    source, model = stirred(recipe), build(recipe)
    load_from_torch(model.gpt, source)
    source.eval()
    model.eval()
    tokens_BT, targets_BT = batch(3, 7)
    with torch.inference_mode():
        nll_BT = model(tokens_BT, targets_BT)
        log_p = model.logits(tokens_BT).double().log_softmax(-1)
        expected_BT = source(tokens_BT, targets_BT)
    assert nll_BT.dtype is torch.float64
    own_BT = -log_p.gather(-1, targets_BT[..., None]).squeeze(-1)
    torch.testing.assert_close(nll_BT, own_BT, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(nll_BT, expected_BT, rtol=1e-5, atol=2e-5)


@pytest.mark.usefixtures("on_cpu")
@pytest.mark.parametrize("changes", CHOICES, ids=str)
def test_bf16_is_as_close_to_fp32_as_the_reference_s(changes: dict[str, Any]) -> None:
    """Scores and whole gradients stay within twice the reference's own rounding error. Sequences of
    32 are long enough for the fused softmax, for which Megatron-Core would require Apex."""
    exact_recipe = small(**changes, seq_len=32)
    recipe = exact_recipe.model_copy(update={"precision": "bf16"})
    tokens_BT, targets_BT = batch(length=32)

    def scored(backend: Backend, precise: Config) -> tuple[Tensor, dict[str, Tensor]]:
        torch.manual_seed(0)
        model: Any = backend.build(precise, VOCAB, CPU)
        loss = model(tokens_BT, targets_BT)
        assert loss.dtype is torch.float32
        loss.backward()
        if isinstance(model, TorchGPT):
            gradients = dict(as_megatron(model, fused_norms=False, gradients=True))
        else:
            # Accumulated in fp32 buffers if the weights are bf16.
            gradients = {
                n: getattr(p, "main_grad", p.grad) for n, p in model.gpt.named_parameters()
            }
        with torch.inference_mode():
            return model.eval()(tokens_BT, targets_BT), gradients

    exact_BT, exact = scored(TorchBackend(), exact_recipe)
    reference_BT, reference = scored(TorchBackend(), recipe)
    ours_BT, ours = scored(MegatronBackend(), recipe)
    assert not torch.equal(ours_BT, exact_BT)
    assert (ours_BT - exact_BT).abs().max() < 2 * (reference_BT - exact_BT).abs().max() + 1e-3
    assert ours.keys() == exact.keys()
    for name, gradient in exact.items():
        assert ours[name].dtype is torch.float32
        rounding = (reference[name] - gradient).norm()
        assert (ours[name] - gradient).norm() < 2 * rounding + 0.01 * gradient.norm(), name


@pytest.mark.usefixtures("on_cpu")
def test_one_rank_s_collectives_are_what_one_rank_s_collectives_must_be() -> None:
    build(small())
    assert distributed.get_world_size() == 1
    given = torch.tensor([3.0, -1.0])
    for operation in (distributed.ReduceOp.SUM, distributed.ReduceOp.MAX):
        reduced = given.clone()
        distributed.all_reduce(reduced, op=operation)
        assert torch.equal(reduced, given)
    gathered = torch.zeros(2)
    distributed.all_gather([gathered], given)
    assert torch.equal(gathered, given)
    distributed.broadcast(gathered, src=0)
    distributed.barrier()
    assert torch.equal(gathered, given)


def test_a_vocabulary_is_filled_up_to_a_multiple_of_128() -> None:
    assert [filled_up(words) for words in (1, 128, 257, 50_257)] == [128, 128, 384, 50_304]


@pytest.mark.usefixtures("on_cpu")
@pytest.mark.parametrize("tied", [True, False])
def test_words_that_no_text_has_are_in_the_matrices_and_in_no_number(tied: bool) -> None:
    """Padding rows do not matter even if their weights are large: a loss over them would be far
    off."""
    recipe = small(precision="bf16", tie_embeddings=tied, weight_decay=0.1)
    torch.manual_seed(0)
    model: Any = MegatronBackend().build(recipe, VOCAB, CPU)
    tables = [p for n, p in model.gpt.named_parameters() if n in WORD_TABLES]
    assert [table.shape for table in tables] == [(384, 32)] * (1 if tied else 2)
    filling = len(tables) * (384 - VOCAB) * 32
    # The parameter count that a result reports.
    assert parameter_count(recipe, VOCAB) == sum(p.numel() for p in model.parameters()) - filling
    tokens_BT, targets_BT = batch()
    quiet = model(tokens_BT, targets_BT), *_scores(model, tokens_BT, targets_BT)
    for table in tables:
        assert not table[VOCAB:].any()
        table.data[VOCAB:] = 30.0
    loud = model(tokens_BT, targets_BT), *_scores(model, tokens_BT, targets_BT)
    assert loud[1].shape == (4, 16, VOCAB)
    for before, after in zip(quiet, loud, strict=True):
        torch.testing.assert_close(before, after, rtol=1e-6, atol=0)
    loud[0].backward()
    for table in tables:
        gradient = getattr(table, "main_grad", table.grad)
        assert gradient[:VOCAB].any()
        assert not gradient[VOCAB:].any()


WORD_TABLES = ("embedding.word_embeddings.weight", "output_layer.weight")


@torch.no_grad()
def _scores(model: Any, tokens_BT: Tensor, targets_BT: Tensor) -> tuple[Tensor, Tensor]:
    scores = model.logits(tokens_BT), model.eval()(tokens_BT, targets_BT)
    model.train()
    return scores


@pytest.mark.usefixtures("on_cpu")
def test_masking_is_slicing_on_the_way_there_and_back() -> None:
    from trainer.backends.megatron.recipe import without

    def loss_and_gradient(masked: bool) -> tuple[Tensor, Tensor]:
        leaf_NW = torch.randn(6, 9, generator=torch.Generator().manual_seed(3), requires_grad=True)
        logits_NW = leaf_NW * 2
        seen = without(logits_NW, 7) if masked else logits_NW[:, :7]
        loss = nn.functional.cross_entropy(seen, torch.arange(6))
        loss.backward()
        assert leaf_NW.grad is not None
        return loss.detach(), leaf_NW.grad

    for masked, sliced in zip(loss_and_gradient(True), loss_and_gradient(False), strict=True):
        torch.testing.assert_close(masked, sliced, rtol=1e-6, atol=0)


def test_transformer_engine_s_names_are_those_of_norms_in_the_matrices_after_them() -> None:
    source = stirred(small(n_layer=1, positions="rotary"))
    names = {name for name, _ in as_megatron(source, fused_norms=True)}
    layer = "decoder.layers.0."
    assert names == {
        "embedding.word_embeddings.weight",
        layer + "self_attention.linear_qkv.layer_norm_weight",
        layer + "self_attention.linear_qkv.weight",
        layer + "self_attention.linear_proj.weight",
        layer + "mlp.linear_fc1.layer_norm_weight",
        layer + "mlp.linear_fc1.weight",
        layer + "mlp.linear_fc2.weight",
        "decoder.final_layernorm.weight",
    }


class FusedNormLinear(nn.Module):
    """Linear layer that, like TransformerEngine's, reads its norm's bias even if it has none."""

    def __init__(self) -> None:
        super().__init__()
        self.layer_norm_weight = nn.Parameter(torch.full((8,), 1.5))
        self.layer_norm_bias = nn.Parameter(torch.full((8,), math.nan))
        self.weight = nn.Parameter(torch.eye(8))

    def forward(self, x_ND: Tensor) -> Tensor:
        normed = nn.functional.layer_norm(x_ND, (8,), self.layer_norm_weight, self.layer_norm_bias)
        return nn.functional.linear(normed, self.weight)


@pytest.mark.usefixtures("on_cpu")
def test_no_norm_keeps_a_bias_to_train() -> None:
    from trainer.backends.megatron.recipe import remove_norm_biases

    model = nn.Sequential(FusedNormLinear(), nn.LayerNorm(8), nn.RMSNorm(8))
    remove_norm_biases(model)
    names = [name for name, _ in model.named_parameters()]
    assert names == ["0.layer_norm_weight", "0.weight", "1.weight", "2.weight"]
    x_ND = torch.randn(5, 8)
    y_ND = model[0](x_ND)
    y_ND.square().sum().backward()
    torch.testing.assert_close(y_ND, 1.5 * nn.functional.layer_norm(x_ND, (8,)))


@pytest.mark.usefixtures("on_cpu")
def test_the_fp8_recipe_reaches_megatron() -> None:
    from trainer.backends.megatron.recipe import transformer_config

    recipe = small(precision="fp8")
    plain = transformer_config(recipe, CPU, engine=False, fp8=Fp8Recipe(), dtype=torch.bfloat16)
    assert (plain.fp8, plain.fp8_recipe) == ("hybrid", "delayed")
    assert (plain.fp8_amax_history_len, plain.fp8_amax_compute_algo) == (16, "max")
    other = Fp8Recipe(format="e4m3", amax_history_len=4, amax_compute_algo="most_recent", margin=1)
    options = transformer_config(recipe, CPU, engine=False, fp8=other, dtype=torch.bfloat16)
    assert (options.fp8, options.fp8_margin) == ("e4m3", 1)
    assert (options.fp8_amax_history_len, options.fp8_amax_compute_algo) == (4, "most_recent")
    exact = transformer_config(small(), CPU, engine=False, fp8=other, dtype=torch.float32)
    assert exact.fp8 is None


@pytest.mark.usefixtures("on_cpu")
def test_filling_up_a_sequence_for_fp8_changes_no_score() -> None:
    """On this machine the products are bf16; the padding is the same."""
    from trainer.backends.megatron.gpt import MixedMegatronGPT

    recipe = small(precision="fp8")
    torch.manual_seed(0)
    build(small())
    filling = MixedMegatronGPT(recipe, VOCAB, CPU, engine=False, fp8=Fp8Recipe()).eval()
    plain = build(small(precision="bf16")).eval()
    filling.gpt.load_state_dict(plain.gpt.state_dict())
    seen: list[int] = []
    filling.gpt.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0].shape[1]))
    tokens_BT, targets_BT = batch(2, 5)
    with torch.inference_mode():
        nll_BT = filling(tokens_BT, targets_BT)
        torch.testing.assert_close(nll_BT, plain(tokens_BT, targets_BT), rtol=5e-3, atol=0)
    assert nll_BT.shape == (2, 5)
    assert seen == [16]
