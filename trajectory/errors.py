"""What can go wrong with the record (the tree is drawn in :mod:`trainer.errors`)."""

from trainer.errors import AutoresearchError


class JournalError(AutoresearchError):
    """trajectory.jsonl is damaged beyond a torn last line; the message names the line."""


class HistoryError(AutoresearchError):
    """The history database cannot be opened or rebuilt."""


class CampaignLockedError(AutoresearchError):
    """Another process writes this campaign; the message names the holder."""


class FormatError(AutoresearchError):
    """A file that is no trajectory we can read, or a trajectory that a format cannot hold."""
