"""The Megatron-Core backend agrees with the reference, on a CPU through Megatron-Core's own layers.

A CPU cannot test TransformerEngine's layers, fp8, NVIDIA's generators, speed or memory.
"""

from __future__ import annotations

import contextlib
import math
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, distributed, nn

from autoresearch.errors import MachineryError, SpecError
from tests.support import megatron_on_cpu
from tests.support.configs import PAIRWISE, config
from tests.support.corpora import write_corpus
from tests.support.megatron_on_cpu import Measured, measure, needs_megatron, stand_in
from tests.support.recipes import PARTS
from tests.support.trials import trial_spec
from trainer.backends import Backend
from trainer.backends.megatron.backend import MegatronBackend, Trio, _check_fp8, check_trio
from trainer.backends.megatron.weights import as_megatron, filled_up, load_from_torch
from trainer.backends.optimizer import AdamW, Rates, optimizer_of
from trainer.backends.torch_gpt import TorchBackend, TorchGPT
from trainer.executors.local import LocalExecutor
from trainer.memory.estimate import parameter_count
from trainer.spec import Budget, Config, Fp8Recipe
from trainer.training.kernel_check import checking_kernels
from trainer.training.train import TrialStopped

CPU = torch.device("cpu")
VOCAB = 257

pytestmark = [
    pytest.mark.filterwarnings("ignore:.*tp_group is None:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:full scope is deprecated:UserWarning"),
    pytest.mark.filterwarnings("ignore:MLP requires ffn_hidden_size:DeprecationWarning"),
]


