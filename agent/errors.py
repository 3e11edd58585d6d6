"""What can go wrong while deciding (the tree is drawn in :mod:`trainer.errors`)."""

from trainer.errors import AutoresearchError


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
