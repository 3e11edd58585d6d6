"""Provide published training runs and their settings, which the rules of transfer must come near.

For runs whose batch grew, the entry has the last batch, at which most tokens were trained.
"""

from dataclasses import dataclass
from typing import NamedTuple

from tests.support.configs import config
from trainer.schema import Config


@dataclass(frozen=True, slots=True)
class PublishedRun:
    """Hold one published run."""

    name: str
    config: Config
    """The run's shape, its rate, and its batch if that is published."""
    tokens: int
    tokens_per_step: int | None
    """None if it is not published."""
    source: str


def _run(
    name: str,
    shape: tuple[int, int, int, int, int],
    tokens: float,
    lr: float,
    tokens_per_step: float | None,
    source: str,
    activation: str = "swiglu",
) -> PublishedRun:
    d_model, n_layer, n_head, n_kv_head, d_ff = shape
    return PublishedRun(
        name=name,
        config=config(
            d_model=d_model,
            n_layer=n_layer,
            n_head=n_head,
            n_kv_head=n_kv_head,
            d_ff=d_ff,
            activation=activation,
            norm="rmsnorm",
            positions="rotary",
            lr=lr,
            seq_len=4096,
            batch_size=round((tokens_per_step or 4096) / 4096),
            weight_decay=0.1,
        ),
        tokens=round(tokens),
        tokens_per_step=None if tokens_per_step is None else round(tokens_per_step),
        source=source,
    )


_LLAMA_2 = "arXiv 2307.09288, table 1: batches of 4 M tokens"
_LLAMA_3 = "arXiv 2407.21783, table 3; the batch is published for 405 B alone, 4 to 16 M (3.4.1)"
_OLMO_2 = "allenai/OLMo, configs/official-1124 and scripts/augusta/peteish13.sh"

RUNS = (
    _run("Llama 2 7B", (4096, 32, 32, 32, 11008), 2e12, 3e-4, 2**22, _LLAMA_2),
    _run("Llama 2 13B", (5120, 40, 40, 40, 13824), 2e12, 3e-4, 2**22, _LLAMA_2),
    _run("Llama 2 70B", (8192, 80, 64, 8, 28672), 2e12, 1.5e-4, 2**22, _LLAMA_2),
    _run("Llama 3 8B", (4096, 32, 32, 8, 14336), 15e12, 3e-4, None, _LLAMA_3),
    _run("Llama 3 70B", (8192, 80, 64, 8, 28672), 15e12, 1.5e-4, None, _LLAMA_3),
    _run("Llama 3 405B", (16384, 126, 128, 8, 53248), 15.6e12, 8e-5, 2**24, _LLAMA_3),
    _run("OLMo 2 7B", (4096, 32, 32, 32, 11008), 3.896e12, 3e-4, 2**22, _OLMO_2),
    _run("OLMo 2 13B", (5120, 40, 40, 40, 13824), 5.001e12, 9e-4, 2**23, _OLMO_2),
    _run(
        "Chinchilla 70B",
        (8192, 80, 64, 64, 32768),
        1.4e12,
        1e-4,
        3e6,
        "arXiv 2203.15556, table 4: batches of 1.5 M tokens, then 3 M",
        activation="gelu",
    ),
)


class Cell(NamedTuple):
    """Hold the best run of one size and length of Step Law's grid."""

    d_model: int
    n_layer: int
    n_head: int
    d_ff: int
    tokens: float
    lr: float
    batch_size: int
    """Sequences of 2,048 tokens."""

    @property
    def config(self) -> Config:
        return config(
            d_model=self.d_model,
            n_layer=self.n_layer,
            n_head=self.n_head,
            d_ff=self.d_ff,
            activation="swiglu",
            norm="rmsnorm",
            positions="rotary",
            lr=self.lr,
            lr_warmup=0,
            seq_len=2048,
            batch_size=self.batch_size,
            weight_decay=0.1,
        )

    @property
    def steps(self) -> int:
        return round(self.tokens / self.tokens_per_step)

    @property
    def tokens_per_step(self) -> int:
        return 2048 * self.batch_size

    @property
    def params(self) -> int:
        """Parameters without embeddings, as the grid counts them: 4 d_model² + 3 d_model d_ff per
        layer."""
        return self.n_layer * self.d_model * (4 * self.d_model + 3 * self.d_ff)


# github.com/step-law/steplaw, data/dense_lr_bs_loss.csv at 32a8f4c: for each N and D the row with
# the lowest smooth loss, of 47 to 120. Rates and batches of the grid are a factor of 1.4 apart.
STEP_LAW_GRID = (
    Cell(960, 7, 15, 9368, 4e09, 0.002762, 128),
    Cell(960, 7, 15, 9368, 1.14e10, 0.002762, 192),
    Cell(960, 7, 15, 9368, 2e10, 0.00391, 256),
    Cell(960, 7, 15, 9368, 1e11, 0.007812, 1024),
    Cell(1024, 8, 16, 9552, 5e09, 0.001953, 128),
    Cell(1024, 8, 16, 9552, 1.42e10, 0.003906, 192),
    Cell(1024, 8, 16, 9552, 2.5e10, 0.00391, 352),
    Cell(1024, 8, 16, 9552, 8e10, 0.003906, 512),
    Cell(1280, 10, 10, 9472, 8e09, 0.001953, 128),
    Cell(1280, 10, 10, 9472, 2.27e10, 0.00195, 192),
    Cell(1280, 10, 10, 9472, 4e10, 0.00276, 256),
    Cell(1280, 10, 10, 9472, 5e10, 0.001953, 256),
    Cell(1280, 13, 10, 9048, 1e10, 0.0009766, 128),
    Cell(1280, 13, 10, 9048, 2.84e10, 0.00195, 192),
    Cell(1280, 13, 10, 9048, 5e10, 0.00276, 352),
    Cell(2048, 16, 16, 8192, 2e10, 0.001381, 256),
    Cell(2048, 16, 16, 8192, 5.69e10, 0.001381, 256),
)