@pytest.fixture
def on_cpu(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    threads = torch.get_num_threads()
    # Each call does so little that on a busy machine a second thread only adds waiting.
    torch.set_num_threads(1)
    with stand_in(monkeypatch):
        yield
    torch.set_num_threads(threads)
    with contextlib.suppress(AssertionError, ValueError):
        distributed.destroy_process_group()
    parallel_state = sys.modules["megatron.core.parallel_state"]
    parallel_state.destroy_model_parallel()


def _told(changes: dict[str, Any]) -> bool:
    return not {"norm_place", "mup_base_depth"} & changes.keys()


def small(**changes: Any) -> Config:
    tiny = {"n_layer": 2, "n_head": 4, "d_model": 32, "d_ff": 48, "batch_size": 4, "seq_len": 16}
    return config(**{**tiny, "precision": "fp32", **changes})


def choice(activation: str, norm: str, positions: str, tied: bool, **changes: Any) -> Config:
    return small(
        activation=activation, norm=norm, positions=positions, tie_embeddings=tied, **changes
    )


def build(recipe: Config, vocab_size: int = VOCAB) -> Any:
    torch.manual_seed(0)
    return MegatronBackend().build(recipe, vocab_size, CPU)


def stirred(recipe: Config) -> TorchGPT:
    """Return the reference with large random weights.

    At the start attention is almost a mean and norms have unit gains, so errors would not show.
    """
    torch.manual_seed(4)
    source = TorchBackend().build(recipe, VOCAB, CPU)
    with torch.no_grad():
        for name, parameter in source.named_parameters():
            if parameter.dim() == 1:
                parameter.uniform_(0.5, 1.5)
            else:
                parameter.mul_(20 if name.endswith("qkv_RD") else 5)
    return source


def batch(rows: int = 4, length: int = 16) -> tuple[Tensor, Tensor]:
    stream_BT = torch.randint(VOCAB, (rows, length + 1), generator=torch.Generator().manual_seed(5))
    return stream_BT[:, :-1], stream_BT[:, 1:]


# --- parity --------------------------------------------------------------------------------------


@needs_megatron
@pytest.mark.usefixtures("on_cpu")
@pytest.mark.parametrize(("activation", "norm", "positions", "tied"), PAIRWISE)
def test_the_same_weights_give_the_same_logits_and_gradients(
    activation: str, norm: str, positions: str, tied: bool
) -> None:
    agree(choice(activation, norm, positions, tied))


@needs_megatron
@pytest.mark.usefixtures("on_cpu")
@pytest.mark.parametrize("n_kv_head", [1, 2])
@pytest.mark.parametrize("positions", ["learned", "rotary"])
def test_grouped_queries_are_the_same_in_both(n_kv_head: int, positions: str) -> None:
    agree(small(n_kv_head=n_kv_head, positions=positions))


@needs_megatron
@pytest.mark.usefixtures("on_cpu")
@pytest.mark.parametrize("changes", [c for c in PARTS if _told(c)], ids=str)
def test_parts_that_megatron_s_layers_can_be_told_are_the_same_in_both(
    changes: dict[str, Any],
) -> None:
    agree(small(**changes))


def agree(recipe: Config) -> None:
    """Check agreement within 2e-5 of the largest logit and 1e-4 of each gradient's largest entry,
    in fp32."""
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


@needs_megatron
@pytest.mark.usefixtures("on_cpu")
@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize(
    ("diverged", "stopped"), [(False, MachineryError), (True, TrialStopped)], ids=["nan", "config"]
)
def test_a_nan_of_megatron_s_operators_is_told_from_a_config_that_diverges(
    diverged: bool, stopped: type[Exception], precision: str
) -> None:
    recipe = small(precision=precision, seq_len=32, lr=2.0 if diverged else 0.001)
    model = build(recipe)
    if diverged:
        with torch.no_grad():
            next(model.gpt.parameters()).fill_(math.inf)
    else:
        model.gpt.decoder.register_forward_hook(lambda _module, _inputs, out: out * math.nan)
    with pytest.raises(stopped), checking_kernels(model, lambda _step: batch(length=32)):
        raise TrialStopped("nonfinite", "the loss is not finite", steps=3)


@needs_megatron
@pytest.mark.usefixtures("on_cpu")
@pytest.mark.parametrize("length", [1, 7, 16])
def test_evaluation_is_of_the_logits_in_double_precision(length: int) -> None:
    recipe = small(positions="rotary")
    source, model = stirred(recipe), build(recipe)
    load_from_torch(model.gpt, source)
    source.eval()
    model.eval()
    tokens_BT, targets_BT = batch(3, length)
    with torch.inference_mode():
        nll_BT = model(tokens_BT, targets_BT)
        log_p = model.logits(tokens_BT).double().log_softmax(-1)
        expected_BT = source(tokens_BT, targets_BT)
    assert nll_BT.dtype is torch.float64
    own_BT = -log_p.gather(-1, targets_BT[..., None]).squeeze(-1)
    torch.testing.assert_close(nll_BT, own_BT, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(nll_BT, expected_BT, rtol=1e-5, atol=2e-5)


@needs_megatron
@pytest.mark.usefixtures("on_cpu")
@pytest.mark.parametrize(("activation", "norm", "positions", "tied"), PAIRWISE)
def test_bf16_is_as_close_to_fp32_as_the_reference_s(
    activation: str, norm: str, positions: str, tied: bool
) -> None:
    """Scores and whole gradients stay within twice the reference's own rounding error. Sequences of
    32 are long enough for the fused softmax, for which Megatron-Core would require Apex."""
    exact_recipe = choice(activation, norm, positions, tied, seq_len=32)
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


# --- the contract of a backend -------------------------------------------------------------------


@needs_megatron
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


# --- the vocabulary ------------------------------------------------------------------------------


def test_a_vocabulary_is_filled_up_to_a_multiple_of_128() -> None:
    assert [filled_up(words) for words in (1, 128, 257, 50_257)] == [128, 128, 384, 50_304]


@needs_megatron
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


@needs_megatron
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


# --- main weights --------------------------------------------------------------------------------


@needs_megatron
@pytest.mark.usefixtures("on_cpu")
def test_megatron_s_optimizer_takes_the_steps_of_ours() -> None:
    """On the same gradients the updates are equal: clipped, decayed on matrices only, with fp32
    copies of bf16 weights."""
    recipe = small(precision="bf16", weight_decay=0.3, grad_clip=0.05)
    model = build(recipe)
    optimizer = optimizer_of(model, recipe)
    assert not isinstance(optimizer, AdamW)
    parameters = list(model.parameters())
    copies = [nn.Parameter(p.detach().float()) for p in parameters]
    ours = AdamW(
        copies, betas=(recipe.beta1, recipe.beta2), weight_decay=0.3, grad_clip=recipe.grad_clip
    )
    tokens_BT, targets_BT = batch()
    for step in range(1, 6):
        loss = model(tokens_BT, targets_BT)
        loss.backward()
        for parameter, copy in zip(parameters, copies, strict=True):
            assert parameter.grad is None
            copy.grad = parameter.main_grad.clone()
        norm = optimizer.step(loss, 1e-3 * step)
        torch.testing.assert_close(norm, ours.step(loss, 1e-3 * step))
        assert norm > 2 * recipe.grad_clip
        for parameter, copy in zip(parameters, copies, strict=True):
            assert parameter.dtype is torch.bfloat16
            assert parameter.main_param.dtype is torch.float32
            torch.testing.assert_close(parameter.main_param, copy, rtol=2e-6, atol=1e-7)
            assert torch.equal(parameter, parameter.main_param.bfloat16())
            assert not parameter.main_grad.any()


@needs_megatron
@pytest.mark.usefixtures("on_cpu")
def test_megatron_s_optimizer_has_the_rates_of_a_parametrisation_too() -> None:
    """The blocks' matrices train at a quarter of the rate and epsilon. The gradients are small
    enough for epsilon to matter."""
    recipe = small(precision="bf16", weight_decay=0.3, mup_base_width=8, tie_embeddings=False)
    model = build(recipe)
    optimizer = optimizer_of(model, recipe)
    named = dict(model.gpt.named_parameters())
    copies = {name: nn.Parameter(p.detach().float()) for name, p in named.items()}
    ours = AdamW(
        copies.values(),
        betas=(recipe.beta1, recipe.beta2),
        weight_decay=0.3,
        grad_clip=1.0,
        own_rates={
            p: Rates(0.25, 0.25) for name, p in copies.items() if ".layers." in name and p.dim() > 1
        },
    )
    generator = torch.Generator().manual_seed(6)
    for _ in range(3):
        for name, parameter in named.items():
            copies[name].grad = 2e-8 * torch.randn(parameter.shape, generator=generator)
            parameter.main_grad.copy_(copies[name].grad)
        optimizer.step(torch.zeros(()), 1e-2)
        ours.step(torch.zeros(()), 1e-2)
    for name, parameter in named.items():
        torch.testing.assert_close(
            parameter.main_param, copies[name], rtol=2e-6, atol=1e-7, msg=name
        )


@pytest.mark.slow
@needs_megatron
@pytest.mark.usefixtures("on_cpu")
def test_steps_below_bf16_s_grid_add_up() -> None:
    recipe = small(precision="bf16")
    model = build(recipe)
    optimizer = optimizer_of(model, recipe)
    gain = next(p for p in model.parameters() if p.dim() == 1)
    tokens_BT, targets_BT = batch()
    seen = []
    for _ in range(60):
        loss = model(tokens_BT, targets_BT)
        loss.backward()
        optimizer.step(loss, 2e-4)
        seen.append(gain.detach().clone())
    # A gain of 1 moves by 2e-4 at most; its neighbors in bf16 are 0.0039 and 0.0078 away.
    assert torch.equal(seen[0], torch.ones_like(gain))
    assert not torch.equal(seen[-1], torch.ones_like(gain))


@needs_megatron
@pytest.mark.usefixtures("on_cpu")
@pytest.mark.parametrize("broken", ["loss", "gradient"])
def test_nothing_is_updated_from_the_first_step_that_is_not_finite_on(broken: str) -> None:
    recipe = small(precision="bf16")
    model = build(recipe)
    optimizer = optimizer_of(model, recipe)
    tokens_BT, targets_BT = batch()
    before = [p.main_param.clone() for p in model.parameters()]
    for step in range(3):
        loss = model(tokens_BT, targets_BT)
        loss.backward()
        if step == 0 and broken == "gradient":
            next(model.parameters()).main_grad[0, 0] = math.inf
        told = loss * math.nan if step == 0 and broken == "loss" else loss
        norm = optimizer.step(told, 1e-3)
        assert norm.isfinite() == (step > 0 or broken == "loss")
    for parameter, weights in zip(model.parameters(), before, strict=True):
        assert torch.equal(parameter.main_param, weights)
        assert torch.equal(parameter, weights.bfloat16())


# --- weights -------------------------------------------------------------------------------------


@needs_megatron
@pytest.mark.usefixtures("on_cpu")
def test_weights_of_another_recipe_are_refused() -> None:
    model = build(small(tie_embeddings=False))
    with pytest.raises(ValueError, match=r"nothing to load into .*output_layer\.weight"):
        load_from_torch(model.gpt, stirred(small(tie_embeddings=True)))
    with pytest.raises(ValueError, match=r"position_embeddings\.weight, \(8, 32\) here"):
        load_from_torch(model.gpt, stirred(small(seq_len=8)))


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


@needs_megatron
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


# --- a whole trial -------------------------------------------------------------------------------


@pytest.mark.slow
@needs_megatron
@pytest.mark.usefixtures("on_cpu")
@pytest.mark.parametrize(
    ("recipe", "tolerance"),
    [
        ({}, 1e-4),
        ({"activation": "swiglu", "norm": "rmsnorm", "positions": "rotary"}, 1e-4),
        ({"precision": "bf16", "weight_decay": 0.1}, 1e-2),
    ],
)
def test_a_trial_of_the_same_seed_ends_at_the_reference_s_val_bpb(
    tmp_path: Path, recipe: dict[str, Any], tolerance: float
) -> None:
    backend = MegatronBackend()
    corpus = write_corpus(tmp_path / "corpus")
    spec = trial_spec(
        corpus.directory, config=small(lr=1e-2, **recipe), budget=Budget(amount=30), threads=1
    )
    ours, theirs = measure(TorchBackend(), spec), measure(backend, spec)
    assert theirs.loss_first == pytest.approx(ours.loss_first, rel=tolerance)
    assert theirs.val_bpb == pytest.approx(ours.val_bpb, rel=tolerance)
    assert theirs.loss_last < theirs.loss_first - 1
    assert measure(backend, spec) == theirs


@pytest.mark.slow
@needs_megatron
def test_a_trial_in_the_sandbox_needs_no_network(tmp_path: Path) -> None:
    corpus = write_corpus(tmp_path / "corpus")
    recipe = small(precision="bf16")
    spec = trial_spec(corpus.directory, config=recipe, budget=Budget(amount=3), threads=1)
    with LocalExecutor(entry=megatron_on_cpu.ENTRY, allow_unsandboxed=True) as executor:
        executor.run(spec, tmp_path / "trial")
    told = (tmp_path / "trial" / megatron_on_cpu.MEASURED).read_text()
    measured = Measured.model_validate_json(told)
    assert measured.loss_first == pytest.approx(measure(TorchBackend(), spec).loss_first, rel=1e-3)


# --- refusals and imports ------------------------------------------------------------------------


@pytest.mark.slow
def test_choosing_and_checking_import_nothing_of_megatron() -> None:
    code = (
        "import sys, torch\n"
        "from tests.support.configs import PAIRWISE, config\n"
        "from trainer.backends.megatron.backend import MegatronBackend\n"
        "from autoresearch.errors import SpecError\n"
        "try: MegatronBackend().check(config(), torch.device('cpu'))\n"
        "except SpecError: pass\n"
        "sys.exit(any(m.split('.')[0] in ('megatron', 'transformer_engine') for m in sys.modules))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_a_cpu_is_refused_with_what_to_choose() -> None:
    backend = MegatronBackend()
    with pytest.raises(SpecError):
        backend.check(small(precision="bf16"), CPU)
    with pytest.raises(SpecError):
        backend.check(small(precision="fp8"), CPU)


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"norm_place": "output"}, "no norms for norm_place output; choose pre, or backend torch"),
        ({"norm_place": "sandwich"}, "no norms for norm_place sandwich; choose pre"),
        ({"mup_base_depth": 1}, "mup_base_depth / n_layer = 1 / 2; leave mup_base_depth out"),
    ],
)
def test_what_megatron_s_layers_cannot_be_told_is_refused(
    changes: dict[str, Any], told: str
) -> None:
    with pytest.raises(SpecError, match=told):
        MegatronBackend().check(small(**changes), torch.device("cuda"))


