"""Exceptions of the whole product: every error that a person can cause or fix.

Every message is one plain sentence with three parts: what failed, the value seen, what to do next.
The command line prints it and exits 1. Any other exception is a bug and propagates with its
traceback.
"""


class AutoresearchError(Exception):
    """Base of every error a user can cause or fix."""


# --- measuring --------------------------------------------------------------------------------


class SpecError(AutoresearchError):
    """A TrialSpec or Config that no trainer could run."""


class CorpusError(AutoresearchError):
    """Text that cannot become a corpus, or a corpus that does not match its own description."""


class SandboxError(AutoresearchError):
    """This kernel cannot confine a trial as promised."""


class MachineryError(AutoresearchError):
    """The machinery failed (disk full, device gone), which is not evidence about any config."""


class EnvelopeError(AutoresearchError):
    """Points of a machine's envelope that cannot be resumed or read."""


# --- deciding ---------------------------------------------------------------------------------


class SettingsError(AutoresearchError):
    """A setting or environment variable that makes no sense."""


class MenuError(AutoresearchError):
    """A ProxyMenu file that cannot be used; the message names the knob and the fix."""


class TargetError(AutoresearchError):
    """A TargetArchitecture that cannot be used, or that no proxy of the requested kind can
    represent."""


class HandoffError(AutoresearchError):
    """A launch plan that cannot be made or written, or a cloud log that cannot be read."""


class CampaignError(AutoresearchError):
    """A campaign that cannot be created, resumed or read as asked."""


# --- remembering ------------------------------------------------------------------------------


class JournalError(AutoresearchError):
    """trajectory.jsonl is damaged beyond a torn last line; the message names the line."""


class HistoryError(AutoresearchError):
    """The history database cannot be opened or rebuilt."""


class CampaignLockedError(AutoresearchError):
    """Another process writes this campaign; the message names the holder."""


class FormatError(AutoresearchError):
    """A file that is not a readable trajectory, or a trajectory that a format cannot hold."""
