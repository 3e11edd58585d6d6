"""The exception tree of the whole product: every error that a person can cause or mend.

Every message is one plain sentence with three parts: what failed, the value seen, what to do
next. The command line prints it and exits 1; anything that is not an AutoresearchError is a bug
and propagates with its traceback.
"""


class AutoresearchError(Exception):
    """Base of every error a user can cause or mend."""


# --- measuring --------------------------------------------------------------------------------


class SpecError(AutoresearchError):
    """A TrialSpec or Config that no trainer could run."""


class CorpusError(AutoresearchError):
    """Text that cannot become a corpus, or a corpus that is not what it says it is."""


class SandboxError(AutoresearchError):
    """This kernel cannot confine a trial as promised."""


class MachineryError(AutoresearchError):
    """The machinery failed (disk full, device gone), which is no evidence about any config."""


class EnvelopeError(AutoresearchError):
    """Points of a machine's envelope that cannot be resumed, fitted or read."""


# --- deciding ---------------------------------------------------------------------------------


class SettingsError(AutoresearchError):
    """A setting or environment variable that makes no sense."""


class MenuError(AutoresearchError):
    """A ProxyMenu file that cannot be used; the message names the knob and the mend."""


class TargetError(AutoresearchError):
    """A TargetArchitecture that cannot be used, or that nothing asked for can stand in for."""


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
    """A file that is no trajectory we can read, or a trajectory that a format cannot hold."""
