"""Provide published throughputs of whole training runs, and the step arithmetic's results for them.

``h100``: the weak-scaling table of Megatron-LM's README (images/model_table.png, Megatron-Core
r0.8.0, July 2024): GPTs with untied tables of 131,072 tokens, sequences of 4,096, bf16, DP 48;
model FLOPs. The table does not give the micro-batch or the chunks of the pipeline. The fastest
micro-batch that fits is used, and a chunk of one layer.

``held_out``: other runs, to which nothing was fitted. They are Llama 3 405B on H100 (arXiv
2407.21783, table 4, bf16; its 126 layers are on 16 stages as if there were 128), and dense models
of NVIDIA's Megatron-Bridge summary (docs/performance-summary.md and its archive, containers 25.11
and 26.02) on H100 in fp8, whose products are assumed to be twice as fast as bf16's. The run on B200
is the source of B200's share.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from funnel.cost.gpus import MACHINES, Machine
from funnel.plan.layout import Cluster, Layout, memory_use
from funnel.plan.step_time import Practice, StepTime, step_time
from funnel.target.architecture import TargetArchitecture, load_target
from funnel.target.shape import ParameterCount
from trainer.machine.flops import TrainingFlops


@dataclass(frozen=True, slots=True)
class Published:
    """Hold a row of a table."""

    name: str
    heads: int
    width: int
    layers: int
    tensor: int
    pipeline: int
    gpus: int
    batch: int
    tflops: float
    """TFLOP/s per GPU, as in the table."""


README_2024 = (
    Published("1.7B", 16, 2048, 24, 1, 1, 48, 192, 408.8),
    Published("7.1B", 32, 4096, 30, 2, 1, 96, 192, 465.9),
    Published("16B", 48, 6144, 32, 4, 1, 192, 192, 489.1),
    Published("32B", 56, 7168, 48, 8, 1, 384, 192, 459.6),
    Published("70B", 64, 8192, 84, 8, 2, 768, 384, 419.7),
    Published("119B", 80, 10240, 92, 8, 4, 1536, 768, 420.5),
    Published("177B", 96, 12288, 96, 8, 6, 2304, 1152, 432.8),
    Published("314B", 128, 16384, 96, 8, 8, 3072, 1536, 474.4),
    Published("462B", 144, 18432, 112, 8, 16, 6144, 3072, 459.9),
)


@dataclass(frozen=True, slots=True)
class HeldOut:
    """Hold a run of another table."""

    name: str
    gpu: str
    target: str
    layout: Layout
    tflops: float
    """TFLOP/s per GPU, counting the model's FLOPs."""
    fp8: bool
    chunks: int = 1


def _run(name: str, gpu: str, target: str, shape: str, tflops: float, chunks: int = 1) -> HeldOut:
    """Return a run; ``shape`` lists TP, PP, DP, micro-batch and global batch."""
    tensor, pipeline, data, micro_batch, global_batch = map(int, shape.split())
    layout = Layout(
        tensor=tensor,
        pipeline=pipeline,
        data=data,
        micro_batch=micro_batch,
        global_batch=global_batch,
    )
    fp8 = not name.startswith("Llama 3 405B")
    return HeldOut(name, gpu, target, layout, tflops, fp8, chunks)


HELD_OUT = (
    _run("Llama 3 405B, 8,192 GPUs", "h100", "405b", "8 16 64 1 2048", 430, 4),
    _run("Llama 3 405B, 16,384 GPUs", "h100", "405b", "8 16 128 1 2048", 400, 4),
    _run("8B fp8, 8 H100", "h100", "llama-7b", "1 1 8 1 128", 744),
    _run("70B fp8, 64 H100, batch 128", "h100", "llama-70b", "4 8 2 1 128", 719, 5),
    _run("70B fp8, 64 H100, batch 256", "h100", "llama-70b", "4 8 2 1 256", 728, 5),
    _run("8B fp8, 8 B200", "b200", "llama-7b", "1 1 8 2 128", 1576),
)
IN_2024 = Practice(tensor_hidden=0.7, pipeline_hidden=True)
"""Practice with everything overlapped. ``--tp-comm-overlap`` is assumed to hide all but the first
and last pieces that it sends."""


