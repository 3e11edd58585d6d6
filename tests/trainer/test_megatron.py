"""The Megatron-Core backend against the reference, on a CPU through Megatron-Core's own layers.

What a CPU cannot show: TransformerEngine's layers, fp8, NVIDIA's generators, speed and memory.
"""

from __future__ import annotations

import contextlib
import itertools
import math
import subprocess
import sys
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, distributed, nn

from tests.support import megatron_on_cpu
from tests.support.configs import config
from tests.support.corpora import write_corpus
from tests.support.megatron_on_cpu import Measured, measure, needs_megatron, stand_in
from tests.support.trials import trial_spec
from trainer.backends.megatron import MegatronBackend, _check_fp8
from trainer.backends.megatron_weights import as_megatron, load_from_torch
from trainer.backends.torch_gpt import TorchBackend, TorchGPT
from trainer.backends.versions import Trio, check_trio
from trainer.errors import MachineryError, SpecError
from trainer.spec import Budget, Config, Fp8Recipe
from trainer.supervisor import LocalExecutor

CPU = torch.device("cpu")
VOCAB = 257
CHOICES = list(
    itertools.product(
        ("gelu", "swiglu"), ("layernorm", "rmsnorm"), ("learned", "rotary"), (True, False)
    )
)

pytestmark = [
    pytest.mark.filterwarnings("ignore:.*tp_group is None:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:full scope is deprecated:UserWarning"),
    pytest.mark.filterwarnings("ignore:MLP requires ffn_hidden_size:DeprecationWarning"),
]


