"""Convert a recipe into flags of Megatron-LM's pretrain_gpt.py.

Every flag exists in the argument parsers of the releases below (megatron/training/arguments.py).
If Megatron-LM's default differs from the proxies' training, a flag sets the proxies' value. The
proxies have no biases in linear layers, no dropout, exact GELU, and epsilon 1e-5 in norms and 1e-8
in Adam. A recipe that no flag can express is refused.
"""

import math
from collections.abc import Iterable
from typing import Literal, TypeAlias

from autoresearch.errors import TargetError
from autoresearch.values import Frozen
from funnel.plan.booking import CheckpointPlan, Operations, StepSchedule
from funnel.plan.layout import Layout
from funnel.plan.projection import Projection
from funnel.transfer.rules import WidthRule
from trainer.schema import Config, Fp8Recipe

CHECKED_AGAINST: dict[WidthRule, tuple[str, ...]] = {
    "mup": ("core_v0.19.0",),
    "sqrt_width": ("core_v0.16.1", "core_v0.17.1", "core_v0.18.2", "core_v0.19.0"),
}
"""Releases whose parsers have all the flags of such a plan, and that honor them."""
MUP_SINCE = (0, 19)
"""Major and minor number of the first release that resumes a maximal-update run at its own rates.

From core_v0.17.0 to v0.18.2 the flags exist, but loading a checkpoint distinguishes the optimizer's
groups only by weight decay. The tables then train with the blocks' rate and epsilon, without a
warning (Megatron-LM's pull request 4705).
"""

INIT_STD = 0.02
MAX_LOGIT_STD = 0.5
MAX_TIED_LOGIT_STD = 0.18
"""Largest initial standard deviation of the logits if the head is tied.

The three constants above repeat the proxies' initialization in :mod:`trainer.backends.torch_gpt`.
A plan does not import that module, because it imports torch.
"""
MUON_MOMENTUM, MUON_RMS = 0.95, 0.2
"""Constants of :mod:`trainer.backends.muon`, repeated for the same reason."""
EVAL_STEPS = 1000
EVAL_BATCHES = 20
DATA_SEED = 1234

Precision: TypeAlias = Literal["bf16", "fp8"]


class Flag(Frozen):
    """One flag with its value; a switch has no value."""

    name: str
    value: str | None = None


def flag_words(flags: Iterable[Flag]) -> list[str]:
    """Return the flags as words of a command line."""
    return [word for flag in flags for word in (flag.name, flag.value) if word is not None]


class FlagGroup(Frozen):
    """Flags on one subject."""

    name: str
    """Name of the array that holds the flags in the launch script."""
    flags: tuple[Flag, ...]


def _flags(**values: object) -> tuple[Flag, ...]:
    """Return flags: ``lr=0.1`` is ``--lr 0.1``, True is a switch, False and None are omitted."""
    texts = {
        name: f"{value:.8g}" if isinstance(value, float) else str(value)
        for name, value in values.items()
        if value is not None and value is not False
    }
    return tuple(
        Flag(name=f"--{name.replace('_', '-')}", value=None if values[name] is True else text)
        for name, text in texts.items()
    )


def launch_precision(projection: Projection) -> Precision:
    """Return the precision of the run: fp8 if the recipe has it, else bf16, even for fp32."""
    return "fp8" if projection.config.precision == "fp8" else "bf16"


def megatron_flags(
    projection: Projection, layout: Layout, schedule: StepSchedule
) -> tuple[FlagGroup, ...]:
    """Return every flag but those of data, tokenizer, precision and checkpoints.

    :raises TargetError: if Megatron-LM has no flags for the recipe.
    """
    _refuse_without_flag(projection)
    # Both trainers divide matrices that write to the residual stream by sqrt(2 × layers).
    init = _flags(
        init_method_std=INIT_STD * projection.source.init_scale,
        embedding_init_method_std=table_std(projection.source),
    )
    # Under the maximal-update rule Megatron-LM itself scales rates, epsilons, initial weights and
    # logits from the proxy's width to the target's (get_mup_config_overrides in
    # megatron/core/optimizer). Since the proxy's head_dim is given, it scales attention scores of
    # that head_dim as usual.
    width = _flags(
        use_mup=True,
        mup_base_hidden_size=projection.base_width,
        mup_base_head_dim=projection.source.d_model // projection.source.n_head,
    )
    sizes = _flags(micro_batch_size=layout.micro_batch, global_batch_size=layout.global_batch)
    logging = _flags(
        log_interval=1, log_throughput=True, eval_interval=EVAL_STEPS, eval_iters=EVAL_BATCHES
    )
    return (
        FlagGroup(name="MODEL", flags=_model(projection)),
        FlagGroup(name="INIT", flags=init),
        *([FlagGroup(name="WIDTH", flags=width)] if projection.lr_rule == "mup" else []),
        FlagGroup(name="OPTIMIZER", flags=_optimizer(projection, schedule)),
        FlagGroup(name="BATCH", flags=sizes),
        FlagGroup(name="PARALLEL", flags=_parallel(layout, muon=is_muon(projection.source))),
        FlagGroup(name="LOGGING", flags=logging),
    )


