"""A GPT in Megatron-Core, entirely on one device. Importing this module imports Megatron-Core.

Its layers are TransformerEngine's if that is installed, else Megatron-Core's own. It computes the
same as :class:`~trainer.backends.torch_gpt.TorchGPT` (:mod:`trainer.backends.megatron.recipe`).

Weights are bf16, with fp32 main weights and gradients in Megatron's own optimizer
(:mod:`trainer.backends.megatron.optimizer`). Norms and the residual stream are bf16 too, as is
usual with Megatron. A config in fp32 has only fp32 weights; its products are TF32, exact to three
digits.

The vocabulary is padded to a multiple of 128 (:mod:`trainer.backends.megatron.recipe`).

The loss is Megatron's own, over all logits in fp32. The torch backend's chunks would save most of
this backend's peak memory. But then a comparison of the two would no longer measure Megatron as it
is used, and its memory would differ from the published table.

Shapes: B sequences, T tokens, V vocabulary.
"""

from __future__ import annotations

import torch
from megatron.core import parallel_state, tensor_parallel
from megatron.core.models.gpt.gpt_layer_specs import HAVE_TE
from megatron.core.transformer import TransformerConfig
from torch import Tensor, distributed, nn
from torch.nn import functional
from torch.testing._internal.distributed.fake_pg import FakeStore  # registers "fake"

from autoresearch.errors import MachineryError, SpecError
from trainer.backends.linear_cross_entropy import exact_nll_of_logits
from trainer.backends.megatron.backend import Trio
from trainer.backends.megatron.optimizer import MegatronAdamW, is_block_matrix, mixed
from trainer.backends.megatron.recipe import (
    FilledUpGPT,
    layers,
    remove_norm_biases,
    transformer_config,
)
from trainer.backends.megatron.weights import load_from_megatron, load_from_torch
from trainer.backends.optimizer import Optimizer
from trainer.backends.products import MULTIPLE
from trainer.backends.torch_gpt import TorchGPT
from trainer.spec import Config, Fp8Recipe


def build(config: Config, vocab_size: int, device: torch.device, *, fp8: Fp8Recipe) -> MegatronGPT:
    """Build a model with the weights that the torch backend draws from the same generator.

    So both start at the same loss, near ln(V), and a comparison of the two compares the frameworks.

    :raises MachineryError: if TransformerEngine is installed but cannot be imported.
    :raises SpecError: for fp8 without it, since Megatron-Core alone would silently train in bf16.
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
    form = MegatronGPT if config.precision == "fp32" else MixedMegatronGPT
    model = form(config, vocab_size, device, engine=engine, fp8=fp8)
    load_from_torch(model.gpt, source)
    return model


class MegatronGPT(nn.Module):
    """A ``GPTModel`` with the interface of :class:`trainer.backends.Backend`.

    Its weights are fp32, and undefined until loaded.
    """

    dtype = torch.float32
    """The type of the weights."""

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
        self._config = config
        self._engine = engine
        self._multiple = MULTIPLE if config.precision == "fp8" else 1
        self._vocab_size = vocab_size
        options = transformer_config(config, device, engine=engine, fp8=fp8, dtype=self.dtype)
        gpt = FilledUpGPT(
            words=vocab_size,
            config=options,
            transformer_layer_spec=layers(config, engine=engine),
            max_sequence_length=config.seq_len,
            share_embeddings_and_output_weights=config.tie_embeddings,
            position_embedding_type="learned_absolute" if config.positions == "learned" else "rope",
            rotary_base=config.rope_base,
        ).to(device)
        remove_norm_biases(gpt)
        if config.width_factor != 1.0:
            # Maximal update's logit factor applies to the head's input.
            gpt.decoder.final_layernorm.register_forward_hook(
                lambda _module, _inputs, normed_TBD: normed_TBD * config.width_factor
            )
        self.model: nn.Module = self._wrapped(options, gpt)

    def _wrapped(self, options: TransformerConfig, gpt: nn.Module) -> nn.Module:
        """Return the module to call in place of ``gpt``."""
        del options
        return gpt

    @property
    def gpt(self) -> nn.Module:
        """Return Megatron-Core's model."""
        return self.model

    def as_torch(self) -> TorchGPT:
        """Return the same model with the same weights on torch's own operators, in fp32."""
        fp32 = self._config.model_copy(update={"precision": "fp32"})
        twin = TorchGPT(fp32, self._vocab_size, next(self.gpt.parameters()).device)
        load_from_megatron(twin, self.gpt)
        return twin

    @property
    def block_matrices(self) -> list[nn.Parameter]:
        """See :attr:`trainer.backends.torch_gpt.TorchGPT.block_matrices`."""
        return [p for n, p in self.gpt.named_parameters() if is_block_matrix(n, p)]

    def forward(self, tokens_BT: Tensor, targets_BT: Tensor) -> Tensor:
        """See :meth:`trainer.backends.Backend.build`."""
        if self.training:
            return self._run(tokens_BT, labels=targets_BT).mean()
        logits_NV = self._padded_logits(tokens_BT).flatten(0, 1)
        return exact_nll_of_logits(logits_NV, targets_BT.flatten()).view_as(targets_BT)

    def logits(self, tokens_BT: Tensor) -> Tensor:
        """Return ``logits_BTV``, fp32."""
        return self._padded_logits(tokens_BT).float()

    def _padded_logits(self, tokens_BT: Tensor) -> Tensor:
        """Return ``logits_BTV`` in the precision of the matrix products."""
        length = tokens_BT.shape[1]
        # fp8 needs a multiple of 16 tokens. The padding comes after every token that is scored, and
        # no token sees a later one.
        padded_BT = functional.pad(tokens_BT, (0, -length % self._multiple))
        return self._run(padded_BT, labels=None)[:, :length, : self._vocab_size]

    def _run(self, tokens_BT: Tensor, labels: Tensor | None) -> Tensor:
        length = tokens_BT.shape[1]
        positions_BT = torch.arange(length, device=tokens_BT.device).expand_as(tokens_BT)
        mask_11TT = None  # TransformerEngine's attention is causal without a mask
        if not self._engine:
            whole_TT = torch.ones(length, length, dtype=torch.bool, device=tokens_BT.device)
            mask_11TT = whole_TT.triu(1)[None, None]
        return self._call(tokens_BT, positions_BT, mask_11TT, labels)

    def _call(
        self,
        tokens_BT: Tensor,
        positions_BT: Tensor,
        mask_11TT: Tensor | None,
        labels: Tensor | None,
    ) -> Tensor:
        output: Tensor = self.model(tokens_BT, positions_BT, mask_11TT, labels=labels)
        return output


