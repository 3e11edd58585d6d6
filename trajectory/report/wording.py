"""Numbers, knobs' values and untrusted texts, as the page writes them."""

import unicodedata
from dataclasses import dataclass

from autoresearch.domains.base import Bin
from autoresearch.values import Scalar
from trainer.schema import BPB, Measure
from trajectory.statistics.intervals import Estimate

MINUS = "\u2212"


def number(value: float | None, digits: int = 4) -> str:
    """Return the number with this many decimals and a typographic minus sign; a dash for None."""
    if value is None:
        return "–"
    return f"{value:,.{digits}f}".replace("-", MINUS)


def signed(value: float | None, digits: int = 4) -> str:
    """Format like :func:`number`, but always with a sign."""
    return "–" if value is None else f"{value:+,.{digits}f}".replace("-", MINUS)


def percent(share: float, digits: int = 0) -> str:
    """Return a proportion in percent: 0.125 as ``12 %``."""
    return f"{100 * share:.{digits}f} %"


def span(lo: float | None, hi: float | None, digits: int = 4) -> str:
    """Return ``2.6203 … 2.6649``, or ``unknown`` if there is no interval."""
    if lo is None or hi is None:
        return "unknown"
    return f"{number(lo, digits)} … {number(hi, digits)}"


@dataclass(frozen=True, slots=True)
class ScoreFormat:
    """Formats objectives as scores, with the campaign's number of decimals."""

    measure: Measure = BPB

    def text(self, objective: float | None) -> str:
        """Return a score; a dash for None."""
        return number(self._turned(objective), self.measure.digits)

    def signed(self, delta: float | None) -> str:
        """Return a difference of scores, always with a sign."""
        return signed(self._turned(delta), self.measure.digits)

    def size(self, amount: float | None) -> str:
        """Return an error or a spread, which has no direction."""
        return number(amount, self.measure.digits)

    def span(self, lo: float | None, hi: float | None) -> str:
        """Return an interval of objectives or of differences, its lower end first."""
        if lo is None or hi is None:
            return "unknown"
        return span(*self.measure.ends(lo, hi), self.measure.digits)

    def half_width(self, estimate: Estimate) -> str:
        """Return ``± 0.0231`` for a symmetric interval; empty if there is none."""
        if estimate.hi is None:
            return ""
        return f"± {self.size(estimate.hi - estimate.value)}"

    def _turned(self, objective: float | None) -> float | None:
        if objective is None or self.measure.direction == "minimise":
            return objective
        return self.measure.score(objective) + 0.0  # avoids "-0"


def money(usd: float) -> str:
    """Return an amount to the cent or, below ten cents, to two significant digits."""
    return f"${usd:,.2f}" if usd >= 0.1 else f"${usd:.2g}"


def rate(usd: float) -> str:
    """Return a unit price in dollars, at least to the cent: ``$0.30``, ``$0.1234``."""
    return "$" + max(f"{usd:.2f}", f"{usd:.6g}", key=len)


def value_text(value: Scalar) -> str:
    """Return a knob's value in a few characters."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return f"{value:.3g}" if isinstance(value, float) else label(str(value)) or '""'


def cell_text(cell: Scalar | Bin) -> str:
    """Return a knob's value, or the ends of a bin of its values: ``5 – 9``, ``2.6e-4 – 0.002``."""
    return f"{_edge(cell.low)} – {_edge(cell.high)}" if isinstance(cell, Bin) else value_text(cell)


def _edge(edge: float) -> str:
    """Return an integer in full, others to two digits; ``2.6e-4`` where zeros would be longer."""
    if isinstance(edge, int):
        return str(edge)
    if 0 < abs(edge) < 1e-3:
        mantissa, exponent = f"{edge:.1e}".split("e")
        return f"{mantissa.removesuffix('.0')}e{int(exponent)}"
    return f"{edge:.2g}"


_JOINERS = "\u200c\u200d"
"""Zero-width characters that the spelling of some scripts and emoji needs."""


def shown(text: str) -> str:
    """Return the text with its invisible characters spelled out, such as ``⟨U+202E⟩``.

    Bidirectional overrides, zero-width characters and control codes can make a page show a
    different text from the one received. Line breaks and tabs stay. The template escapes HTML.
    """
    if text.isprintable():
        return text
    return "".join(
        f"⟨U+{ord(character):04X}⟩" if _is_invisible(character) else character
        for character in text.replace("\r\n", "\n")
    )


def label(text: str, limit: int = 32) -> str:
    """Return the text on one line of at most ``limit`` characters, for axes, headings and cells."""
    return cut(" ".join(shown(text).split()), limit)


def cut(text: str, limit: int) -> str:
    """Return at most ``limit`` characters, the last an ellipsis if some are missing."""
    return text if len(text) <= limit else text[: limit - 1] + "…"


def _is_invisible(character: str) -> bool:
    if character in "\n\t" or character in _JOINERS:
        return False
    return unicodedata.category(character) in {"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"}
