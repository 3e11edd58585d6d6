"""The Megatron-Core backend agrees with the reference, on a CPU through Megatron-Core's own layers.

A CPU cannot test TransformerEngine's layers, fp8, NVIDIA's generators, speed or memory.
"""

import math
import subprocess
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from autoresearch.errors import SpecError
from tests.support import megatron_on_cpu
from tests.support.configs import CHOICES
from tests.support.corpora import write_corpus
from tests.support.gpts import CPU, VOCAB, batch, stirred
from tests.support.gpts import build as build_ours
from tests.support.gpts import recipe as small
from tests.support.megatron_on_cpu import QUIET, Measured, build, measure, needs_megatron, one_rank
from tests.support.places import ROOT
from tests.support.programs import finished
from tests.support.recipes import PARTS
from tests.support.stub_cuda import build_stub, make_machine
from tests.support.trials import trial_spec
from trainer.backends import Backend
from trainer.backends.compilation import load_kernels
from trainer.backends.megatron import MegatronBackend, imported
from trainer.backends.optimizer import AdamW, RateMultiples, optimizer_of
from trainer.backends.torch_gpt import TorchBackend, TorchGPT
from trainer.executors.local import LocalExecutor
from trainer.memory.parts import parameter_count
from trainer.schema import Budget, Config

pytestmark = QUIET


