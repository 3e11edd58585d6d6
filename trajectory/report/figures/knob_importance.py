"""Importance of each knob, beside the importance that chance alone can give it."""

from __future__ import annotations

from dataclasses import dataclass

from trajectory.report.canvas import DISCARD, INK, KEEP, Picture, bare, sheet
from trajectory.report.figures.figure import KNOBS, Figure
from trajectory.report.findings import Findings
from trajectory.report.reading.knobs import METHOD, MIN_CONFIGS, SHUFFLES, Importances
from trajectory.report.wording import cut

NAME_CHARACTERS = 24
"""The most characters of a knob's name."""


@dataclass(frozen=True)
class KnobImportance(Figure):
    """Each knob's share of importance, and the largest share that shuffled scores gave it."""

    name = "knob-importance"
    section = KNOBS
    fewest = MIN_CONFIGS

    importances: Importances

    @classmethod
    def of(cls, found: Findings) -> KnobImportance:
        return cls(found.importances)

    @property
    def shows(self) -> bool:
        return bool(self.importances.knobs)

    @property
    def caption(self) -> str:
        return (
            f"Share of importance by {METHOD} (Watanabe et al. 2023, Optuna's): how much a knob's "
            f"values among the best {self.importances.best} configs differ from those among all "
            f"{self.importances.n}. The tick is the most that {SHUFFLES} shuffles of the scores "
            "gave the knob; green bars exceed it, which chance alone does to one knob in "
            f"{SHUFFLES + 1}. Runs that failed have no score and do not count."
        )

    @property
    def alt(self) -> str:
        knobs = self.importances.knobs
        firm = [knob.name for knob in knobs if knob.stands_out]
        return f"Importance of {len(knobs)} knobs; above chance: {', '.join(firm) or 'none'}."

    def draw(self) -> Picture:
        knobs = self.importances.knobs
        figure = sheet(0.23 * len(knobs) + 0.9)
        axes = figure.subplots()
        places = range(len(knobs))
        axes.barh(
            places,
            [knob.share for knob in knobs],
            height=0.62,
            color=[(KEEP if knob.stands_out else DISCARD).light for knob in knobs],
        )
        axes.scatter(
            [knob.by_chance for knob in knobs],
            places,
            marker="|",
            s=90,
            linewidths=1.6,
            color=INK.light,
            zorder=4,
            label="the most that shuffled scores gave it",
        )
        axes.set_yticks(places, [cut(knob.name, NAME_CHARACTERS) for knob in knobs])
        axes.set_ylim(len(knobs) - 0.4, -0.6)
        axes.set_xlim(left=0)
        axes.set_xlabel(f"share of importance, {METHOD}, {self.importances.n} configs")
        figure.legend(loc="outside upper left")
        bare(axes)
        return Picture(self.name, self.alt, figure)
