"""A GPT in Megatron-Core, whole on one device. Importing this module imports Megatron-Core.

Its layers are TransformerEngine's where that is installed, else Megatron-Core's own. Options are
set so that it computes what :class:`~trainer.backends.torch_gpt.TorchGPT` does: GELU by the error
function, rotary pairs (i, i + K/2), norms with epsilon 1e-5 and without bias, no dropout.

Parameters are fp32 and matrix products bf16 under autocast, as the Backend contract wants. Against
Megatron's usual bf16 weights with fp32 masters that is about the same memory for weights, gradients
and moments (16 bytes a parameter), and one cast of every matrix from fp32 to bf16 a step, whose
copies TransformerEngine keeps until the backward pass: 6 bytes of traffic and 2 of memory a
parameter. In fp8 TransformerEngine casts from fp32 to fp8 directly, and keeps that. In fp32 it
multiplies in TF32, to three digits.

Its loss is Megatron's own, over all logits in fp32. The torch backend's chunks would spare most of
this backend's peak, and a comparison of the two would then no longer be with Megatron as it is
used, nor its memory that of the published table.

Shapes: B sequences, T tokens, V vocabulary.
"""

from __future__ import annotations

from typing import Any, Literal

import torch
from megatron.core import parallel_state, tensor_parallel
from megatron.core.models.gpt import GPTModel
from megatron.core.models.gpt.gpt_layer_specs import (
    HAVE_TE,
    get_gpt_layer_local_spec,
    get_gpt_layer_with_transformer_engine_spec,
)
from megatron.core.transformer import TransformerConfig
from megatron.core.transformer.torch_norm import WrappedTorchNorm
from megatron.core.transformer.transformer_block import TransformerBlockSubmodules
from torch import Tensor, distributed, nn
from torch.nn import functional
from torch.testing._internal.distributed.fake_pg import FakeStore  # registers "fake"

from trainer.backends.float8 import MULTIPLE
from trainer.backends.kernels.sizes import NORM_EPS
from trainer.backends.linear_cross_entropy import exact_nll_of_logits
from trainer.backends.megatron_weights import load_from_torch
from trainer.backends.torch_gpt import ROTARY_BASE, TorchGPT
from trainer.backends.versions import Trio
from trainer.errors import MachineryError, SpecError
from trainer.spec import Config, Fp8Recipe


def build(config: Config, vocab_size: int, device: torch.device, fp8: Fp8Recipe) -> MegatronGPT:
    """A model with the weights that the torch backend draws from the same generator.

    So both start at the same loss, near ln(V), and a comparison of the two is of the frameworks.

    :raises MachineryError: where TransformerEngine is installed and cannot be imported.
    :raises SpecError: for fp8 without it; Megatron-Core alone would train in bf16 and say nothing.
    """
    engine = device.type == "cuda" and _transformer_engine()
    if config.precision == "fp8" and not engine:
        raise SpecError(
            f"precision fp8 needs TransformerEngine on a GPU, not Megatron-Core alone on {device};"
            " choose bf16"
        )
    if device.type == "cuda" and device.index is not None:
        torch.cuda.set_device(device)
    source = TorchGPT(config.model_copy(update={"precision": "fp32"}), vocab_size, device)
    source.init()
    join_one_rank(device, seed=torch.initial_seed())
    model = MegatronGPT(config, vocab_size, device, engine=engine, fp8=fp8)
    load_from_torch(model.gpt, source)
    return model


class MegatronGPT(nn.Module):
    """``GPTModel`` called as :class:`trainer.backends.base.Backend` says; weights are undefined
    until loaded."""

    def __init__(
        self,
        config: Config,
        vocab_size: int,
        device: torch.device,
        *,
        engine: bool,
        fp8: Fp8Recipe,
    ) -> None:
        super().__init__()
        self._engine = engine
        self._autocast = config.precision != "fp32"
        self._device_type: Literal["cpu", "cuda"] = "cuda" if device.type == "cuda" else "cpu"
        self._multiple = MULTIPLE if config.precision == "fp8" else 1
        self.gpt: nn.Module = GPTModel(
            config=transformer_config(config, device, engine=engine, fp8=fp8),
            transformer_layer_spec=_layers(config, engine=engine),
            vocab_size=vocab_size,
            max_sequence_length=config.seq_len,
            share_embeddings_and_output_weights=config.tie_embeddings,
            position_embedding_type="learned_absolute" if config.positions == "learned" else "rope",
            rotary_base=int(ROTARY_BASE),
        ).to(device)
        remove_norm_biases(self.gpt)

    def forward(self, tokens_BT: Tensor, targets_BT: Tensor) -> Tensor:
        """See :meth:`trainer.backends.base.Backend.build`."""
        if self.training:
            return self._run(tokens_BT, labels=targets_BT).mean()
        logits_NV = self._padded_logits(tokens_BT).flatten(0, 1)
        return exact_nll_of_logits(logits_NV, targets_BT.flatten()).view_as(targets_BT)

    def logits(self, tokens_BT: Tensor) -> Tensor:
        """``logits_BTV``, fp32."""
        return self._padded_logits(tokens_BT).float()

    def _padded_logits(self, tokens_BT: Tensor) -> Tensor:
        """``logits_BTV`` in the precision of the matrix products."""
        length = tokens_BT.shape[1]
        # fp8 wants whole sixteens of tokens. What is added comes after every token that is scored,
        # and no token sees a later one.
        padded_BT = functional.pad(tokens_BT, (0, -length % self._multiple))
        return self._run(padded_BT, labels=None)[:, :length]

    def _run(self, tokens_BT: Tensor, labels: Tensor | None) -> Tensor:
        length = tokens_BT.shape[1]
        positions_BT = torch.arange(length, device=tokens_BT.device).expand_as(tokens_BT)
        mask_11TT = None  # TransformerEngine's attention knows that it is causal
        if not self._engine:
            whole_TT = torch.ones(length, length, dtype=torch.bool, device=tokens_BT.device)
            mask_11TT = whole_TT.triu(1)[None, None]
        with torch.autocast(self._device_type, torch.bfloat16, enabled=self._autocast):
            output: Tensor = self.gpt(tokens_BT, positions_BT, mask_11TT, labels=labels)
        return output


