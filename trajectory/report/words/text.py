"""Texts from proposers, made fit to be looked at."""

from __future__ import annotations

import unicodedata

_JOINERS = "\u200c\u200d"
"""Part of the spelling of some scripts and emoji."""


def shown(text: str) -> str:
    """The text with what is invisible in it spelled out, as ``⟨U+202E⟩``.

    Bidirectional overrides, zero-width characters and control codes can make a page show another
    text than the one that was received. Line breaks and tabs stay. Escaping for HTML is the
    template's affair.
    """
    if text.isascii() and text.isprintable():
        return text
    return "".join(
        f"⟨U+{ord(character):04X}⟩" if _is_invisible(character) else character
        for character in text.replace("\r\n", "\n")
    )


def label(text: str, limit: int = 32) -> str:
    """On one line, at most ``limit`` characters: for axes, headings and cells."""
    return cut(" ".join(shown(text).split()), limit)


def cut(text: str, limit: int) -> str:
    """At most ``limit`` characters, the last an ellipsis where some are missing."""
    return text if len(text) <= limit else text[: limit - 1] + "…"


def _is_invisible(character: str) -> bool:
    if character in "\n\t" or character in _JOINERS:
        return False
    return unicodedata.category(character) in {"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"}