class MixedMegatronGPT(MegatronGPT):
    """A :class:`MegatronGPT` with bf16 weights, and fp32 main weights in its own optimizer."""

    dtype = torch.bfloat16

    def _wrapped(self, options: TransformerConfig, gpt: nn.Module) -> nn.Module:
        model: nn.Module = mixed(options, gpt)
        return model

    @property
    def gpt(self) -> nn.Module:
        """Return Megatron-Core's model, inside its wrappers."""
        inner = self.model
        while isinstance(wrapped := getattr(inner, "module", None), nn.Module):
            inner = wrapped
        return inner

    def optimizer(self, config: Config) -> Optimizer:
        """See :class:`trainer.backends.optimizer.BringsOptimizer`."""
        return MegatronAdamW(self.model, config)

    def _call(
        self,
        tokens_BT: Tensor,
        positions_BT: Tensor,
        mask_11TT: Tensor | None,
        labels: Tensor | None,
    ) -> Tensor:
        output: Tensor = self.model(
            # Logits stay bf16, which the loss and the score expect; losses are fp32.
            tokens_BT,
            positions_BT,
            mask_11TT,
            labels=labels,
            fp32_output=False,
        )
        return output


def join_one_rank(device: torch.device, seed: int) -> None:
    """Make this process the only rank of a job, and seed Megatron-Core's generators.

    This needs neither torchrun nor a network. It uses torch's ``fake`` process group, whose
    collectives do not change tensors, like every collective of one rank. (gloo binds a TCP socket
    on creation. NCCL opens sockets for its bootstrap at the first collective, even for one rank,
    and would need socket(AF_INET) on the loopback interface. Trials have neither.) A process group
    that already exists stays unchanged.
    """
    if not distributed.is_initialized():
        distributed.init_process_group("fake", store=FakeStore(), rank=0, world_size=1)
    if not parallel_state.model_parallel_is_initialized():
        parallel_state.initialize_model_parallel(create_gloo_process_groups=False)
    if device.type == "cuda":
        tensor_parallel.model_parallel_cuda_manual_seed(seed % (1 << 31), force_reset_rng=True)


def _transformer_engine() -> bool:
    """Return whether TransformerEngine is available.

    :raises MachineryError: if it is installed but cannot be imported.
    """
    trio = Trio.installed()
    if trio.transformer_engine is not None and not HAVE_TE:
        raise MachineryError(
            f"TransformerEngine is installed and cannot be imported beside {trio}; rebuild it"
            " against this torch and CUDA, or uninstall it to train with Megatron-Core's own layers"
        )
    return bool(HAVE_TE)
