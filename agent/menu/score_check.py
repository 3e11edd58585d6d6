"""``[score.check]``: the command of a menu that scores what its training command left behind.

    [score.check]
    command = ["python", "check.py", "{out}"]
    pattern = 'val loss ([-+0-9.eE]+)'

It has the keys of a trainer's score, and its command the placeholders of the trainer's command
(:mod:`agent.menu.trainer_table`).
"""

from __future__ import annotations

import re
from typing import Annotated, Self

from pydantic import Field, model_validator

from autoresearch.words import json_text
from trainer.spec import ScoreRule


def check_rule(score: ScoreRule) -> None:
    """Check that a rule has one location for the score, with one number.

    :raises ValueError: one clause that names the fault and the fix.
    """
    if (score.pattern is None) == (score.file is None):
        raise ValueError(
            'score is either { pattern = \'…\' } or { file = "…", key = "…" }; give one of the two'
        )
    if (score.file is None) != (score.key is None):
        raise ValueError("score has a file and a key, both or none; give both")
    if score.file is not None and (score.file.startswith("/") or ".." in score.file.split("/")):
        raise ValueError(
            f"score file {json_text(score.file)} is not in the trial's directory; name it "
            "relative to {out}"
        )
    if score.pattern is not None and (groups := re.compile(score.pattern).groups) != 1:
        raise ValueError(
            f"score pattern {json_text(score.pattern)} has {groups} groups in ( ); use "
            "one group, the number"
        )


class CheckTable(ScoreRule):
    """``[score.check]``: a second command, which is never edited, and how its score is found."""

    command: Annotated[tuple[str, ...], Field(min_length=1, max_length=200)]

    @property
    def rule(self) -> ScoreRule:
        """Location of the score."""
        return ScoreRule(**self.model_dump(exclude={"command"}))

    @model_validator(mode="after")
    def _has_a_score(self) -> Self:
        check_rule(self)
        return self
