"""Every screen shows the same result of a campaign, with the same verdict."""

from datetime import UTC, datetime
from pathlib import Path

import pytest

from agent.commands.campaign_view import CampaignView
from agent.commands.night.status import Glance
from agent.commands.night.top import own_board
from agent.commands.record.report import summary
from agent.session.conclusion import report as confirm_lines
from autoresearch.words import rate_text
from tests.support.confirmed import confirmation
from tests.support.present import known
from tests.support.reports import simulated
from tests.support.rows import write_journal
from tests.support.simulated.commands import SimulatedOwn
from tests.trajectory.live.server import client
from trainer.schema import BPB
from trajectory.evidence import Evidence
from trajectory.headline import Headline
from trajectory.power import Power
from trajectory.ranking import Posteriors, top
from trajectory.report.report import render
from trajectory.report.versus import compare_campaigns
from trajectory.rows import CampaignRow, Row, Rules

SEARCH = simulated(30)
EVIDENCE = Evidence(SEARCH)
CAMPAIGN = next(row for row in SEARCH if isinstance(row, CampaignRow))
RANKED = [one for one in top(EVIDENCE, 5) if one.config_hash != EVIDENCE.baseline_hash]


@pytest.mark.parametrize(("gain", "verdict"), [(-0.5381, "not confirmed"), (0.2328, "confirmed")])
def test_the_five_screens_agree_on_a_choice_that_is_not_the_incumbent(
    gain: float, verdict: str, tmp_path: Path
) -> None:
    """The confirmation chose a config that is neither the incumbent nor the ranking's first."""
    chosen, others = RANKED[2], (RANKED[0], RANKED[1])
    assert EVIDENCE.incumbent_hash != chosen.config_hash
    finalists = {one.iter: one.config for one in (chosen, *others)}
    baseline = EVIDENCE.configs[known(EVIDENCE.baseline_hash)].config
    runs, end = confirmation(9_000, baseline, finalists, gain=gain)
    rows: list[Row] = [*SEARCH, *runs, end]
    directory = tmp_path / "night"
    directory.mkdir()
    write_journal(directory / "trajectory.jsonl", rows)
    measured = known(end.found.chosen.headline)
    number, line = BPB.signed(measured.delta), end.found.headline

    view = CampaignView(directory)
    status, found = view.status(), view.findings()
    fields, board = own_board(directory, 3)
    with client(directory) as http:
        (card,) = http.get("/api/campaigns").json()
    lines = (
        next(iter(confirm_lines(end.found, view.results().headline()))).plain,
        str(board[0]),
        status.headline,
        found.headline.line,
        card["status"]["headline"]["line"],
        fields["headline"]["line"],
        summary(found)["headline"]["line"],
        compare_campaigns(directory, directory).a.confirmed,
    )
    assert set(lines) == {line}
    assert {status.verdict, found.headline.verdict, card["status"]["headline"]["verdict"]} == {
        verdict
    }
    assert f"{number} bpb {verdict}" in str(status)
    assert (status.gain, status.confirmed) == (measured.delta, verdict == "confirmed")
    assert card["status"]["headline"]["delta"] == found.headline.delta == measured.delta
    assert found.headline.first_now == RANKED[0].iter

    page = render(found, (), (), datetime.now(UTC))
    head = page.split("<h1>")[1].split("</dl>")[0]
    shown = number.replace("-", "\N{MINUS SIGN}")
    assert f"{abs(measured.delta):.4f} bpb" in head.split("</h1>")[0]
    assert f"<b>{shown}</b>" in head
    assert ("confirmed gain" in head) == (verdict == "confirmed")


def test_a_larger_winner_is_shown_with_both_sizes(tmp_path: Path) -> None:
    evidence = Evidence(SEARCH)
    best = evidence.configs[known(evidence.incumbent_hash)]
    before = evidence.configs[known(evidence.baseline_hash)].params
    plain = Headline.of(Posteriors.of(evidence), None, CAMPAIGN)
    best.params = 2_096_640
    grown = Headline.of(Posteriors.of(evidence), None, CAMPAIGN)
    assert (grown.params, grown.baseline_params) == (2_096_640, before)
    assert grown.line.startswith(plain.line) and "2.10 M" in grown.sizes in grown.line
    assert (plain.sizes, grown.model_dump()["sizes"]) == ("", grown.sizes)

    write_journal(tmp_path / "trajectory.jsonl", SEARCH)
    _, board = own_board(tmp_path, 3)
    page = render(CampaignView(tmp_path).findings(), (), (), datetime.now(UTC))
    with client(tmp_path) as http:
        (card,) = http.get("/api/campaigns").json()
        ranked = http.get(f"/api/campaigns/{card['name']}/top").json()
    entry = RANKED[0]
    assert (entry.params, entry.peak_gib, entry.step_ms) == (918_528, 0.713, 41.7)
    assert all(number in entry.footprint for number in ("0.919 M", "0.71 GiB", "42 ms"))
    assert any(str(line).strip() == entry.footprint for line in board)
    assert entry.footprint in page
    assert ranked[0]["footprint"] == entry.footprint