def transformer_config(
    config: Config, device: torch.device, *, engine: bool, fp8: Fp8Recipe
) -> TransformerConfig:
    """Megatron-Core's words for the recipe."""
    swiglu = config.activation == "swiglu"
    options: dict[str, Any] = {}
    if config.precision == "fp8":
        options = {
            "fp8": fp8.format,
            "fp8_recipe": "delayed",
            "fp8_margin": fp8.margin,
            "fp8_amax_history_len": fp8.amax_history_len,
            "fp8_amax_compute_algo": fp8.amax_compute_algo,
        }
    return TransformerConfig(
        num_layers=config.n_layer,
        hidden_size=config.d_model,
        num_attention_heads=config.n_head,
        num_query_groups=config.kv_heads,
        ffn_hidden_size=config.d_ff,
        gated_linear_unit=swiglu,
        activation_func=functional.silu if swiglu else functional.gelu,
        normalization="RMSNorm" if config.norm == "rmsnorm" else "LayerNorm",
        layernorm_epsilon=NORM_EPS,
        add_bias_linear=False,
        hidden_dropout=0.0,
        attention_dropout=0.0,
        params_dtype=torch.float32,
        # Loaded afterwards.
        perform_initialization=False,
        use_cpu_initialization=device.type == "cpu",
        apply_rope_fusion=engine and config.positions == "rotary",
        gradient_accumulation_fusion=False,
        # Every batch is one microbatch. Told nothing, the layers would take each but the first for
        # a later microbatch of the same step, and keep the first step's fp8 weights for ever.
        disable_parameter_transpose_cache=True,
        **options,
    )


def _layers(config: Config, *, engine: bool) -> TransformerBlockSubmodules:
    """The modules of every layer, and of the norm after the last: torch's own, since of all norms
    only TransformerEngine's stand-alone one insists on a bias to train."""
    if engine:
        layer = get_gpt_layer_with_transformer_engine_spec()
    else:
        layer = get_gpt_layer_local_spec()
        # Not Apex's, which Megatron-Core would take where it finds it.
        layer.submodules.input_layernorm = WrappedTorchNorm
        layer.submodules.pre_mlp_layernorm = WrappedTorchNorm
    return TransformerBlockSubmodules(
        layer_specs=[layer] * config.n_layer, layer_norm=WrappedTorchNorm
    )


def remove_norm_biases(model: nn.Module) -> None:
    """Take the biases, which Megatron-Core cannot be told to leave out, from every LayerNorm.

    TransformerEngine's fused norm still reads one: there it becomes a constant zero.
    """
    for module in model.modules():
        if isinstance(module, nn.LayerNorm):
            module.register_parameter("bias", None)
        elif "layer_norm_bias" in dict(module.named_parameters(recurse=False)):
            zero_D = torch.zeros_like(module.get_parameter("layer_norm_bias"), requires_grad=False)
            del module.layer_norm_bias
            module.register_buffer("layer_norm_bias", zero_D, persistent=False)


def join_one_rank(device: torch.device, seed: int) -> None:
    """Make this process the only rank of a job, and seed Megatron-Core's generators.

    Without torchrun and without a network: torch's ``fake`` process group, whose collectives leave
    tensors as they are, which is what every collective of one rank does. (gloo binds a TCP socket
    when it is made; NCCL opens them for its bootstrap at the first collective, even alone, and
    would need socket(AF_INET) on the loopback interface. Trials have neither.) A process group
    that exists already is left alone.
    """
    if not distributed.is_initialized():
        distributed.init_process_group("fake", store=FakeStore(), rank=0, world_size=1)
    if not parallel_state.model_parallel_is_initialized():
        parallel_state.initialize_model_parallel(create_gloo_process_groups=False)
    if device.type == "cuda":
        tensor_parallel.model_parallel_cuda_manual_seed(seed % (1 << 31), force_reset_rng=True)


def _transformer_engine() -> bool:
    """Whether TransformerEngine is there; never silently not."""
    trio = Trio.installed()
    if trio.transformer_engine is not None and not HAVE_TE:
        raise MachineryError(
            f"TransformerEngine is installed and cannot be imported beside {trio}; rebuild it"
            " against this torch and CUDA, or uninstall it to train with Megatron-Core's own layers"
        )
    return bool(HAVE_TE)
