"""Provide published throughputs of training runs on H100, and the error of the step's arithmetic.

``README_2024``: the weak-scaling table of Megatron-LM's README (images/model_table.png,
Megatron-Core r0.8.0, July 2024): GPTs with untied tables of 131,072 tokens, sequences of 4,096,
bf16, DP 48; model FLOPs. The table does not give the micro-batch or the chunks of the pipeline. The
fastest micro-batch that fits is used, and a chunk of one layer.

``HELD_OUT``: other runs, to which nothing was fitted. They are Llama 3 405B (arXiv 2407.21783,
table 4, bf16; its 126 layers are on 16 stages as if there were 128), and dense models of NVIDIA's
Megatron-Bridge summary (docs/performance-summary.md and its archive, containers 25.11 and 26.02) in
fp8, whose products are assumed to be twice as fast as bf16's.
"""

from funnel.cost.gpus import MACHINES
from funnel.plan.layout import Cluster, Layout, memory_use
from funnel.plan.step_time import Practice, step_time
from funnel.targets.architecture import TargetArchitecture, load_target
from funnel.targets.shape import ParameterCount
from trainer.machine.flops import TrainingFlops

H100 = MACHINES["h100"]
IN_2024 = Practice(tensor_hidden=0.7, pipeline_hidden=True)
"""Practice with everything overlapped. ``--tp-comm-overlap`` is assumed to hide all but the first
and last pieces that it sends."""

README_2024 = (
    (16, 2048, 24, 1, 1, 48, 192, 408.8),
    (32, 4096, 30, 2, 1, 96, 192, 465.9),
    (48, 6144, 32, 4, 1, 192, 192, 489.1),
    (56, 7168, 48, 8, 1, 384, 192, 459.6),
    (64, 8192, 84, 8, 2, 768, 384, 419.7),
    (80, 10240, 92, 8, 4, 1536, 768, 420.5),
    (96, 12288, 96, 8, 6, 2304, 1152, 432.8),
    (128, 16384, 96, 8, 8, 3072, 1536, 474.4),
    (144, 18432, 112, 8, 16, 6144, 3072, 459.9),
)
"""Heads, width, layers, TP, PP, GPUs, batch, and TFLOP/s per GPU."""
HELD_OUT = (
    ("405b", (8, 16, 64, 1, 2048), 430, 4),
    ("405b", (8, 16, 128, 1, 2048), 400, 4),
    ("llama-7b", (1, 1, 8, 1, 128), 744, 1),
    ("llama-70b", (4, 8, 2, 1, 128), 719, 5),
    ("llama-70b", (4, 8, 2, 1, 256), 728, 5),
)
"""Target, its TP, PP, DP, micro-batch and batch, TFLOP/s per GPU, and the pipeline's chunks."""


def readme_errors() -> list[float]:
    """Return the arithmetic's relative error for each row of the README's table."""
    errors = []
    for heads, width, layers, tensor, pipeline, gpus, batch, tflops in README_2024:
        target = _gpt(heads, width, layers)
        tries = []
        for micro in (1, 2, 4):
            layout = _layout(tensor, pipeline, gpus // (tensor * pipeline), micro, batch)
            if batch // 48 % micro or layout.accumulation < pipeline:
                continue
            if micro == 1 or memory_use(target, layout, H100.gpu, fp8=False).fits:
                tries.append(_error(target, layout, tflops, layers // pipeline))
        errors.append(max(tries))
    return errors


def held_out_errors() -> list[float]:
    """Return the arithmetic's relative error for each run that nothing was fitted to."""
    return [
        _error(
            _llama_405b() if name == "405b" else load_target(name),
            _layout(*shape),
            tflops,
            chunks,
            fp8=name != "405b",
        )
        for name, shape, tflops, chunks in HELD_OUT
    ]


def _error(
    target: TargetArchitecture, layout: Layout, tflops: float, chunks: int, *, fp8: bool = False
) -> float:
    """Return the relative error; above 0, the arithmetic predicts too much."""
    gpus = layout.tensor * layout.pipeline * layout.data
    cluster = Cluster(nodes=gpus // 8, gpus=8, gpu=H100.gpu)
    practice = IN_2024.model_copy(update={"chunks": chunks if layout.pipeline > 1 else 1})
    step = step_time(target, layout, cluster, H100, practice, fp8=fp8)
    flops = TrainingFlops.of(target, vocab_size=target.vocab_size, seq_len=target.seq_len)
    tokens = layout.global_batch * target.seq_len
    return flops.per_token * tokens / step.total_s / gpus / 1e12 / tflops - 1


def _layout(tensor: int, pipeline: int, data: int, micro_batch: int, global_batch: int) -> Layout:
    return Layout(
        tensor=tensor,
        pipeline=pipeline,
        data=data,
        micro_batch=micro_batch,
        global_batch=global_batch,
    )


def _gpt(heads: int, width: int, layers: int) -> TargetArchitecture:
    values = {
        "name": "gpt",
        "d_model": width,
        "n_layer": layers,
        "n_head": heads,
        "n_kv_head": heads,
        "head_dim": width // heads,
        "ffn_ratio": 4.0,
        "activation": "gelu",
        "norm": "layernorm",
        "positions": "learned",
        "seq_len": 4096,
        "vocab_size": 131_072,
        "tie_embeddings": False,
    }
    shape = TargetArchitecture.model_construct(**values)
    count = ParameterCount.of(shape, 131_072).total
    return TargetArchitecture.model_validate({**values, "params": count})


def _llama_405b() -> TargetArchitecture:
    values = load_target("llama-70b").model_dump() | {
        "name": "llama-405b",
        "params": 411_000_000_000,
        "d_model": 16384,
        "n_layer": 128,
        "n_head": 128,
        "ffn_ratio": 3.25,
    }
    return TargetArchitecture.model_validate(values)