def target_of(row: Published, *, seq_len: int, vocab_size: int, tied: bool) -> TargetArchitecture:
    """Return the row's model."""
    values = {
        "name": row.name,
        "d_model": row.width,
        "n_layer": row.layers,
        "n_head": row.heads,
        "n_kv_head": row.heads,
        "head_dim": row.width // row.heads,
        "ffn_ratio": 4.0,
        "activation": "gelu",
        "norm": "layernorm",
        "positions": "learned",
        "seq_len": seq_len,
        "vocab_size": vocab_size,
        "tie_embeddings": tied,
    }
    shape = TargetArchitecture.model_construct(**values)
    count = ParameterCount.of(shape, vocab_size).total
    return TargetArchitecture.model_validate({**values, "params": count})


@dataclass(frozen=True, slots=True)
class Compared:
    """Hold a row, and the arithmetic's result for it."""

    row: Published
    layout: Layout
    step: StepTime
    tflops: float

    @property
    def error(self) -> float:
        """Return the relative error; above 0, the arithmetic predicts too much."""
        return self.tflops / self.row.tflops - 1


def h100_rows(machine: Machine = MACHINES["h100"]) -> Iterator[Compared]:
    """Yield the README's table."""
    for row in README_2024:
        target = target_of(row, seq_len=4096, vocab_size=131_072, tied=False)
        flops = TrainingFlops.of(target, vocab_size=131_072, seq_len=4096).per_token
        chunks = row.layers // row.pipeline if row.pipeline > 1 else 1
        practice = IN_2024.model_copy(update={"chunks": chunks})
        tries = [
            _compared(row, target, machine, practice, layout, flops)
            for layout in _fitting(row, target, machine)
        ]
        yield max(tries, key=lambda one: one.tflops)


def held_out() -> Iterator[tuple[HeldOut, float]]:
    """Yield each run with the arithmetic's relative error."""
    for run in HELD_OUT:
        target = _llama_405b() if run.target == "405b" else load_target(run.target)
        machine = MACHINES[run.gpu]
        layout = run.layout
        gpus = layout.tensor * layout.pipeline * layout.data
        cluster = Cluster(nodes=gpus // 8, gpus=8, gpu=machine.gpu)
        practice = IN_2024.model_copy(update={"chunks": run.chunks})
        step = step_time(target, layout, cluster, machine, practice, fp8=run.fp8)
        flops = TrainingFlops.of(target, vocab_size=target.vocab_size, seq_len=target.seq_len)
        tokens = layout.global_batch * target.seq_len
        yield run, flops.per_token * tokens / step.total_s / gpus / 1e12 / run.tflops - 1


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


def _fitting(row: Published, target: TargetArchitecture, machine: Machine) -> Iterator[Layout]:
    for micro_batch in (1, 2, 4):
        if row.batch // 48 % micro_batch == 0:
            layout = _layout(row, micro_batch)
            if layout.accumulation >= row.pipeline and (
                micro_batch == 1 or memory_use(target, layout, machine.gpu, fp8=False).fits
            ):
                yield layout


def _layout(row: Published, micro_batch: int) -> Layout:
    return Layout.model_validate(
        {
            "tensor": row.tensor,
            "pipeline": row.pipeline,
            "data": row.gpus // (row.tensor * row.pipeline),
            "micro_batch": micro_batch,
            "global_batch": row.batch,
        }
    )


def _compared(
    row: Published,
    target: TargetArchitecture,
    machine: Machine,
    practice: Practice,
    layout: Layout,
    flops_per_token: float,
) -> Compared:
    cluster = Cluster(nodes=row.gpus // 8, gpus=8, gpu=machine.gpu)
    step = step_time(target, layout, cluster, machine, practice)
    tokens = layout.global_batch * target.seq_len
    tflops = flops_per_token * tokens / step.total_s / row.gpus / 1e12
    return Compared(row=row, layout=layout, step=step, tflops=tflops)
