"""The real command runs as a real server and answers over HTTP."""

import signal
from pathlib import Path

import pytest

from tests.support.campaigns import installed
from tests.support.configs import config
from tests.support.rows import baseline_row, iteration_row, ok, trial
from tests.support.waiting import wait_until
from tests.trajectory.live.server import (
    TOKEN,
    Server,
    serving,
    simulated,
    write_campaign,
)
from trainer.spec import Measure
from trajectory.formats.importing import import_campaign
from trajectory.rows import CampaignRow, IterationRow

ROWS = simulated(40)


def wait_for(server: Server, name: str, iterations: int, **headers: str) -> None:
    with server.client(**headers) as client:

        def has_them() -> bool:
            named = {one["name"]: one for one in client.get("/api/campaigns").json()}
            return name in named and named[name]["status"]["iterations"] >= iterations

        wait_until(has_them)


@pytest.mark.slow
def test_the_best_are_told_by_what_they_are_and_not_by_their_last_change(tmp_path: Path) -> None:
    candidate = config(lr=0.002, d_ff=256)  # an earlier iteration changed d_ff
    row = iteration_row(
        1, candidate, (trial(9, candidate, 0, ok(4.1)),), changes={"lr": 0.002, "n_layer": 4}
    )
    write_campaign(tmp_path / "c", [simulated(0)[0], baseline_row(1, 4.3, 0), row])
    with serving(tmp_path) as server:
        wait_for(server, "c", 1)
        with server.client() as client:
            best, baseline = client.get("/api/campaigns/c/top").json()
    assert best["difference"] == {"lr": 0.002, "d_ff": 256}
    assert baseline["difference"] == {}


def test_iterations_come_in_pages(server: Server) -> None:
    wait_for(server, "first", 40)
    with server.client() as client:
        whole = client.get("/api/campaigns/first/iterations").json()
        later = client.get("/api/campaigns/first/iterations?after=5&limit=3").json()
    assert [one["iter"] for one in later] == [6, 7, 8]
    assert later == whole[5:8]


def test_an_iteration_is_the_journal_s_own_row(server: Server) -> None:
    row = next(row for row in ROWS if isinstance(row, IterationRow) and row.iter == 7)
    wait_for(server, "first", 40)
    with server.client() as client:
        assert client.get("/api/campaigns/first/iterations/7").json() == row.model_dump(
            mode="json", by_alias=True
        )
        missing = client.get("/api/campaigns/first/iterations/4000")
        assert missing.status_code == 404
        assert client.get("/api/campaigns/nowhere/now").status_code == 404


@pytest.mark.slow
def test_scores_are_in_the_unit_and_direction_of_their_campaign(tmp_path: Path) -> None:
    from prometheus_client.parser import text_string_to_metric_families

    first, *rows = simulated(2)
    assert isinstance(first, CampaignRow)
    grows = Measure(unit="points", direction="maximise")
    write_campaign(tmp_path / "own", [first.model_copy(update={"measure": grows}), *rows])
    write_campaign(tmp_path / "gpt", [first, *rows])
    with serving(tmp_path) as server:
        for name in ("own", "gpt"):
            wait_for(server, name, 2)
        with server.client() as client:
            text = client.get("/metrics").text
    found = {
        (sample.name.removeprefix("autoresearch_"), *sample.labels.values()): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }
    for what in ("incumbent", "baseline"):
        value = found[f"{what}_bpb", "gpt"]
        assert value > 0
        assert found[f"{what}_score", "gpt", "bits per byte"] == value
        assert found[f"{what}_score", "own", "points"] == -value
        assert (f"{what}_bpb", "own") not in found
    assert found["iterations_total", "own"] == 2
    assert found["noise_sd_score", "own", "points"] == found["noise_sd_bpb", "gpt"] > 0


def test_pausing_writes_the_pause_file_and_nothing_else(server: Server, runs: Path) -> None:
    campaign = runs / "second"
    before = {path.name for path in campaign.iterdir()}
    wait_for(server, "second", 1)
    with server.client() as client:
        place = "/api/campaigns/second/pause"
        assert client.put(place, json={"paused": True}).json() == {"paused": True}
        assert {path.name for path in campaign.iterdir()} == before | {"pause"}
        assert client.put(place, json={"paused": False}).json() == {"paused": False}
        assert {path.name for path in campaign.iterdir()} == before
        assert client.put(place, json={"paused": True, "iters": 3}).status_code == 422