def _refuse_without_flag(projection: Projection) -> None:
    """Raise TargetError if Megatron-LM's flags cannot express the recipe."""
    source, target = projection.source, projection.target
    depth = source.mup_base_depth
    for is_so, what, flag in (
        (
            target.activation == "geglu",
            "activation geglu",
            "gates with the exact GELU (--quick-geglu does not)",
        ),
        (target.norm_place != "pre", f"norm_place {target.norm_place}", "norms what a block adds"),
        (
            target.qk_norm and target.norm == "layernorm",
            "qk_norm with norm layernorm",
            "norms heads otherwise than the stream",
        ),
        (
            target.positions == "rotary" and target.rope_base != int(target.rope_base),
            f"rope_base {target.rope_base:.10g}",
            "takes a base that is not whole",
        ),
        (
            depth not in (None, target.n_layer),
            f"mup_base_depth {depth}",
            f"scales residual branches, by {depth} / {target.n_layer} here",
        ),
    ):
        if is_so:
            raise TargetError(
                f"{what} cannot be launched: Megatron-LM has no flag that {flag}; hand off a "
                "recipe without"
            )


def precision_flags(precision: Precision) -> tuple[Flag, ...]:
    """Return the flags of a precision; fp8 is bf16 with the products in fp8, as in the proxies."""
    if precision == "bf16":
        return _flags(bf16=True)
    recipe = Fp8Recipe()
    return _flags(
        bf16=True,
        fp8_format=recipe.format,
        fp8_recipe="delayed",
        fp8_amax_history_len=recipe.amax_history_len,
        fp8_amax_compute_algo=recipe.amax_compute_algo,
        fp8_margin=recipe.margin,
    )


def _model(projection: Projection) -> tuple[Flag, ...]:
    target = projection.target
    grouped = target.n_kv_head != target.n_head
    rotary = target.positions == "rotary"
    return _flags(
        num_layers=target.n_layer,
        hidden_size=target.d_model,
        ffn_hidden_size=target.d_ff,
        num_attention_heads=target.n_head,
        group_query_attention=grouped,
        num_query_groups=target.n_kv_head if grouped else None,
        kv_channels=target.head_dim,
        seq_length=target.seq_len,
        max_position_embeddings=target.seq_len,
        position_embedding_type="rope" if rotary else "learned_absolute",
        rotary_base=int(target.rope_base) if rotary else None,
        rotary_percent="1.0" if rotary else None,
        normalization="RMSNorm" if target.norm == "rmsnorm" else "LayerNorm",
        norm_epsilon="1e-5",
        # This norm has the kind and the epsilon of the other norms.
        qk_layernorm=target.qk_norm,
        swiglu=target.activation == "swiglu",
        squared_relu=target.activation == "relu2",
        # Megatron-Core refuses its fused GELU in layers without biases or with another function.
        no_bias_gelu_fusion=target.activation in {"gelu", "relu2"},
        disable_bias_linear=True,
        untie_embeddings_and_output_weights=not target.tie_embeddings,
        attention_dropout="0.0",
        hidden_dropout="0.0",
    )


def table_std(config: Config) -> float:
    """Return the initial standard deviation of the trainer's tables and head."""
    bound = MAX_TIED_LOGIT_STD if config.tie_embeddings else MAX_LOGIT_STD
    return min(INIT_STD, bound / math.sqrt(config.mup_base_width or config.d_model))


def is_muon(config: Config) -> bool:
    """Return whether Muon trains the blocks' matrices."""
    return config.optimizer == "muon"