@pytest.fixture
def on_cpu(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with one_rank(monkeypatch):
        yield


def as_megatron(source: TorchGPT) -> dict[str, Tensor]:
    from trainer.backends import megatron_recipe

    return dict(megatron_recipe.as_megatron(source, fused_norms=False))


def gradients(model: Any) -> dict[str, Tensor]:
    """Return the gradients by Megatron-Core's names."""
    if not isinstance(model, TorchGPT):
        return {name: p.main_grad for name, p in model.gpt.named_parameters()}
    holder = TorchGPT(model.config, VOCAB, CPU)
    with torch.no_grad():
        for held, parameter in zip(holder.parameters(), model.parameters(), strict=True):
            assert parameter.grad is not None
            held.copy_(parameter.grad)
    return as_megatron(holder)


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
def test_the_same_weights_give_equal_logits_scores_and_gradients(changes: dict[str, Any]) -> None:
    """They agree within 2e-5 of the largest logit and 1e-4 of each gradient's largest entry, in
    fp32."""
    recipe = small(**changes)
    source, model = stirred(build_ours(**changes)), build(recipe)
    with torch.no_grad():
        for name, weight in as_megatron(source).items():
            model.gpt.get_parameter(name).copy_(weight)
    tokens_BT, targets_BT = batch()
    ours, theirs = source.logits(tokens_BT), model.logits(tokens_BT)
    assert ours.std() > 0.3 * recipe.width_factor
    assert (ours - theirs).abs().max() < 2e-5 * ours.abs().max()
    loss, expected_loss = model(tokens_BT, targets_BT), source(tokens_BT, targets_BT)
    torch.testing.assert_close(loss, expected_loss, rtol=1e-5, atol=2e-5)
    loss.backward()
    expected_loss.backward()
    found, expected = gradients(model), gradients(source)
    assert found.keys() == expected.keys()
    for name, gradient in expected.items():
        assert gradient.abs().max() > 0
        assert (found[name] - gradient).abs().max() < 1e-4 * gradient.abs().max(), name
    with torch.inference_mode():
        nll_BT, expected_BT = (one.eval()(tokens_BT, targets_BT) for one in (model, source))
        log_p = model.logits(tokens_BT).double().log_softmax(-1)
    own_BT = -log_p.gather(-1, targets_BT[..., None]).squeeze(-1)
    torch.testing.assert_close(nll_BT, own_BT, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(nll_BT, expected_BT, rtol=1e-5, atol=5e-5)


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
        with torch.inference_mode():
            return model.eval()(tokens_BT, targets_BT), gradients(model)

    exact_BT, exact = scored(TorchBackend(), exact_recipe)
    reference_BT, reference = scored(TorchBackend(), recipe)
    ours_BT, ours = scored(MegatronBackend(), recipe)
    assert not torch.equal(ours_BT, exact_BT)
    assert (ours_BT - exact_BT).abs().max() < 2 * (reference_BT - exact_BT).abs().max() + 1e-3
    for name, gradient in exact.items():
        assert ours[name].dtype is torch.float32
        rounding = (reference[name] - gradient).norm()
        assert (ours[name] - gradient).norm() < 2 * rounding + 0.01 * gradient.norm(), name


@pytest.mark.usefixtures("on_cpu")
@pytest.mark.parametrize("tied", [True, False])
def test_words_that_no_text_has_are_in_the_matrices_and_in_no_number(tied: bool) -> None:
    """Padding rows do not matter even if their weights are large."""
    recipe = small(precision="bf16", tie_embeddings=tied, weight_decay=0.1)
    model = build(recipe)
    words = ("embedding.word_embeddings.weight", "output_layer.weight")
    tables = [p for n, p in model.gpt.named_parameters() if n in words]
    assert [table.shape for table in tables] == [(384, 32)] * (1 if tied else 2)
    filling = len(tables) * (384 - VOCAB) * 32
    # The parameter count that a result reports.
    assert parameter_count(recipe, VOCAB) == sum(p.numel() for p in model.parameters()) - filling
    tokens_BT, targets_BT = batch()
    quiet = model(tokens_BT, targets_BT)
    for table in tables:
        assert not table[VOCAB:].any()
        table.data[VOCAB:] = 30.0
    loud = model(tokens_BT, targets_BT)
    torch.testing.assert_close(quiet, loud, rtol=1e-6, atol=0)
    loud.backward()
    for table in tables:
        assert table.main_grad[:VOCAB].any()
        assert not table.main_grad[VOCAB:].any()


class FusedNormLinear(nn.Module):
    """Linear layer that, like TransformerEngine's, reads its norm's bias even if it has none."""

    def __init__(self) -> None:
        super().__init__()
        self.layer_norm_weight = nn.Parameter(torch.full((8,), 1.5))
        self.layer_norm_bias = nn.Parameter(torch.full((8,), math.nan))

    def forward(self, x_ND: Tensor) -> Tensor:
        return nn.functional.layer_norm(x_ND, (8,), self.layer_norm_weight, self.layer_norm_bias)


@pytest.mark.usefixtures("on_cpu")
def test_no_norm_keeps_a_bias_to_train() -> None:
    from trainer.backends.megatron_recipe import remove_norm_biases

    model = nn.Sequential(FusedNormLinear(), nn.LayerNorm(8), nn.RMSNorm(8))
    remove_norm_biases(model)
    assert [name for name, _ in model.named_parameters()] == [
        "0.layer_norm_weight",
        "1.weight",
        "2.weight",
    ]
    x_ND = torch.randn(5, 8)
    torch.testing.assert_close(model[0](x_ND), 1.5 * nn.functional.layer_norm(x_ND, (8,)))


@pytest.mark.usefixtures("on_cpu")
def test_filling_up_a_sequence_for_fp8_changes_no_score() -> None:
    """On this machine the products are bf16; the padding is the same."""
    plain = build(small(precision="bf16")).eval()
    from trainer.backends.megatron_gpt import MegatronGPT

    filling = MegatronGPT(small(precision="fp8"), VOCAB, CPU, engine=False).eval()
    filling.gpt.load_state_dict(plain.gpt.state_dict())
    tokens_BT, targets_BT = batch(rows=2, length=5)
    with torch.inference_mode():
        nll_BT = filling(tokens_BT, targets_BT)
        torch.testing.assert_close(nll_BT, plain(tokens_BT, targets_BT), rtol=5e-3, atol=0)
    assert nll_BT.shape == (2, 5)


# --- the optimizer ------------------------------------------------------------------------------


@pytest.mark.usefixtures("on_cpu")
@pytest.mark.parametrize("mup", [{}, {"mup_base_width": 8, "tie_embeddings": False}], ids=str)
def test_megatron_s_optimizer_takes_the_steps_of_ours(mup: dict[str, Any]) -> None:
    """On the same gradients the updates are equal: clipped, decayed on matrices only, at the rates
    of a parametrization, with fp32 copies of bf16 weights."""
    recipe = small(precision="bf16", weight_decay=0.3, grad_clip=0.05, **mup)
    model = build(recipe)
    optimizer = optimizer_of(model, recipe)
    named = dict(model.gpt.named_parameters())
    copies = {name: nn.Parameter(p.detach().float()) for name, p in named.items()}
    matrices = [p for name, p in copies.items() if ".layers." in name and p.dim() > 1]
    ours = AdamW(
        copies.values(),
        betas=(recipe.beta1, recipe.beta2),
        weight_decay=0.3,
        grad_clip=recipe.grad_clip,
        own_rates=dict.fromkeys(matrices, RateMultiples(0.25, 0.25)) if mup else None,
    )
    tokens_BT, targets_BT = batch()
    for step in range(1, 6):
        loss = model(tokens_BT, targets_BT)
        loss.backward()
        for name, parameter in named.items():
            assert parameter.grad is None
            if mup:  # small enough for epsilon to matter
                parameter.main_grad.mul_(1e-7)
            copies[name].grad = parameter.main_grad.clone()
        norm = optimizer.step(loss, 1e-3 * step)
        torch.testing.assert_close(norm, ours.step(loss, 1e-3 * step))
        assert mup or norm > 2 * recipe.grad_clip
        for name, parameter in named.items():
            assert parameter.dtype is torch.bfloat16
            torch.testing.assert_close(parameter.main_param, copies[name], rtol=2e-6, atol=1e-7)
            assert torch.equal(parameter, parameter.main_param.bfloat16())
            assert not parameter.main_grad.any()


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


@pytest.mark.slow
@pytest.mark.usefixtures("on_cpu")
@pytest.mark.parametrize(
    ("recipe", "tolerance"),
    [
        ({"activation": "swiglu", "norm": "rmsnorm", "positions": "rotary"}, 1e-4),
        ({"precision": "bf16", "weight_decay": 0.1}, 1e-2),
    ],
)
def test_trials_end_as_ours_do(tmp_path: Path, recipe: dict[str, Any], tolerance: float) -> None:
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


# --- refusals -----------------------------------------------------------------------------------


@pytest.mark.slow
def test_choosing_and_checking_import_nothing_of_megatron() -> None:
    code = (
        "import sys, torch\n"
        "from tests.support.configs import config\n"
        "from trainer.backends.megatron import MegatronBackend\n"
        "from autoresearch.errors import SpecError\n"
        "try: MegatronBackend().check(config(), torch.device('cpu'))\n"
        "except SpecError: pass\n"
        "sys.exit(any(m.split('.')[0] in ('megatron', 'transformer_engine') for m in sys.modules))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.parametrize(
    ("changes", "device"),
    [
        ({"norm_place": "output"}, "cuda"),
        ({"mup_base_depth": 1}, "cuda"),
        ({"precision": "bf16"}, "cpu"),
        ({"precision": "fp8"}, "cpu"),
    ],
)
def test_what_it_cannot_train_is_refused(changes: dict[str, Any], device: str) -> None:
    with pytest.raises(SpecError):
        MegatronBackend().check(small(**changes), torch.device(device))


@pytest.mark.usefixtures("on_cpu")
def test_fp8_is_never_quietly_something_else() -> None:
    with pytest.raises(SpecError):
        build(small(precision="fp8"))


# --- with TransformerEngine -----------------------------------------------------------------------


@pytest.mark.usefixtures("on_cpu")
@pytest.mark.parametrize("changes", [{}, {"activation": "swiglu"}, {"precision": "fp8"}], ids=str)
def test_its_fusions_are_options_of_megatron_core_and_on(changes: dict[str, Any]) -> None:
    """Whatever this version's own config class would refuse is refused here."""
    imported()
    from trainer.backends.megatron_recipe import transformer_config

    recipe = small(**{"precision": "bf16", **changes})
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message=".*cross entropy")  # 0.18 warns of an unstable one
        options = transformer_config(recipe, CPU, engine=True)
    assert options.masked_softmax_fusion
    assert options.bias_dropout_fusion
    assert options.cross_entropy_loss_fusion
    assert options.bias_activation_fusion == (recipe.activation == "swiglu")
    if recipe.precision == "fp8":  # the published recipe
        assert (options.fp8, options.fp8_recipe) == ("hybrid", "delayed")
        assert (options.fp8_amax_history_len, options.fp8_amax_compute_algo) == (16, "max")


@pytest.mark.usefixtures("on_cpu")
def test_its_layers_add_gradients_to_the_buffers_themselves() -> None:
    imported()
    from trainer.backends.megatron_recipe import fuse_gradients

    product = FusedNormLinear()
    product.fuse_wgrad_accumulation = False
    fuse_gradients(nn.Sequential(product, nn.Linear(2, 2)))
    assert product.fuse_wgrad_accumulation


@pytest.mark.usefixtures("on_cpu")
def test_a_warm_up_leaves_no_gradient_behind() -> None:
    model = build(small(precision="bf16"))
    before = [p.main_param.clone() for p in model.parameters() if hasattr(p, "main_param")]
    load_kernels(model, batch())
    assert all(not p.main_grad.any() for p in model.parameters())
    after = [p.main_param for p in model.parameters() if hasattr(p, "main_param")]
    assert all(torch.equal(one, other) for one, other in zip(before, after, strict=True))


# --- before the fork ------------------------------------------------------------------------------

ENGINE = {
    "starts no CUDA": "",
    "starts CUDA": 'import ctypes; ctypes.CDLL("libcuda.so.1").cuInit(0)',
    "fails": 'raise TypeError("unexpected keyword argument")',
}


@needs_megatron
@pytest.mark.slow
@pytest.mark.parametrize("engine", ENGINE)
def test_its_imports_come_before_the_fork_if_they_leave_cuda_alone(
    engine: str, tmp_path: Path
) -> None:
    """``autoresearch_engine`` stands in for TransformerEngine."""
    (tmp_path / "library").mkdir()
    (tmp_path / "autoresearch_engine.py").write_text(ENGINE[engine])
    machine = make_machine(build_stub(tmp_path / "library"), tmp_path / "machine")
    program = (
        "import sys\n"
        "from trainer.machine import cuda_driver, megatron_packages as packages\n"
        "packages.installed = lambda name: '1.0'\n"
        "packages._MODULES = ('autoresearch_engine', 'json.tool')\n"
        "try: packages.preload()\n"
        "except TypeError: pass\n"
        "print('json.tool' in sys.modules, cuda_driver.is_started())\n"
    )
    done = finished(
        sys.executable, "-c", program, cwd=ROOT,
        env={**machine.environ(), "PYTHONPATH": f"{ROOT}:{tmp_path}"},
    )  # fmt: skip
    assert done.stdout.split() == [str(engine == "starts no CUDA"), "False"], done.stderr