@pytest.mark.parametrize("path", ["/", "/api/campaigns", "/nothing"])
def test_the_policy_goes_with_every_answer(server: Server, path: str) -> None:
    with server.client() as client:
        headers = client.get(path).headers
    policy = headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert headers["x-content-type-options"] == "nosniff"


def test_other_sites_pages_get_nothing(server: Server, runs: Path) -> None:
    with server.client() as client:
        # A name of the other site that resolves to this machine.
        assert client.get("/api/campaigns", headers={"Host": "evil.example"}).status_code == 400
        forged = client.put(
            "/api/campaigns/first/pause",
            json={"paused": True},
            headers={"Origin": "https://evil.example"},
        )
        forwarded = {"Origin": "https://lab.example", "X-Forwarded-Host": "lab.example"}
        place = "/api/campaigns/first/pause"
        from_a_proxy = client.put(place, json={"paused": False}, headers=forwarded)
        link = {"Sec-Fetch-Site": "cross-site", **forwarded}
        contradictory = client.put(place, json={"paused": True}, headers=link)
    assert forged.status_code == contradictory.status_code == 403
    assert from_a_proxy.status_code == 200
    assert not (runs / "first" / "pause").exists()


def test_no_file_but_its_own_is_served(server: Server) -> None:
    with server.client() as client:
        for name in ("..%2fapp.py", "../app.py", "page.html", "uplot.LICENSE", "%00"):
            assert client.get(f"/static/{name}").status_code in {400, 404}


def test_with_a_token_nothing_is_told_without_it(guarded: Server) -> None:
    with guarded.client() as stranger:
        for path in ("/api/campaigns", "/metrics", "/openapi.json", "/x"):
            assert stranger.get(path).status_code == 401, path
        away = stranger.get("/", headers={"Accept": "text/html"})
        assert (away.status_code, away.headers["location"]) == (303, "login")
        assert stranger.get("/healthz").status_code == 200
        wrong = stranger.post("/login", data={"token": "wrong"})
        assert wrong.headers["location"] == "login#wrong"
        assert "set-cookie" not in wrong.headers
    with guarded.client(Authorization=f"Bearer {TOKEN}") as friend:
        assert friend.get("/api/campaigns").status_code == 200
    with guarded.client() as person:
        signed_in = person.post("/login", data={"token": TOKEN})
        cookie = signed_in.headers["set-cookie"]
        assert TOKEN not in cookie + signed_in.headers["location"]
        assert "HttpOnly" in cookie
        assert "samesite=strict" in cookie.lower()
        assert person.get("/api/campaigns").status_code == 200


@pytest.mark.parametrize(
    ("arguments", "token"),
    [
        (["--host", "0.0.0.0"], None),
        (["--host", "0.0.0.0"], "short"),
        (["--host", "no.such.host.invalid"], TOKEN),
        (["nowhere"], None),
    ],
)
def test_what_cannot_be_served_is_one_sentence(
    tmp_path: Path, arguments: list[str], token: str | None
) -> None:
    place = () if "nowhere" in arguments else (tmp_path,)
    environment = {"AUTORESEARCH_SERVE_TOKEN": token} if token else {}
    done = installed("serve", *arguments, *place, home=tmp_path, **environment)
    assert (done.returncode, done.stderr.count("\n")) == (1, 1)


def test_what_another_tool_measured_is_not_followed(tmp_path: Path) -> None:
    table = tmp_path / "results.tsv"
    table.write_text("commit\tval_bpb\tmemory_gb\tstatus\tdescription\na\t0.9\t4\tkeep\tbaseline\n")
    import_campaign(table, tmp_path / "theirs")
    done = installed("serve", "theirs", home=tmp_path)
    assert (done.returncode, done.stderr.count("\n")) == (1, 1)


def test_a_port_in_use_is_one_sentence(server: Server, tmp_path: Path) -> None:
    done = installed("serve", "--port", server.port, tmp_path, home=tmp_path)
    assert (done.returncode, done.stderr.count("\n")) == (1, 1)


def test_a_damaged_campaign_does_not_take_the_others_down(server: Server) -> None:
    wait_for(server, "first", 1)
    with server.client() as client:
        named = {one["name"]: one for one in client.get("/api/campaigns").json()}
    assert named["first"]["error"] is None
    assert "line 2" in named["damaged"]["error"]


def test_ctrl_c_ends_it_without_a_word(tmp_path: Path) -> None:
    write_campaign(tmp_path / "night", simulated(3))
    with serving(tmp_path) as server, server.client() as client:
        assert client.get("/api/campaigns").is_success
        server.process.send_signal(signal.SIGINT)
        said, _ = server.process.communicate()
        assert said == ""
