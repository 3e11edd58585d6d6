"""``autoresearch report`` and ``diff``: the campaign as one page, and compared with another."""

import json
import webbrowser
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.text import Text

from agent.commands.campaign_view import CampaignView
from agent.workbench.console import print_lines
from agent.workbench.places import (
    CampaignOption,
    existing_campaign,
    foreign_campaign,
    latest_campaign,
)
from autoresearch.closing import gc_paused
from autoresearch.errors import MachineryError
from autoresearch.layout import REPORT_DIR
from trajectory.report.figures.long_runs import fidelity_test
from trajectory.report.figures.time_and_energy import usage_of
from trajectory.report.findings import Findings
from trajectory.report.reading.foreign_campaign import read_foreign_campaign
from trajectory.report.report import Report, write_report
from trajectory.report.versus import compare_campaigns


def report(
    campaign: CampaignOption = None,
    out: Annotated[
        Path | None, typer.Option("--out", help="Folder to write. Default: CAMPAIGN/report.")
    ] = None,
    against: Annotated[
        Path | None,
        typer.Option("--against", help="Another campaign to compare with, as `diff` does."),
    ] = None,
    show: Annotated[bool, typer.Option("--open", help="Show it in the web browser.")] = False,
    as_json: Annotated[bool, typer.Option("--json")] = False,
) -> None:
    """Write the campaign as one HTML page, with SVG and PNG figures.

    The page needs no network.
    """
    directory = campaign or latest_campaign()
    with gc_paused():
        foreign = foreign_campaign(directory)
        if foreign is not None:
            found = read_foreign_campaign(foreign)
        else:
            found = CampaignView(existing_campaign(campaign)).findings()
        if against is not None:
            versus = compare_campaigns(existing_campaign(directory), existing_campaign(against))
            found = found.with_facts((f"diff {name}", text) for name, text in versus.facts())
        folder = out or directory / REPORT_DIR
        try:
            written = write_report(found, folder)
        except OSError as error:
            raise MachineryError(
                f"cannot write the report to {folder}: {error.strerror or error}; free some space, "
                "make it writable, or choose another folder with --out"
            ) from error
        if as_json:
            paths = {"page": str(written.page), "figures": [str(path) for path in written.figures]}
            typer.echo(json.dumps(paths | {"summary": summary(found)}))
        else:
            print_lines(Console(), _lines(written, found))
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
        best = found.best[0]
        where = f"iteration {best.iter}" if best.iter else "the baseline"
        yield Text.assemble(
            ("best      ", "bold"),
            f"{where}, {found.about.measure} {found.about.scoring.text(best.objective)}"
            f" (n={best.n})",
        )


def summary(found: Findings) -> dict[str, Any]:
    """Return the conclusions of the report for JSON."""
    spending, test = usage_of(found.ours) if found.ours else None, fidelity_test(found)
    fidelity = test.fidelity if test else None
    scoring, known = found.about.scoring, found.baseline
    best: dict[str, Any] | None = None
    if found.best:
        first = found.best[0]
        fresh = first.fresh.model_dump(mode="json") if first.fresh else None
        scores = scoring.fields(first.objective, first.objective_lo, first.objective_hi)
        best = asdict(first) | scores | {"fresh": fresh}
    return {
        "campaign": found.about.campaign_id or None,
        "measure": found.about.measure,
        "iterations": len(found.iterations),
        "kept": len(found.kept),
        "configs": len(found.samples),
        # Scores have this unit and direction; the other fields of best and baseline are
        # objectives, lower is better.
        "unit": scoring.unit if found.ours else found.about.measure,
        "direction": scoring.direction,
        "best": best,
        "baseline": known and asdict(known) | scoring.fields(known.value, known.lo, known.hi),
        "sigma": found.noise.sigma if found.noise else None,
        "sigma_dof": found.noise.dof if found.noise else None,
        "work_s": spending.total.total if spending else None,
        "elapsed_s": spending.elapsed_s if spending else None,
        "energy_wh": spending.energy_wh if spending else None,
        "cost_usd": spending.cost_usd if spending else None,
        "bill": spending.bill.model_dump() | {"usd": spending.bill.usd} if spending else None,
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
    if as_json:
        typer.echo(found.model_dump_json())
        return
    facts = (Text.assemble((f"{label:<10}", "bold"), text) for label, text in found.facts())
    print_lines(Console(), facts)
