"""A campaign's name and evaluation protocol, as the page describes them."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from trainer.schema import Measure
from trajectory.report.ledger import Ledger
from trajectory.rows import CampaignRow, EventRow


@dataclass(frozen=True, slots=True)
class About:
    """Description of the campaign, and how its scores were measured."""

    title: str
    """The campaign's name: the name of its directory."""
    campaign_id: str
    begun: str
    """Start time in ISO 8601."""
    scoring: Measure
    """Unit and direction of the scores. All numbers here are objectives; texts convert them
    back."""
    facts: tuple[tuple[str, str], ...]
    """Name and value of each part of the evaluation protocol."""
    caution: str
    """Warning about scores that the built-in trainer did not measure; empty if it did."""
    pauses: int
    interruptions: int

    @property
    def measure(self) -> str:
        """Name of the measure that scores are in."""
        return self.scoring.name

    @property
    def unit(self) -> str:
        """The measure's unit, in words."""
        return self.scoring.unit

    @property
    def better_sign(self) -> str:
        """Sign of a difference that is an improvement."""
        return "negative" if self.scoring.direction == "minimise" else "positive"

    @property
    def better_side(self) -> str:
        """Side of zero on which the interval of an improvement lies."""
        return "below" if self.scoring.direction == "minimise" else "above"


def about_of(ledger: Ledger, name: str) -> About:
    """Return the description of a campaign in a directory of this name."""
    row, use = ledger.row, ledger.lane_use
    facts = _facts(row)
    events = Counter(event.event for event in ledger.rows_of(EventRow))
    if use.share is not None:
        each = ", ".join(f"{lane} {share:.0%}" for lane, share in use.of_lanes())
        by_lane = f" (lane by lane: {each})" if each else ""
        said = f"up to {use.lanes} trials at once, {use.share:.0%} of the lanes' time{by_lane}"
        facts.append(("lanes", said))
    caution = ""
    if row.script is not None:
        who, whose = "the campaign's command", "that script"
        if row.script.check:
            who, whose = "the menu's check", "that check"
        caution = (
            f"The score is what {who} printed, in {row.measured_in.unit}. This page does not know "
            f"how {whose} measured it."
        )
    return About(
        title=name or row.menu_name,
        campaign_id=row.id,
        begun=row.created_at,
        scoring=row.measured_in,
        facts=tuple(facts),
        caution=caution,
        pauses=events["paused"],
        interruptions=events["interrupted"],
    )


def _facts(row: CampaignRow) -> list[tuple[str, str]]:
    corpus, script, measure = row.corpus, row.script, row.measured_in
    facts: list[tuple[str, str]] = []
    if corpus is not None:
        trained = f"{corpus.name}, {corpus.train_tokens:,} training tokens"
        facts += [
            ("corpus", f"{trained}, sha256 {corpus.sha256[:12]}"),
            (
                "held out",
                f"{corpus.heldout_bytes:,} bytes in {corpus.heldout_tokens:,} tokens, the same "
                "for every config",
            ),
            ("tokenizer", f"{corpus.tokenizer}, vocabulary {corpus.vocab_size:,}"),
        ]
    if script is not None:
        code = f"{script.directory}, {script.files:,} files of code, sha256 {script.sha256[:12]}"
        scorer = "check" if script.check else "command"
        facts.append(("command", " ".join(script.command)))
        if script.check:
            facts.append(("check", " ".join(script.check)))
        facts += [
            ("script", code),
            ("score", f"{measure.unit}, {measure.better}, as the {scorer} says it"),
        ]
    horizon = (
        f", the prefix of a schedule of {row.horizon_steps:,} steps" if row.horizon_steps else ""
    )
    cooled = f", the last {row.cooldown_steps} cooling down" if row.cooldown_steps else ""
    scored = f", scored with {row.average} of its weights" if row.average else ""
    backend = f"{row.backend} on {row.device}" if script is None else f"on {row.device}"
    return [
        *facts,
        ("a trial", f"{row.budget}{horizon}{cooled}{scored}"),
        ("backend", backend),
        (
            "judge",
            f"against the {row.reference}; kept at z ≥ {row.z_keep:g} over up to "
            f"{row.max_runs} common seeds",
        ),
        ("sandbox", row.sandbox),
        ("hardware", _listed(row.hardware)),
        ("versions", _listed(row.versions)),
        ("menu", f"{row.menu_name}, sha256 {row.menu_sha256[:12]}"),
    ]


def _listed(values: Mapping[str, str]) -> str:
    return ", ".join(f"{name} {value}" for name, value in values.items())
