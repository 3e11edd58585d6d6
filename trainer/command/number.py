"""Find a number in a printed line by a pattern.

The patterns were written for the menu, not by the script. One that takes forever on a hostile line
uses the trial's own time, since this runs in the trial's process.

A pattern such as ``val loss ([0-9.]+)`` describes a valid number, and a diverged run prints ``val
loss nan``. So where a pattern finds no number, nan and inf are taken for a zero: a match that
begins there is a score that is not finite.
"""

import re

ESCAPE = "\x1b"
FILE_MARK = "\x1eautoresearch-file "
"""What begins a line that tells a number in a file which a run wrote."""
_NOT_FINITE = re.compile(r"(?i:[-+]?(?:nan|inf(?:inity)?)(?!\w))")
_DIGITS_GO_ON = re.compile(r"\d|[eE][-+]?\d|\.\d")
_WITH_COMMA = re.compile(r"[-+]?\d+,\d")
_BEGUN_BEFORE = re.compile(r"(?:\d\.?|(?:^|[\s:=(\[{,'\"])-)$")
"""Context of a partial number: digits, a decimal comma, its sign."""
_WORD_GOES_ON = re.compile(r"[^\W\d]")
_THOUSANDS = re.compile(r"[-+]?\d{1,3}(?:(?:,\d{3})+\.\d+|(?:,\d{3}){2,})(?!\w|[.,]\d)")
"""Commas that certainly separate thousands; 3,200 may have a decimal comma."""
_WHOLE = re.compile(r"[-+\w.,]+")
_ESCAPES = r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[ -/]*[0-Z\\^-~])"
_WRAPPED = (
    r"\b(?:\w+\.)?(?:[tT]ensor|[aA]rray|b?float\d+|u?int\d+)\(\s*\[*\s*"
    r"([-+]?\d[-+.\deE]*|(?i:[-+]?(?:nan|inf)))\s*\]*(?:,\s*\w+=[^()]*(?:\([^()]*\))?[^()]*)?\)"
)
_ARRAY = r"(?<![\w\])])\[+\s*([-+]?\d*\.[\d.]*(?:e[-+]?\d+)?|(?i:[-+]?(?:nan|inf)))\s*\]+"
_CLEANED = (
    (ESCAPE, re.compile(_ESCAPES), "", r"\\x1b|\\0?33|\x1b"),
    ("(", re.compile(_WRAPPED), r"\1", r"ensor|rray|float|int\d"),
    ("[", re.compile(_ARRAY), r"\1", r"\\[\[\]]"),
)
"""Parts removed from a line, behind a text that each holds, unless the pattern mentions them:
colors, ``tensor(…)`` or ``np.float64(…)`` around a number, and the brackets of an array of one."""


_ESCAPED, _CLASS, _GROUP = (
    re.compile(r"\\."),
    re.compile(r"\[\^?\]?[^\]]*\]"),
    re.compile(r"\([^()]*\)"),
)
_LETTERS = re.compile(r"[A-Za-z]+(?: [A-Za-z]+)*(?![?*{])")
_UNLIKE = re.compile(r"\(\?\w*[ix]|.*\\[xuN]", re.DOTALL)
"""Patterns whose letters are not those of the line."""


def needle(pattern: str) -> str:
    """Return a text outside the groups of a pattern, without which no line matches it; empty if
    none is certain."""
    flat = _CLASS.sub(".", _ESCAPED.sub(".", pattern))
    groups = 1
    while groups:
        flat, groups = _GROUP.subn(".", flat)
    if _UNLIKE.match(pattern) or set("(|") & set(flat):
        return ""
    return max(_LETTERS.findall(flat), key=len, default="")


class Number:
    """Finds one group of a pattern, as a number, in a line."""

    def __init__(self, pattern: str, group: int = 1) -> None:
        self._found = re.compile(pattern)
        self._removed = [one[:3] for one in _CLEANED if not re.search(one[3], pattern)]
        self._group = group
        self.cut = ""
        """First number of which the pattern matched only a part."""

    def search(self, line: str) -> tuple[re.Match[str], float] | None:
        """Return the first match and its number, which may be nan or infinite; or None.

        A number that continues as a word (``3.2abc``) does not count.
        """
        line = self.cleaned(line)
        match = self._found.search(line)
        if match is not None:
            begin, end = match.span(self._group)
            thousands = _THOUSANDS.match(line, begin)
            number = number_in(thousands[0] if thousands else match[self._group])
            if number is not None:
                if not thousands and _is_cut(line, begin, end):
                    while begin and _WHOLE.fullmatch(line[begin - 1]):
                        begin -= 1
                    whole = _WHOLE.match(line, begin)
                    self.cut = self.cut or (whole[0].rstrip(".,") if whole else "")
                elif not thousands and match.end() == end and _WORD_GOES_ON.match(line, end):
                    return None  # no unit that the pattern expects
                return match, number
        zeros = _NOT_FINITE.sub(lambda lost: f"0.{'0' * (len(lost[0]) - 2)}", line)
        match = self._found.search(zeros) if zeros != line else None
        lost = _NOT_FINITE.match(line, match.start(self._group)) if match else None
        return (match, float(lost[0])) if match and lost else None

    def cleaned(self, line: str) -> str:
        """Return the line without what surrounds its text and numbers."""
        for mark, found, to in self._removed:
            if mark in line:
                line = found.sub(to, line)
        return line


def _is_cut(line: str, begin: int, end: int) -> bool:
    """Return whether the digits from ``begin`` to ``end`` are a part of a longer number."""
    comma = _WITH_COMMA.match(line, begin)
    return bool(
        _DIGITS_GO_ON.match(line, end)
        or (comma and comma.end() == end + 2)
        or _BEGUN_BEFORE.search(line, max(0, begin - 2), begin)
    )


def number_in(text: str | None) -> float | None:
    """Return the number that a text is, ignoring a full stop at its end."""
    whole = (text or "").strip().rstrip(".,;")
    try:
        return float(whole.replace(",", "") if _THOUSANDS.fullmatch(whole) else whole)
    except ValueError:
        return None