HOPPER = (9, 0)
WITH_ENGINE = Trio("2.13.0", "0.16.1", "2.11.0")
WITHOUT_ENGINE = Trio("2.13.0", "0.16.1", None)


def test_fp8_is_refused_where_it_cannot_run() -> None:
    recipe = small(precision="fp8")
    _check_fp8(recipe, WITH_ENGINE, HOPPER)
    _check_fp8(recipe, WITH_ENGINE, (12, 1))
    with pytest.raises(SpecError):
        _check_fp8(recipe, WITHOUT_ENGINE, HOPPER)
    with pytest.raises(SpecError):
        _check_fp8(recipe, WITH_ENGINE, (8, 0))
    for field, size in {"d_ff": 40, "d_model": 24, "seq_len": 24}.items():
        with pytest.raises(SpecError, match=f"multiples of 16, and {field} is {size}"):
            _check_fp8(small(precision="fp8", **{field: size}), WITH_ENGINE, HOPPER)


@needs_megatron
@pytest.mark.usefixtures("on_cpu")
def test_fp8_is_never_quietly_something_else() -> None:
    with pytest.raises(SpecError):
        build(small(precision="fp8"))


@needs_megatron
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


@needs_megatron
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


@pytest.mark.parametrize(
    ("megatron", "engine"),
    [("0.17.0", "2.9.0"), ("0.17.0rc0", "2.5"), ("0.17.1", "2.9.0.post1+cu13")],
)
def test_a_pair_known_to_fail_is_refused_with_one_that_works(megatron: str, engine: str) -> None:
    with pytest.raises(MachineryError) as refused:
        check_trio(Trio("2.13.0", megatron, engine))
    told = str(refused.value)
    assert "megatron-core 0.16.1 with transformer-engine 2.11" in told
    assert "0.17 with transformer-engine 2.14" in told


@pytest.mark.parametrize(
    ("megatron", "engine"),
    [
        ("0.16.1", "2.9.0"),
        ("0.16.1", None),
        ("0.17.0rc0", "2.14.0"),
        ("0.17.0", "2.10.0"),
        ("0.18.0", "2.9.0"),
    ],
)
def test_other_pairs_are_let_through(megatron: str, engine: str | None) -> None:
    check_trio(Trio("2.13.0", megatron, engine))


def test_what_is_missing_or_too_old_is_said_with_what_to_install() -> None:
    with pytest.raises(MachineryError):
        check_trio(Trio("2.13.0", None, "2.11.0"))
    with pytest.raises(MachineryError):
        check_trio(Trio("2.13.0", "0.15.3", None))
    with pytest.raises(MachineryError):
        check_trio(Trio("2.13.0", "dev", None))
