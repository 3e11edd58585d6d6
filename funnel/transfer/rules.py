"""Published rules that scale a recipe's values with width, depth, length and batch.

A plan applies one rule for each value, and shows the values by the others:

- width: ``mup`` (Yang et al. 2022, arXiv 2203.03466, tables 3 and 8, Adam): the rate and Adam's
  epsilon of the blocks' matrices, their variance at the start, and the logits × d_base / d_model.
  ``sqrt_width`` (no paper; the published shortcut of a 7 B plan): every rate × its square root.
  ``step_law`` (Li et al. 2025, arXiv 2503.04715, equation 1 and its published fit; 60 M to 1.1 B
  parameters): every rate × (N / N_base)^-0.713, depth included;
- depth: ``depth_mup`` (Yang et al. 2023, arXiv 2310.02244; alpha = 1/2 of arXiv 2505.01618, table
  1). ``complete_p`` (Dey et al. 2025, arXiv 2505.01618, alpha = 1; kept by arXiv 2512.22382) leaves
  the rate as it is, with multipliers on residual branches. A launcher has no such multipliers, and
  without them the branches initially add up to the square root of their number;
- length: ``delphi`` (Marin's Delphi recipe). ``microsoft`` (Bjorck et al. 2024, arXiv 2409.19913).
  ``complete_d`` (Mlodozeniec et al. 2025, arXiv 2512.22382). ``step_law``: D^0.307 with its own
  batch. docs/transfer.md compares them with published runs;
- batch: every rate × sqrt(B / B_base) below the critical batch (Malladi et al. 2022, arXiv
  2205.10287);
- tokens a step: ``step_law``. ``power_lines`` (Bergsma et al. 2025, arXiv 2505.13738);
- weight decay: ``power_lines``. ``timescale`` (Wang and Aitchison 2024, arXiv 2405.13698) keeps
  AdamW's time scale;
- warm-up: ``fraction`` keeps its share of the steps. ``untuned`` (Ma and Yarats 2019, arXiv
  1910.04209): 2 / (1 - beta2) steps.

AdamW's weights are a moving average of its updates over 1 / (lr × weight_decay) steps. The time
scale is that number as a share of a run of S steps: tau = 1 / (lr × weight_decay × S).
"""

from typing import Literal, TypeAlias

WidthRule: TypeAlias = Literal["mup", "sqrt_width"]

SIZE_EXPONENT = -0.713
LENGTH_EXPONENTS = {
    "delphi": -0.3,
    "microsoft": -0.32,
    "complete_d": -0.5,
    "step_law": 0.307 - 0.571 / 2,
    "none": 0.0,
}
"""Exponent of the tokens at one batch, by rule."""
SMALL = 3.5e8
"""Parameters below which the exponent of the tokens was seen to be steeper."""
STEEP_EXPONENT = -0.7029
"""Exponent of the tokens at 50 M parameters (Bjorck et al., arXiv 2409.19913v3, table 5)."""
SEEN = (
    ("Delphi", "tokens", 2.3e9, 6e11),
    ("Step Law, batch", "tokens", 4e9, 1e11),
    ("Power Lines, time scale", "tokens a parameter", 20.0, 1280.0),
)
"""The ranges over which the applied rules were fitted or tested."""
POWER_LINES_SEQUENCE = 2048
"""Tokens per sequence in the laws of Power Lines."""
FELT = 1.0
"""Longest time scale, as a share of the run, of a decay that affects the run."""


def step_law_lr(params: float, tokens: float) -> float:
    """Return AdamW's best peak rate for a model and its data, the same for all weights.

    Step Law was tested at 60 M to 1.1 B parameters without embeddings and 4 to 100 B tokens, with
    its own batch.
    """
    return float(1.79 * params**SIZE_EXPONENT * tokens**0.307)


def batches(tokens: float, kept: float) -> dict[str, float]:
    """Return the tokens per step by each rule; the first is applied.

    :param tokens: tokens of the large run.
    :param kept: the small run's tokens per step.
    """
    return {
        "step_law": 0.58 * tokens**0.571,
        "power_lines": POWER_LINES_SEQUENCE * 0.0306 * tokens**0.383,
        "kept": kept,
    }


def critical_batch(tokens: float) -> float:
    """Return the tokens per step above which a run of this many tokens hardly saves steps.

    The exponent was checked against the paper of Power Lines. The factor is from memory and could
    not be checked; only a note depends on it.
    """
    return float(POWER_LINES_SEQUENCE * 0.0471 * tokens**0.462)


def timescale(lr: float, weight_decay: float, steps: float) -> float:
    """Return AdamW's time scale as a share of the run; infinite without decay."""
    shrunk = lr * weight_decay * steps
    return 1 / shrunk if shrunk else float("inf")


def best_timescale(tokens_per_param: float) -> float:
    """Return the best time scale by Power Lines, as a share of the run."""
    return float(1.084 * tokens_per_param**-0.527)


def carried_timescale(*, base: float, tpp_base: float, tpp: float) -> float:
    """Return the long run's time scale by Power Lines.

    A small run whose time scale is longer than itself did not show the effect of its decay, so the
    long run then has the best time scale.

    :param base: the small run's time scale.
    :param tpp_base: tokens per parameter of the small run.
    :param tpp: tokens per parameter of the long run.
    """
    return best_timescale(tpp) if base > FELT else float(base * (tpp / tpp_base) ** -0.527)
