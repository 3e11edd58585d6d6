"""Names of the files in a campaign's directory and of its trials.

campaign.toml       the settings it was created with
trajectory.jsonl    the journal: the truth
history.sqlite      the journal's index
campaign.lock       which process writes
in_flight/          one file per iteration that is not in the journal yet
queue/              one file per proposal that waits; queue/taken/ is the loop's
space.json          edits of the space that wait; space.taken.json is the loop's
pause               while it is there, the loop waits
telemetry.csv       power and memory of the device
imported.jsonl      another tool's measurements and their source
prompts/            prompts sent to a language model
compiled/           code that the trials compiled
texts/              tokens of the texts that a confirmation scores
trials/<id>/        a trial: spec.json, trainer.log, curve.jsonl, result.json, tmp/; its lane, if
                    there are several, in `lane`
trials/.specs/      specs and results, where no trial can write
trials/warm-up/     a trial on a GPU before the first, which no row names
report/             report.html and figures/
export/             exports for other tools
"""

import re
from pathlib import Path

from autoresearch.campaign_files import has_file, names

SETTINGS_FILE = "campaign.toml"
JOURNAL_FILE = "trajectory.jsonl"
HISTORY_FILE = "history.sqlite"
LOCK_FILE = "campaign.lock"
IN_FLIGHT_DIR = "in_flight"
QUEUE_DIR = "queue"
TAKEN_DIR = "taken"
SPACE_FILE = "space.json"
SPACE_TAKEN_FILE = "space.taken.json"
PAUSE_FILE = "pause"
TELEMETRY_FILE = "telemetry.csv"
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
LANE_FILE = "lane"
SCRATCH_DIR = "tmp"

CAMPAIGN_MARKS = frozenset((JOURNAL_FILE, LOCK_FILE, IMPORTED_FILE))
"""A campaign's directory has at least one of these."""

REPORT_DIR = "report"
REPORT_PAGE = "report.html"
FIGURES_DIR = "figures"


def is_imported(directory: Path) -> bool:
    """Return whether this directory is read-only because it was imported."""
    return has_file(directory, IMPORTED_FILE)


_IN_FLIGHT = re.compile(r"[0-9].*\.json")
_TRIAL_ID = re.compile(r"t[0-9]{6,}")


def nth_trial_id(number: int) -> str:
    """Return the id of the ``number``-th trial of a campaign: ``t000012``."""
    return f"t{number:06d}"


def is_trial_id(name: str) -> bool:
    """Return whether a name is a valid trial id; a name with a path in it never is."""
    return _TRIAL_ID.fullmatch(name) is not None


def log_path(trial_id: str) -> str:
    """Return the path of a trial's log in its campaign; empty for one that belongs to none."""
    return f"{TRIALS_DIR}/{trial_id}/{LOG_FILE}" if is_trial_id(trial_id) else ""


def trial_number(name: str) -> int:
    """Return a trial's number in the campaign: trials are numbered as they start."""
    return int(name[1:])


def in_flight_name(iteration: int) -> str:
    """Return the file name of an iteration in flight: ``000012.json``."""
    return f"{iteration:06d}.json"


def in_flight_names(directory: Path) -> list[str]:
    """Return the names in ``in_flight`` of a campaign's iterations, the lowest iteration first."""
    return [name for name in names(directory, IN_FLIGHT_DIR) if _IN_FLIGHT.fullmatch(name)]
