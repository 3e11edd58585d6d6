"""Make untrusted text safe to show. It imports nothing, so that errors can be printed before
anything else is loaded."""


def plain(text: str) -> str:
    """Return the text with every unprintable character replaced by a space.

    Terminals and pages would obey or garble escape sequences, direction overrides and line ends.
    """
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else " " for c in text)
