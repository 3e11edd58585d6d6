"""Parse and format counts of parameters and tokens such as ``200M`` or ``1.24B``."""

from __future__ import annotations

import re

from autoresearch.errors import AutoresearchError

_UNITS = {"": 1, "K": 10**3, "M": 10**6, "B": 10**9, "T": 10**12}
_SIZE = re.compile(r"(\d{1,15}(?:\.\d{1,9})?)([KMBT]?)", re.ASCII)


def parse_size(text: str) -> int:
    """Return the positive whole number that a text such as ``200M`` or ``1.5B`` denotes.

    :raises AutoresearchError: if the text is not such a size.
    """
    match = _SIZE.fullmatch(text.strip().upper().replace(",", "").replace("_", ""))
    size = round(float(match[1]) * _UNITS[match[2]]) if match else 0
    if size < 1:
        raise AutoresearchError(
            f"a size of {text[:40]!r} cannot be read; write it like 200M, 1.5B or 200000000"
        )
    return size


def size_text(count: int) -> str:
    """Return a count with three significant digits and a unit, such as ``212M``."""
    digits, exponent = f"{count:.2e}".split("e")
    unit, power = max(
        ((unit, power) for unit, power in _UNITS.items() if power <= 10 ** int(exponent)),
        key=lambda pair: pair[1],
    )
    return f"{float(digits) * 10 ** int(exponent) / power:.15g}{unit}"
