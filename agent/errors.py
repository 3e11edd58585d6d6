"""What can go wrong while deciding (the tree is drawn in :mod:`trainer.errors`)."""

from trainer.errors import AutoresearchError


class SettingsError(AutoresearchError):
    """A setting or environment variable that makes no sense."""


class MenuError(AutoresearchError):
    """A ProxyMenu file that cannot be used; the message names the knob and the mend."""


class CampaignError(AutoresearchError):
    """A campaign that cannot be created, resumed or read as asked."""
