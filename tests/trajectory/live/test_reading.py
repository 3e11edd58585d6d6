"""The page shows a reader everything, and updates do not disturb reading."""

from __future__ import annotations

from pathlib import Path

from playwright.sync_api import Page, expect

from tests.trajectory.live.pages import last_iteration, shows
from tests.trajectory.live.server import serving, simulated, write_campaign
from trajectory.proposals import Proposal


def test_what_is_invisible_in_a_text_is_spelled_out(page: Page, tmp_path: Path) -> None:
    rows = simulated(5)
    row = last_iteration(rows[-1])
    told = Proposal(
        changes={"lr": "\u202egnp.exe"}, reason="zero\u200bwidth\u0007 \U000e0041 👩\u200d🔬"
    )
    write_campaign(tmp_path / "c", [*rows[:-1], row.model_copy(update={"proposal": told})])
    with serving(tmp_path) as server:
        shows(page, server)
        line = page.locator(f'#rows tr.row[data-iter="{row.iter}"]')
        expect(line.locator(".changes")).to_have_text("lr=⟨U+202E⟩gnp.exe")
        line.click()
        spelled = "zero⟨U+200B⟩width⟨U+0007⟩ ⟨U+E0041⟩ 👩\u200d🔬"
        expect(page.locator("tr.more pre").first).to_have_text(spelled)