def _muon(projection: Projection) -> dict[str, object]:
    """Return the options of Megatron-LM's Muon, which uses its own five steps of Newton-Schulz.

    Its ``spectral`` scale is the root of a matrix's longer side. ``dist_muon`` shards the state by
    whole layers. Megatron-LM has one rate for the matrices and the norms' gains, and one for the
    tables and the head.
    """
    if not is_muon(projection.source):
        return {"optimizer": "adam"}
    ratio = projection.source.muon_lr_ratio
    tables = projection.base_lr if ratio != 1.0 else None
    return {
        "optimizer": "dist_muon",
        "muon_momentum": MUON_MOMENTUM,
        "muon_num_ns_steps": 5,
        "muon_scale_mode": "spectral",
        "muon_extra_scale_factor": MUON_RMS,
        "muon_tp_mode": "duplicated",
        "decoupled_lr": tables,
        "decoupled_min_lr": tables and tables * projection.config.lr_min_ratio,
    }


def _optimizer(projection: Projection, schedule: StepSchedule) -> tuple[Flag, ...]:
    config = projection.config
    lr = projection.base_lr
    if is_muon(projection.source):
        lr *= projection.source.muon_lr_ratio
    fall: dict[str, object] = {}
    if projection.source.schedule == "wsd":
        # Megatron-LM counts the decay back from the end and does not prevent an overlap with the
        # warm-up.
        asked = round(projection.source.decay_share * schedule.steps)
        steps = max(min(asked, schedule.steps - schedule.warmup_steps), 1)
        fall = {"lr_wsd_decay_style": "linear", "lr_wsd_decay_iters": steps}
    return _flags(
        **_muon(projection),
        lr=lr,
        min_lr=lr * config.lr_min_ratio,
        lr_decay_style={"wsd": "WSD"}.get(projection.source.schedule, projection.source.schedule),
        **fall,
        lr_warmup_iters=schedule.warmup_steps,
        lr_decay_iters=schedule.steps,
        train_iters=schedule.steps,
        weight_decay=config.weight_decay,
        adam_beta1=config.beta1,
        adam_beta2=config.beta2,
        adam_eps="1e-8",
        clip_grad=config.grad_clip,
        seed=DATA_SEED,
    )


def _parallel(layout: Layout, *, muon: bool) -> tuple[Flag, ...]:
    full = layout.recompute == "full"
    # Megatron-LM's Muon refuses this optimizer and shards its state itself.
    distributed = layout.distributed_optimizer and not muon
    return _flags(
        tensor_model_parallel_size=layout.tensor,
        pipeline_model_parallel_size=layout.pipeline,
        sequence_parallel=layout.tensor > 1,
        use_distributed_optimizer=distributed,
        overlap_grad_reduce=True,
        overlap_param_gather=distributed,
        # A fused kernel never stores attention scores, so selective recomputation costs nothing.
        attention_backend="auto",
        recompute_granularity="full" if full else None,
        recompute_method="uniform" if full else None,
        recompute_num_layers=1 if full else None,
        transformer_impl="transformer_engine",
        distributed_backend="nccl",
        distributed_timeout_minutes=60,
    )


def save_flags(checkpoints: CheckpointPlan) -> tuple[Flag, ...]:
    """Return the flags of how often to save checkpoints, without their directory.

    Saves are synchronous here. Megatron-LM ignores ``--async-save`` alone, and together with
    ``--use-persistent-ckpt-worker`` some releases need another package.
    """
    return _flags(
        save_interval=checkpoints.every_steps,
        save_retain_interval=checkpoints.kept_every_steps,
        ckpt_format="torch_dist",
    )


def layout_flags(layout: Layout, *, muon: bool) -> tuple[Flag, ...]:
    """Return the flags that depend only on the layout, to override those of a launch script."""
    return _flags(
        tensor_model_parallel_size=layout.tensor,
        pipeline_model_parallel_size=layout.pipeline,
        sequence_parallel=layout.tensor > 1,
        micro_batch_size=layout.micro_batch,
        use_distributed_optimizer=layout.is_sharded and not muon,
    )


def operator_flags(operations: Operations) -> tuple[Flag, ...]:
    """Return the flags that save at SIGTERM, end hanging collectives, and omit an unused mask.

    TransformerEngine's attention is causal and reads no mask (``attn_mask_type`` in
    megatron/core/models/gpt/gpt_layer_specs.py, core_v0.19.0). The data loader would build a mask
    of the square of each sequence's length and move it for nothing.
    """
    return _flags(
        exit_signal_handler=True,
        distributed_timeout_seconds_after_init=operations.timeout_s,
        no_create_attention_mask_in_dataloader=True,
    )
