"""The names in a campaign's directory, and what a trial is called.

campaign.toml       the settings it was created with
trajectory.jsonl    the journal: the truth
history.sqlite      its index
campaign.lock       who writes it
in_flight/          a file for each iteration that is not in the journal yet
pause               while it is there, the loop waits
telemetry.csv       what the device drew
endpoint.json       what the language model's endpoint was found to accept
imported.jsonl      what another tool measured, and where it is from
prompts/            what was said to a language model
compiled/           what its trials compiled
texts/              tokens of the texts that a confirmation scores
trials/<id>/        a trial: spec.json, trainer.log, curve.jsonl, result.json, tmp/
trials/.specs/      the orders and results, where no trial can write
trials/warm-up/     a trial on a GPU before the first, which no row names
report/             report.html and figures/
export/             for other tools
"""

from __future__ import annotations

import re
from pathlib import Path

SETTINGS_FILE = "campaign.toml"
JOURNAL_FILE = "trajectory.jsonl"
HISTORY_FILE = "history.sqlite"
LOCK_FILE = "campaign.lock"
IN_FLIGHT_DIR = "in_flight"
FORMER_IN_FLIGHT_FILE = "in_flight.json"
"""Where the one iteration in flight was before there could be several."""
PAUSE_FILE = "pause"
TELEMETRY_FILE = "telemetry.csv"
LANES_FILE = "lanes.json"
ENDPOINT_FILE = "endpoint.json"
IMPORTED_FILE = "imported.jsonl"
PROMPTS_DIR = "prompts"
COMPILED_DIR = "compiled"
EXPORT_DIR = "export"
TEXTS_DIR = "texts"

TRIALS_DIR = "trials"
ORDERS_DIR = ".specs"
WARM_UP_DIR = "warm-up"
SPEC_FILE = "spec.json"
LOG_FILE = "trainer.log"
CURVE_FILE = "curve.jsonl"
RESULT_FILE = "result.json"
SCRATCH_DIR = "tmp"

CAMPAIGN_MARKS = frozenset((JOURNAL_FILE, LOCK_FILE, IMPORTED_FILE))
"""Of these a campaign's directory has at least one."""

REPORT_DIR = "report"
REPORT_PAGE = "report.html"
FIGURES_DIR = "figures"


def is_imported(directory: Path) -> bool:
    """Whether this directory is read-only because it was imported."""
    return (directory / IMPORTED_FILE).is_file()


_TRIAL_ID = re.compile(r"t[0-9]{6,}")


def nth_trial_id(number: int) -> str:
    """What the ``number``-th trial of a campaign is called: ``t000012``."""
    return f"t{number:06d}"


def is_trial_id(name: str) -> bool:
    """Whether a trial of ours can be called so; a name with a path in it never can."""
    return _TRIAL_ID.fullmatch(name) is not None


def trial_number(name: str) -> int:
    """Its place in the campaign: trials are numbered as they start."""
    return int(name[1:])


def in_flight_name(iteration: int) -> str:
    """The file of an iteration in flight: ``000012.json``."""
    return f"{iteration:06d}.json"


def in_flight_files(directory: Path) -> list[Path]:
    """Those of a campaign, the lowest iteration first."""
    return sorted((directory / IN_FLIGHT_DIR).glob("[0-9]*.json"), key=lambda file: file.name)