@pytest.fixture
def on_cpu(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    stand_in(monkeypatch)
    yield
    with contextlib.suppress(AssertionError, ValueError):
        distributed.destroy_process_group()
    parallel_state = sys.modules["megatron.core.parallel_state"]
    parallel_state.destroy_model_parallel()


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
    """The reference far from its calm start, where attention is almost a mean, norms have unit
    gains and mistakes look alike."""
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
@pytest.mark.parametrize(("activation", "norm", "positions", "tied"), CHOICES)
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


def agree(recipe: Config) -> None:
    """To 2e-5 of the largest logit and 1e-4 of each gradient's largest entry, in fp32."""
    source, model = stirred(recipe), build(recipe)
    load_from_torch(model.gpt, source)
    tokens_BT, targets_BT = batch()

    ours, theirs = source.logits(tokens_BT), model.logits(tokens_BT)
    assert ours.std() > 0.3
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
def test_bf16_is_as_close_to_fp32_as_the_reference_s() -> None:
    tokens_BT, targets_BT = batch()
    errors = []
    for backend in (TorchBackend(), MegatronBackend()):
        losses = []
        for precision in ("fp32", "bf16"):
            torch.manual_seed(0)
            model = backend.build(small(precision=precision), VOCAB, CPU)
            loss = model(tokens_BT, targets_BT)
            assert loss.dtype is torch.float32
            loss.backward()
            assert all(p.grad is not None and p.grad.isfinite().all() for p in model.parameters())
            with torch.inference_mode():
                losses.append(model.eval()(tokens_BT, targets_BT))
        assert not torch.equal(*losses)
        errors.append((losses[0] - losses[1]).abs().max().item())
    assert max(errors) < 0.05


# --- the contract of a backend -------------------------------------------------------------------


@needs_megatron
@pytest.mark.usefixtures("on_cpu")
@pytest.mark.parametrize(("activation", "norm", "positions", "tied"), CHOICES)
def test_a_model_starts_where_the_reference_does(
    activation: str, norm: str, positions: str, tied: bool
) -> None:
    recipe = choice(activation, norm, positions, tied, d_model=128, d_ff=512)
    model = build(recipe, vocab_size=1024)
    torch.manual_seed(0)
    source = TorchBackend().build(recipe, 1024, CPU)
    stream_BT = torch.randint(1024, (4, 17), generator=torch.Generator().manual_seed(6))
    loss = model(stream_BT[:, :-1], stream_BT[:, 1:]).item()
    assert loss == pytest.approx(math.log(1024), rel=0.05)
    reference = source(stream_BT[:, :-1], stream_BT[:, 1:]).item()
    assert loss == pytest.approx(reference, rel=1e-6)

    assert sum(p.numel() for p in model.parameters()) == sum(p.numel() for p in source.parameters())
    for name, parameter in model.named_parameters():
        assert parameter.dtype is torch.float32, name
        assert parameter.requires_grad, name
        assert "bias" not in name
        assert (parameter.dim() > 1) != ("norm" in name), name


@needs_megatron
@pytest.mark.usefixtures("on_cpu")
def test_a_token_sees_only_what_comes_before_it() -> None:
    recipe = small()
    model = build(recipe)
    load_from_torch(model.gpt, stirred(recipe))
    tokens_BT, _ = batch()
    other_BT = tokens_BT.clone()
    other_BT[:, 9] = (other_BT[:, 9] + 1) % VOCAB
    with torch.no_grad():
        before, after = model.logits(tokens_BT), model.logits(other_BT)
    assert torch.equal(before[:, :9], after[:, :9])
    assert not torch.equal(before[:, 9:], after[:, 9:])


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
    """As TransformerEngine's: reads its norm's bias whether or not anybody wants one."""

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
    from trainer.backends.megatron_gpt import remove_norm_biases

    model = nn.Sequential(FusedNormLinear(), nn.LayerNorm(8), nn.RMSNorm(8))
    remove_norm_biases(model)
    names = [name for name, _ in model.named_parameters()]
    assert names == ["0.layer_norm_weight", "0.weight", "1.weight", "2.weight"]
    x_ND = torch.randn(5, 8)
    y_ND = model[0](x_ND)
    y_ND.square().sum().backward()
    torch.testing.assert_close(y_ND, 1.5 * nn.functional.layer_norm(x_ND, (8,)))


# --- a whole trial -------------------------------------------------------------------------------


@needs_megatron
@pytest.mark.usefixtures("on_cpu")
@pytest.mark.parametrize(
    ("recipe", "tolerance"),
    [
        ({}, 1e-4),
        ({"activation": "swiglu", "norm": "rmsnorm", "positions": "rotary"}, 1e-4),
        ({"precision": "bf16"}, 1e-2),
    ],
)
def test_a_trial_of_the_same_seed_ends_at_the_reference_s_val_bpb(
    tmp_path: Path, recipe: dict[str, Any], tolerance: float
) -> None:
    corpus = write_corpus(tmp_path / "corpus")
    spec = trial_spec(
        corpus.directory, config=small(lr=1e-2, **recipe), budget=Budget(amount=30), threads=1
    )
    ours, theirs = measure(TorchBackend(), spec), measure(MegatronBackend(), spec)
    assert theirs.loss_first == pytest.approx(ours.loss_first, rel=tolerance)
    assert theirs.val_bpb == pytest.approx(ours.val_bpb, rel=tolerance)
    assert theirs.loss_last < theirs.loss_first - 1
    assert measure(MegatronBackend(), spec) == theirs


@needs_megatron
def test_a_trial_in_the_sandbox_needs_no_network(tmp_path: Path) -> None:
    corpus = write_corpus(tmp_path / "corpus")
    spec = trial_spec(corpus.directory, config=small(), budget=Budget(amount=3), threads=1)
    with LocalExecutor(entry=megatron_on_cpu.ENTRY, allow_unsandboxed=True) as executor:
        executor.run(spec, tmp_path / "trial")
    told = (tmp_path / "trial" / megatron_on_cpu.MEASURED).read_text()
    measured = Measured.model_validate_json(told)
    assert measured.loss_first == pytest.approx(measure(TorchBackend(), spec).loss_first, rel=1e-5)


# --- what is refused, and what is not imported ---------------------------------------------------


def test_choosing_and_checking_import_nothing_of_megatron() -> None:
    code = (
        "import sys, torch\n"
        "from tests.support.configs import config\n"
        "from trainer.backends.megatron import MegatronBackend\n"
        "from trainer.errors import SpecError\n"
        "try: MegatronBackend().check(config(), torch.device('cpu'))\n"
        "except SpecError: pass\n"
        "sys.exit(any(m.split('.')[0] in ('megatron', 'transformer_engine') for m in sys.modules))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_a_cpu_is_refused_with_what_to_choose() -> None:
    backend = MegatronBackend()
    with pytest.raises(SpecError, match="CUDA devices only, not in bf16 on cpu; choose torch"):
        backend.check(small(precision="bf16"), CPU)
    with pytest.raises(
        SpecError, match="not in fp8 on cpu; choose bf16 or fp32 with backend torch"
    ):
        backend.check(small(precision="fp8"), CPU)


HOPPER = (9, 0)
WITH_ENGINE = Trio("2.13.0", "0.16.1", "2.11.0")
WITHOUT_ENGINE = Trio("2.13.0", "0.16.1", None)


def test_fp8_is_refused_where_it_cannot_run() -> None:
    recipe = small(precision="fp8")
    _check_fp8(recipe, WITH_ENGINE, HOPPER)
    _check_fp8(recipe, WITH_ENGINE, (12, 1))
    with pytest.raises(SpecError, match=r"needs TransformerEngine, which is not installed; .*bf16"):
        _check_fp8(recipe, WITHOUT_ENGINE, HOPPER)
    with pytest.raises(SpecError, match=r"8\.9 or newer and this GPU has 8\.0; choose bf16"):
        _check_fp8(recipe, WITH_ENGINE, (8, 0))
    for field, size in {"d_ff": 40, "d_model": 24, "seq_len": 24}.items():
        with pytest.raises(SpecError, match=f"multiples of 16, and {field} is {size}"):
            _check_fp8(small(precision="fp8", **{field: size}), WITH_ENGINE, HOPPER)


@needs_megatron
@pytest.mark.usefixtures("on_cpu")
def test_fp8_is_never_quietly_something_else() -> None:
    with pytest.raises(SpecError, match="not Megatron-Core alone on cpu; choose bf16"):
        build(small(precision="fp8"))


@needs_megatron
@pytest.mark.usefixtures("on_cpu")
def test_the_fp8_recipe_reaches_megatron() -> None:
    from trainer.backends.megatron_gpt import transformer_config

    recipe = small(precision="fp8")
    plain = transformer_config(recipe, CPU, engine=False, fp8=Fp8Recipe())
    assert (plain.fp8, plain.fp8_recipe) == ("hybrid", "delayed")
    assert (plain.fp8_amax_history_len, plain.fp8_amax_compute_algo) == (16, "max")
    other = Fp8Recipe(format="e4m3", amax_history_len=4, amax_compute_algo="most_recent", margin=1)
    options = transformer_config(recipe, CPU, engine=False, fp8=other)
    assert (options.fp8, options.fp8_margin) == ("e4m3", 1)
    assert (options.fp8_amax_history_len, options.fp8_amax_compute_algo) == (4, "most_recent")
    assert transformer_config(small(), CPU, engine=False, fp8=other).fp8 is None


@needs_megatron
@pytest.mark.usefixtures("on_cpu")
def test_filling_up_a_sequence_for_fp8_changes_no_score() -> None:
    """On this machine the products themselves are bf16; the filling up is the same."""
    from trainer.backends.megatron_gpt import MegatronGPT

    recipe = small(precision="fp8")
    torch.manual_seed(0)
    build(small())
    filling = MegatronGPT(recipe, VOCAB, CPU, engine=False, fp8=Fp8Recipe()).eval()
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
    assert told.startswith(
        f"megatron-core {megatron} does not work with transformer-engine {engine}"
    )
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
    with pytest.raises(
        MachineryError, match=r"needs megatron-core, .* install megatron-core 0\.16"
    ):
        check_trio(Trio("2.13.0", None, "2.11.0"))
    with pytest.raises(MachineryError, match=r"0\.15\.3 is older than .* install megatron-core 0"):
        check_trio(Trio("2.13.0", "0.15.3", None))
    with pytest.raises(MachineryError, match="a version of 'dev' cannot be read"):
        check_trio(Trio("2.13.0", "dev", None))


def test_the_trio_of_this_machine_is_told_as_the_packages_do() -> None:
    told = str(Trio.installed())
    assert told.startswith(f"torch {metadata.version('torch')}, megatron-core ")
    assert "transformer-engine" in told
