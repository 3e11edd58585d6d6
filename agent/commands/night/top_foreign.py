"""``autoresearch top`` of what another tool measured."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import typer
from rich.console import Console
from rich.text import Text

from trajectory.formats.foreign import Measure, Plain
from trajectory.formats.imported import ImportedCampaign
from trajectory.formats.standings import ForeignRanked, Standings

NAME_CHARACTERS = 12
TEXT_CHARACTERS = 120


def top_foreign(campaign: ImportedCampaign, k: int, *, as_json: bool) -> None:
    """Print the ``k`` best configs of an imported campaign."""
    standings = Standings.of(campaign.runs)
    ranked = standings.top(k)
    if as_json:
        typer.echo(json.dumps(_as_json(campaign, standings, ranked)))
        return
    console = Console()
    if not ranked:
        console.print("nothing measured", highlight=False)
        return
    for line in _lines(ranked, standings):
        console.print(line, soft_wrap=True)
    console.print(Text(_legend(campaign.provenance.measure, standings), style="dim"))


def _as_json(
    campaign: ImportedCampaign, standings: Standings, ranked: list[ForeignRanked]
) -> dict[str, Any]:
    provenance = campaign.provenance
    return {
        "measure": provenance.measure,
        "source": provenance.source,
        "format": provenance.format,
        "sigma": standings.noise.sigma if standings.noise else None,
        "sigma_dof": standings.noise.dof if standings.noise else None,
        "configs": [
            entry.model_dump(mode="json") | {"rank": place}
            for place, entry in enumerate(ranked, start=1)
        ],
    }


def _lines(ranked: list[ForeignRanked], standings: Standings) -> Iterator[Text]:
    yield Text(
        f"{'#':>3} {'iter':>5} {'n':>3} {'posterior':>10}   {'95 % interval':<19} {'mean':>8}   "
        "against the baseline",
        style="bold",
    )
    for place, entry in enumerate(ranked, start=1):
        yield Text.assemble(
            f"{place:>3} {entry.iter or '-':>5} {entry.n:>3} {entry.posterior:>10.4f}   "
            f"{_interval(entry):<19} {entry.mean:>8.4f}   ",
            (_versus(entry), "green" if entry.beats_baseline else ""),
        )
        yield Text(f"{'':>14}{_said(entry, standings)}", style="cyan")


def _interval(entry: ForeignRanked) -> str:
    return "unknown" if entry.lo is None else f"{entry.lo:.4f} … {entry.hi:.4f}"


def _versus(entry: ForeignRanked) -> str:
    if entry.delta_vs_baseline is None:
        return ""
    half = "" if entry.delta_hi is None else f" ± {entry.delta_hi - entry.delta_vs_baseline:.4f}"
    return f"{entry.delta_vs_baseline:+.4f}{half}{' *' if entry.beats_baseline else ''}"


def _said(entry: ForeignRanked, standings: Standings) -> str:
    """What is known of the config: its name and description, or its difference."""
    if entry.is_baseline and entry.name is None:
        return "the baseline itself"
    if entry.values is None:
        return f"{(entry.name or '')[:NAME_CHARACTERS]}  {_one_line(entry.reason)}"
    baseline = standings.baseline
    base = baseline.values if baseline is not None and baseline.values is not None else {}
    return _one_line(_plain_text({n: v for n, v in entry.values.items() if base.get(n) != v}))


def _plain_text(values: dict[str, Plain]) -> str:
    return " ".join(f"{name}={json.dumps(value)}" for name, value in values.items())


def _one_line(text: str) -> str:
    words = " ".join("".join(c if c.isprintable() else " " for c in text).split())
    return words if len(words) <= TEXT_CHARACTERS else f"{words[: TEXT_CHARACTERS - 1]}…"


def _legend(measure: Measure, standings: Standings) -> str:
    text = (
        f"{measure}, lower is better, as another tool measured it; against the baseline as "
        "believed, ± half its 95 % interval, * where all of that is better; n runs"
    )
    if standings.baseline is None:
        text += "; its baseline is not known"
    if standings.noise is None:
        return f"{text}; the noise is unknown: no config was run twice, so the first may be luck"
    noise = standings.noise
    return f"{text}; one run has sd {noise.sigma:.4f} ({noise.dof} degrees of freedom)"
