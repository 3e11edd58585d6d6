"""Untrusted texts, made safe to show."""

from __future__ import annotations

import unicodedata

_JOINERS = "\u200c\u200d"
"""Zero-width characters that the spelling of some scripts and emoji needs."""


def shown(text: str) -> str:
    """Return the text with its invisible characters spelled out, such as ``⟨U+202E⟩``.

    Bidirectional overrides, zero-width characters and control codes can make a page show a
    different text from the one received. Line breaks and tabs stay. The template escapes HTML.
    """
    if text.isascii() and text.isprintable():
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
