"""``autoresearch report`` and ``diff``: the campaign as one page, and compared with another."""

import webbrowser
from collections.abc import Callable
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.text import Text

from agent.commands.campaign_view import CampaignView
from agent.commands.night.top import foreign_board
from agent.session.console import answer
from agent.session.places import (
    CampaignOption,
    existing_campaign,
    foreign_campaign,
    latest_campaign,
)
from autoresearch.campaign_files import make_folder
from autoresearch.closing import gc_paused
from autoresearch.errors import MachineryError
from autoresearch.layout import FIGURES_DIR, REPORT_DIR
from trajectory.report.figures.curves import fidelity_test
from trajectory.report.figures.time_and_energy import usage_of
from trajectory.report.findings import BEST, Findings
from trajectory.report.report import Report, write_imported, write_report
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

    The page needs no network. That of an imported campaign says what the import left out.
    """
    with gc_paused():
        directory = campaign or latest_campaign()
        foreign = foreign_campaign(directory)
        notes: list[tuple[str, str]] = []
        if foreign is None:
            found = CampaignView(directory).findings()
            written = _written(partial(write_report, found), directory, out)
            conclusions = summary(found)
            if found.best:
                best = found.best[0].entry
                where = f"iteration {best.iter}" if best.iter else "the baseline"
                score = f"{found.about.measure} {found.about.scoring.text(best.objective)}"
                notes.append(("best", f"{where}, {score} (n={best.n})"))
        else:
            write = partial(write_imported, foreign, directory.resolve().name)
            written = _written(write, directory, out)
            conclusions, _ = foreign_board(foreign, BEST)
            notes.append(("left out", foreign.provenance.left_out or "nothing"))
        page, figures = str(written.page), [str(path) for path in written.figures]
        drawn = f"{len(figures) // 2} as SVG and PNG in {written.page.parent / FIGURES_DIR}"
        facts = [("page", page), ("figures", drawn if figures else "none yet"), *notes]
        lines = (Text.assemble((f"{label:<10}", "bold"), text) for label, text in facts)
        answer({"page": page, "figures": figures, "summary": conclusions}, lines, as_json=as_json)
    address = written.page.absolute().as_uri()
    if show and not webbrowser.open(address):
        typer.echo(f"no web browser was found on this machine; open {address} in one", err=True)


def _written(write: Callable[[Path], Report], directory: Path, out: Path | None) -> Report:
    """Write the report into the folder that the user named, else into the campaign's own."""
    folder = out or directory / REPORT_DIR
    try:
        if out is None:
            make_folder(directory, REPORT_DIR)
        return write(folder)
    except OSError as error:
        raise MachineryError(
            f"cannot write the report to {folder}: {error.strerror or error}; free some space, "
            "make it writable, or choose another folder with --out"
        ) from error


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
        "headline": found.headline.model_dump(mode="json"),
        "best": best,
        "baseline": known and asdict(known) | scoring.fields(known.value, known.lo, known.hi),
        "sigma": found.noise.sigma if found.noise else None,
        "sigma_dof": found.noise.dof if found.noise else None,
        "work_s": spending.total.total,
        "elapsed_s": spending.elapsed_s,
        "energy_wh": spending.energy_wh,
        "cost_usd": spending.cost_usd,
        "bill": spending.bill.model_dump() | {"usd": spending.bill.usd},
        "device": spending.device,
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
