"""The tables of ``autoresearch cost``, for a terminal."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.text import Text

from agent.workbench.console import say
from funnel.cost.argument import CostReport
from funnel.cost.figures import Section
from funnel.cost.timeline import Timeline, assumptions


def print_cost(console: Console, report: CostReport) -> None:
    for line in report.usage.lines():
        say(console, line)
    for section in report.sections:
        print_section(console, section)
    say(console, "\nmeasured, beside the assumed chances", "bold")
    for line in report.bill.measured.lines():
        say(console, f"  {line}")
    print_assumptions(console, report.assumptions)


def print_section(console: Console, section: Section) -> None:
    say(console, f"\n{section.title}", "bold")
    for figure in section.figures:
        line = Text.assemble(
            f"  {figure.label:<56} {figure.text():>12}   ", (figure.formula, "cyan")
        )
        console.print(line, soft_wrap=True)


def print_assumptions(console: Console, stated: Sequence[str]) -> None:
    say(console, "\nassumed", "bold")
    for assumption in stated:
        say(console, f"  {assumption}", "dim")


def print_timeline(console: Console, planned: Timeline) -> None:
    speed, asked = planned.speed, planned.asked
    say(
        console,
        f"target    {planned.target} · {planned.model.params / 1e9:.4g} B parameters · "
        f"{asked.tokens / 1e9:,.4g} B tokens",
    )
    say(
        console,
        f"speed     {speed.tokens_per_s:,.0f} tokens/s × {speed.flops_per_token / 1e9:.4g} GFLOPs "
        f"= {speed.tflops:.3g} TFLOP/s a unit ({speed.source})",
    )
    say(
        console,
        f"units     {asked.units} of {asked.device_gib:g} GiB, efficiency {asked.efficiency:g}\n",
    )
    _print_phases(console, planned)
    say(
        console,
        "\ndays = tokens / tokens/s / 86,400; state: 16 bytes a parameter; sequence: its "
        "activations, none computed anew",
        "dim",
    )
    print_assumptions(console, assumptions(asked, speed))


def _print_phases(console: Console, planned: Timeline) -> None:
    say(
        console,
        f"{'context':>8} {'share':>6} {'tokens':>9} {'tokens/s':>10} {'days':>10}   "
        f"{'state':>9} {'sequence':>9}   needs",
        "bold",
    )
    for plan in planned.phases:
        say(
            console,
            f"{plan.seq_len:>8,} {plan.share:>6.0%} {plan.tokens / 1e9:>7,.4g} B "
            f"{plan.tokens_per_s:>10,.4g} {plan.days:>10,.4g}   {plan.state_gib:>5,.0f} GiB "
            f"{plan.activations_gib:>5,.0f} GiB   {plan.needs()}",
            "" if plan.fits else "yellow",
        )
    tokens = planned.asked.tokens
    say(console, f"{'all':>8} {'':>6} {tokens / 1e9:>7,.4g} B {'':>10} {planned.days:>10,.4g}")
