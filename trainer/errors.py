"""The exception tree of the whole product, rooted here because every room may import it.

    AutoresearchError
    ├── SpecError            a TrialSpec or Config that no trainer could run
    ├── CorpusError          text that cannot become, or no longer is, a corpus
    ├── SandboxError         this kernel cannot confine a trial as promised
    ├── MachineryError       disk full, device gone, fork server dead: says nothing about a config
    ├── EnvelopeError        points of an envelope that cannot be resumed, fitted or read
    ├── agent.errors
    │   ├── SettingsError    a setting or environment variable that makes no sense
    │   ├── MenuError        a ProxyMenu file that cannot be used
    │   ├── TargetError      a target architecture that cannot be used, or has no such proxy
    │   ├── HandoffError     a launch plan that cannot be made, or a cloud log that cannot be read
    │   ├── CampaignError    a campaign that cannot be created, resumed or read as asked
    │   └── ProposerError    no usable proposal came from a proposer
    └── trajectory.errors
        ├── JournalError     trajectory.jsonl is damaged beyond a torn last line
        ├── HistoryError     the index cannot be opened or rebuilt
        ├── CampaignLockedError   another process writes this campaign
        └── FormatError      a file that is no trajectory, or one that a format cannot hold

Every message is one plain sentence with three parts: what failed, the value seen, what to do
next. The command line prints it and exits 1; anything that is not an AutoresearchError is a bug
and propagates with its traceback.
"""


class AutoresearchError(Exception):
    """Base of every error a user can cause or mend."""


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
