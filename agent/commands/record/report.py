"""``autoresearch report`` and ``diff``: the campaign as one page, and compared with another."""

import webbrowser
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.text import Text

from agent.commands.campaign_view import CampaignView
from agent.workbench.console import answer
from agent.workbench.places import (
    CampaignOption,
    existing_campaign,
)
from autoresearch.closing import gc_paused
from autoresearch.errors import MachineryError
from autoresearch.layout import REPORT_DIR
from trajectory.report.figures.long_runs import fidelity_test
from trajectory.report.figures.time_and_energy import usage_of
from trajectory.report.findings import Findings
from trajectory.report.report import Report, write_report
from trajectory.report.versus import compare_campaigns


def report(
    campaign: CampaignOption = None,
    out: Annotated[
        Path | None, typer.Option("--out", help="Folder to write. Default: CAMPAIGN/report.")
    ] = None,
    show: Annotated[bool, typer.Option("--open", help="Show it in the web browser.")] = False,
    as_json: Annotated[bool, typer.Option("--json")] = False,
) -> None:
    """Write the campaign as one HTML page, with SVG and PNG figures.

    The page needs no network.
    """
    with gc_paused():
        view = CampaignView(existing_campaign(campaign))
        found = view.findings()
        folder = out or view.directory / REPORT_DIR
        try:
            written = write_report(found, folder)
        except OSError as error:
            raise MachineryError(
                f"cannot write the report to {folder}: {error.strerror or error}; free some space, "
                "make it writable, or choose another folder with --out"
            ) from error
        fields = {
            "page": str(written.page),
            "figures": [str(path) for path in written.figures],
            "summary": summary(found),
        }
        answer(fields, _lines(written, found), as_json=as_json)
        del found  # or a collection would scan every config once more
    address = written.page.absolute().as_uri()
    if show and not webbrowser.open(address):
        typer.echo(f"no web browser was found on this machine; open {address} in one", err=True)


def _lines(written: Report, found: Findings) -> Iterator[Text]:
    yield Text.assemble(("page      ", "bold"), str(written.page))
    count = len(written.figures) // 2
    yield Text.assemble(
        ("figures   ", "bold"),
        f"{count} as SVG and PNG in {written.page.parent / 'figures'}" if count else "none yet",
    )
    if found.best:
        best = found.best[0].entry
        where = f"iteration {best.iter}" if best.iter else "the baseline"
        yield Text.assemble(
            ("best      ", "bold"),
            f"{where}, {found.about.measure} {found.about.scoring.text(best.objective)}"
            f" (n={best.n})",
        )


_ESTIMATES = {
    *("iter", "n", "mean_objective", "objective", "objective_lo", "objective_hi"),
    *("delta_lo", "delta_hi", "beats_baseline", "train_s"),
}


def summary(found: Findings) -> dict[str, Any]:
    """Return the conclusions of the report for JSON."""
    spending, test = usage_of(found), fidelity_test(found)
    fidelity = test.fidelity if test else None
    scoring, known = found.about.scoring, found.baseline
    best: dict[str, Any] | None = None
    if found.best:
        first, entry = found.best[0], found.best[0].entry
        best = {
            **entry.model_dump(mode="json", include=_ESTIMATES),
            **scoring.fields(entry.objective, entry.objective_lo, entry.objective_hi),
            "name": "",
            "is_baseline": first.is_baseline,
            "delta": entry.delta_vs_baseline,
            "difference": first.difference,
            "fresh": first.fresh.model_dump(mode="json") if first.fresh else None,
        }
    return {
        "campaign": found.about.campaign_id,
        "measure": found.about.measure,
        "iterations": len(found.iterations),
        "kept": len(found.kept),
        "configs": len(found.samples),
        # Scores have this unit and direction; the other fields of best and baseline are
        # objectives, lower is better.
        "unit": scoring.unit,
        "direction": scoring.direction,
        "best": best,
        "baseline": known and asdict(known) | scoring.fields(known.value, known.lo, known.hi),
        "sigma": found.noise.sigma if found.noise else None,
        "sigma_dof": found.noise.dof if found.noise else None,
        "work_s": spending.total.total,
        "elapsed_s": spending.elapsed_s,
        "energy_wh": spending.energy_wh,
        "cost_usd": spending.cost_usd,
        "bill": spending.bill.model_dump() | {"usd": spending.bill.usd},
        "stops": asdict(found.stops),
        "fidelity": fidelity.model_dump(mode="json") if fidelity else None,
    }


def diff(
    a: Annotated[Path, typer.Argument(help="A campaign's directory.", metavar="A")],
    b: Annotated[Path, typer.Argument(help="Another campaign's directory.", metavar="B")],
    as_json: Annotated[bool, typer.Option("--json")] = False,
) -> None:
    """Compare two campaigns: protocol, settings, menu and result.

    It says whether their numbers may be compared, and estimates the difference of the confirmed
    winners.
    """
    found = compare_campaigns(existing_campaign(a), existing_campaign(b))
    facts = (Text.assemble((f"{label:<10}", "bold"), text) for label, text in found.facts())
    answer(found, facts, as_json=as_json)