def test_without_a_confirmation_it_is_the_search_s_claim() -> None:
    headline = Headline.of(Posteriors.of(EVIDENCE), None, CAMPAIGN)
    best = Posteriors.of(EVIDENCE).of_configs([known(EVIDENCE.incumbent_hash)])[0]
    assert (headline.verdict, headline.iter) == ("claimed", best.iter)
    assert (headline.delta, headline.lo, headline.hi) == (
        best.delta_vs_baseline,
        best.delta_lo,
        best.delta_hi,
    )


def test_a_search_that_kept_nothing_says_which_gain_it_would_have_kept() -> None:
    begun = [row for row in SEARCH if row.kind in {"campaign", "baseline"}]
    evidence = Evidence(begun)
    headline = Headline.of(Posteriors.of(evidence), None, CAMPAIGN)
    noise = known(Posteriors.of(evidence).noise)
    assert headline.verdict == "nothing kept"
    assert headline.delta is None
    smallest = CAMPAIGN.z_keep * noise.stderr(CAMPAIGN.max_runs, len(begun) - 1)
    assert headline.smallest_gain == pytest.approx(smallest)
    assert f"{smallest:.4f} bpb" in headline.line
    power = known(headline.power)
    rules = Rules.model_validate({name: getattr(CAMPAIGN, name) for name in Rules.model_fields})
    assert power == Power.of(noise, rules, len(begun) - 1)
    assert f"{power.gain:.4f} bpb" in headline.can_find
    assert (headline.more_iterations, headline.outlook) == (None, "")


def test_a_search_without_a_keep_says_how_many_more_iterations_may_bring_one() -> None:
    tried = [row for row in SEARCH if row.kind in {"campaign", "baseline"}]
    refused = next(
        row for row in SEARCH if row.kind == "iteration" and row.decision.action == "discard"
    )
    evidence = Evidence([*tried, refused])
    headline = Headline.of(Posteriors.of(evidence), None, CAMPAIGN)
    baseline = evidence.configs[known(evidence.baseline_hash)]
    assert (headline.verdict, headline.more_iterations) == ("nothing kept", 5)
    assert headline.more_s == pytest.approx(5 * 2.05 * baseline.train_s / baseline.n)
    assert headline.outlook in headline.model_dump()["outlook"]


@pytest.mark.parametrize("gain", [-0.5381, 0.2328])
def test_only_a_gain_that_was_not_confirmed_asks_for_seeds(gain: float, tmp_path: Path) -> None:
    finalists = {one.iter: one.config for one in RANKED[:1]}
    baseline = EVIDENCE.configs[known(EVIDENCE.baseline_hash)].config
    _, end = confirmation(9_000, baseline, finalists, gain=gain)
    found, fresh = end.found, known(end.found.chosen.headline)
    confirmed = Headline.of(Posteriors.of(EVIDENCE), found, CAMPAIGN)
    assert (confirmed.more_seeds, confirmed.outlook) == (None, "")  # worse, or confirmed
    wide = fresh.model_copy(update={"delta": -0.1, "lo": -0.3, "hi": 0.1})
    chosen = found.chosen.model_copy(update={"gains": (wide,)})
    open_one = found.model_copy(update={"configs": (chosen,)})
    headline = Headline.of(Posteriors.of(EVIDENCE), open_one, CAMPAIGN)
    assert headline.verdict == "not confirmed"
    assert known(headline.more_seeds) > 0
    assert str(headline.more_seeds) in headline.outlook

    rows: list[Row] = [*SEARCH, end.model_copy(update={"found": open_one})]
    write_journal(tmp_path / "trajectory.jsonl", rows)
    fields, board = own_board(tmp_path, 3)
    page = render(CampaignView(tmp_path).findings(), (), (), datetime.now(UTC))
    assert str(board[1]) == fields["headline"]["outlook"] == headline.outlook
    assert f"about {headline.more_seeds} more" in page


def test_nothing_measured_has_no_number() -> None:
    headline = Headline.of(Posteriors.of(Evidence(SEARCH[:1])), None, CAMPAIGN)
    assert (headline.verdict, headline.delta) == ("nothing measured", None)


def test_a_pace_has_no_exponent() -> None:
    glance = Glance(name="a", directory="a", state="running", iterations_per_h=1650.2)
    assert "1,650/h" in str(glance)
    assert [rate_text(one) for one in (98.4, 9.96, 1.23)] == ["98", "10", "1.2"]


def test_a_night_that_luck_kept_ends_with_not_confirmed(tmp_path: Path) -> None:
    own = SimulatedOwn(tmp_path)
    menu = own.checkout / "own.toml"
    text = menu.read_text("utf-8").replace("1e-3", "0.9").replace("1e3", "1.1")
    text = text.replace("default = 0.01", "default = 1.0").replace("default = 0.5", "default = 0.0")
    menu.write_text(text.replace("high = 1.0", "high = 0.001"))  # no config differs from another
    last = own.loop(25, "--set=z_keep=0").splitlines()[-1]
    status = CampaignView(own.campaign).status()
    assert (status.verdict, status.confirmed) == ("not confirmed", False)
    assert last.split(maxsplit=1) == ["result", status.headline]
