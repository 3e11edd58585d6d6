"""Describe the two runs that a forecast connects, and its assumptions, with its own numbers.

The runs are the proxy's long run and the target's run.
"""

import math
from collections.abc import Iterator

from autoresearch.errors import HandoffError
from autoresearch.values import Frozen, NonNegativeInt, Positive, PositiveInt
from funnel.forecast.loss_law import COVERAGE, LossLaw
from funnel.target.shape import size_text


class Text(Frozen):
    """Definition of a token in one of the two runs."""

    tokenizer: str
    vocab_size: PositiveInt
    bytes_per_token: Positive | None
    """Mean UTF-8 bytes per token; None if unknown."""


class BothRuns(Frozen):
    """The two runs and their differences, as a forecast records them."""

    target: str
    corpus: str
    """Corpus that the proxies were trained on."""
    proxy_text: Text
    target_text: Text
    proxy_params: PositiveInt
    """The proxy's parameters, without embeddings."""
    target_params: PositiveInt
    proxy_tokens_per_step: PositiveInt
    tokens_per_step: PositiveInt
    """The target's tokens per step."""
    seq_len: PositiveInt
    """The target's sequence length; it converts a log's samples into tokens."""
    first_day_tokens: PositiveInt
    """Tokens in 24 hours at the planned utilization, even if the run is shorter."""


class PlannedRuns(BothRuns):
    """The two runs with the parts of the target's schedule that a forecast depends on."""

    warmup_steps: NonNegativeInt
    """The target's warm-up steps."""
    total_tokens: PositiveInt
    """The target's token budget; no forecast extends past it."""

    @property
    def nats_to_bpb(self) -> float:
        """Factor from the proxy's nats per token to bits per byte.

        :raises HandoffError: if the bytes per token are unknown.
        """
        if self.proxy_text.bytes_per_token is None:
            raise HandoffError(
                f"the corpus {self.corpus} does not say how many bytes a token has, and a forecast "
                "in bits per byte needs it; prepare the corpus again with: autoresearch data "
                "prepare"
            )
        return 1 / (math.log(2) * self.proxy_text.bytes_per_token)


SIZE_EXPONENT = 0.076
"""Exponent of the loss in parameters without embeddings (Kaplan et al. 2020)."""
NO_LADDER = "there was no ladder"
NO_FLOOR = 0.1
"""Least floor of a law, relative to the loss at the middle of the curve.

A smaller fitted floor does not show where the loss ends.
"""


def assumptions(
    fall: LossLaw,
    both: PlannedRuns,
    size_factor: float,
    first: int,
    last: int,
    no_ladder: str = NO_LADDER,
) -> Iterator[str]:
    """Yield the assumptions of a forecast from the proxy's law, one sentence each.

    :param first: tokens at which the forecast begins.
    :param last: tokens at which the forecast ends.
    :param no_ladder: why the forecast is not from a ladder.
    """
    proxy, target = both.proxy_text, both.target_text
    yield (
        f"{no_ladder}: how much a larger model gains is taken from the literature and not "
        "measured, and nothing says what verify would catch; autoresearch ladder trains this "
        "recipe at several sizes, and the plan made after it has a band from its law, and says "
        "which faults would be caught and when"
    )
    yield (
        f"the cloud trains on text like the corpus {both.corpus}: bits per byte of other text are "
        "other numbers"
    )
    yield (
        f"bits per byte are from {proxy.tokenizer} at {proxy.bytes_per_token:.4g} bytes a token; "
        + _about_the_log(proxy, target)
    )
    yield (
        f"the law was seen from {size_text(fall.from_tokens)} to {size_text(fall.to_tokens)} "
        f"tokens and extends to {size_text(last)}, {last / fall.to_tokens:,.3g} times as far; the "
        f"band widens by {fall.drift_per_doubling:.2%} with each doubling, the law's own error "
        "when it is fitted to the earlier part of the curve"
    )
    yield (
        f"the target has {both.target_params / both.proxy_params:,.3g} times the proxy's "
        f"parameters: between no gain (high edge) and {size_factor:.3f} of the loss (low edge, "
        f"N^-{SIZE_EXPONENT} of Kaplan et al. 2020)"
    )
    ratio = both.tokens_per_step / both.proxy_tokens_per_step
    if ratio != 1:
        yield (
            f"a step has {ratio:,.3g} times the proxy's tokens: between the proxy's loss at equal "
            "tokens and at equal steps"
        )
    yield from _about_the_ends(fall, both, first=first, last=last)


def _about_the_ends(fall: LossLaw, both: PlannedRuns, *, first: int, last: int) -> Iterator[str]:
    """Yield the assumptions about the warm-up, the floor, the last tokens and the edges."""
    yield f"no forecast covers the first {size_text(first)} tokens, where the loss plunges"
    warmup_tokens = both.warmup_steps * both.tokens_per_step
    if warmup_tokens > first:
        yield (
            f"warm-up lasts {both.warmup_steps:,} steps ({size_text(warmup_tokens)} tokens); "
            "through it the high edge counts progress by the sum of learning rates (Tissue et al. "
            "2024)"
        )
    if fall.floor < NO_FLOOR * (fall.floor + fall.amplitude):
        yield (
            "the curves are too short to show where the loss ends (the fitted floor is next to "
            "nothing), so the low edge and the middle fall further than a real loss would"
        )
    if last > both.first_day_tokens:
        yield (
            f"the first 24 hours ({size_text(both.first_day_tokens)} tokens) are not enough to "
            "get past that, so the forecast continues beyond them"
        )
    yield (
        f"edges are {COVERAGE:.0%} quantiles over {fall.runs} run{'s' * (fall.runs != 1)}, block "
        f"bootstrap, and a run-to-run sd of {fall.run_sd:.2%}"
    )


def _about_the_log(proxy: Text, target: Text) -> str:
    if target.bytes_per_token is not None:
        return (
            f"the cloud's tokenizer has {target.bytes_per_token:.4g}, as given by --bytes-per-token"
        )
    if target.vocab_size == proxy.vocab_size:
        return "the cloud's log is taken to be in the same tokenizer"
    return (
        f"the target's vocabulary of {target.vocab_size:,} is another, so its log needs "
        "--bytes-per-token"
    )
