"""The application answers over HTTP, and the installed command runs it as a real server."""

import os
import signal
import socket
from pathlib import Path

import pytest
from fastapi.testclient import TestClient
from prometheus_client.parser import text_string_to_metric_families
from starlette.requests import HTTPConnection

from agent.commands.record.serve import DRAW
from tests.support.campaigns import installed
from tests.support.configs import config
from tests.support.foreign import RESULTS_TSV
from tests.support.rows import baseline_row, iteration_row, ok, trial
from tests.trajectory.live.server import TOKEN, client, serving, simulated, write_campaign
from trainer.schema import Measure
from trajectory.formats.importing import import_campaign
from trajectory.rows import CampaignRow, IterationRow

ROWS = simulated(40)
FIRST = "/api/campaigns/first"


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of two campaigns and a damaged one."""
    runs = tmp_path_factory.mktemp("runs")
    write_campaign(runs / "first", ROWS)
    write_campaign(runs / "second", simulated(12, seed=8))
    damaged = write_campaign(runs / "damaged", simulated(8))
    text = damaged.read_text("utf-8").replace('"kind":"baseline"', '"kind":"other"', 1)
    damaged.write_text(text, "utf-8")
    return runs


@pytest.fixture(scope="module")
def server(runs: Path) -> TestClient:
    return client(runs, draw=DRAW)


@pytest.fixture(scope="module")
def guarded(runs: Path) -> TestClient:
    return client(runs, token=TOKEN)


def test_a_damaged_campaign_does_not_take_the_others_down(server: TestClient) -> None:
    named = {one["name"]: one for one in server.get("/api/campaigns").json()}
    assert named["first"]["error"] is None
    assert "line 2" in named["damaged"]["error"]


def test_the_best_are_told_by_what_they_are_and_not_by_their_last_change(tmp_path: Path) -> None:
    candidate = config(lr=0.002, d_ff=256)  # an earlier iteration changed d_ff
    row = iteration_row(
        1, candidate, (trial(9, candidate, 0, ok(4.1)),), changes={"lr": 0.002, "n_layer": 4}
    )
    write_campaign(tmp_path / "c", [simulated(0)[0], baseline_row(1, 4.3, 0), row])
    best, baseline = client(tmp_path).get("/api/campaigns/c/top").json()
    assert best["difference"] == {"lr": 0.002, "d_ff": 256}
    assert baseline["difference"] == {}


def test_iterations_come_in_pages_and_each_is_the_journals_own_row(server: TestClient) -> None:
    whole = server.get(f"{FIRST}/iterations").json()
    later = server.get(f"{FIRST}/iterations?after=5&limit=3").json()
    assert [one["iter"] for one in later] == [6, 7, 8]
    assert later == whole[5:8]
    row = next(row for row in ROWS if isinstance(row, IterationRow) and row.iter == 7)
    told = server.get(f"{FIRST}/iterations/7").json()
    assert told == row.model_dump(mode="json", by_alias=True)


def test_scores_are_in_the_unit_and_direction_of_their_campaign(tmp_path: Path) -> None:
    first, *rows = simulated(2)
    assert isinstance(first, CampaignRow)
    grows = Measure(unit="points", direction="maximise")
    write_campaign(tmp_path / "own", [first.model_copy(update={"measure": grows}), *rows])
    write_campaign(tmp_path / "gpt", [first, *rows])
    text = client(tmp_path).get("/metrics").text
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


def test_pausing_writes_the_pause_file_and_nothing_else(server: TestClient, runs: Path) -> None:
    campaign, place = runs / "second", "/api/campaigns/second/pause"
    before = {path.name for path in campaign.iterdir()}
    for paused, files in ((True, before | {"pause"}), (False, before)):
        assert server.put(place, json={"paused": paused}).json() == {"paused": paused}
        assert {path.name for path in campaign.iterdir()} == files
    assert server.put(place, json={"paused": True, "iters": 3}).status_code == 422


@pytest.mark.parametrize("path", ["/", "/api/campaigns", "/nothing"])
def test_the_policy_goes_with_every_answer(server: TestClient, path: str) -> None:
    headers = server.get(path).headers
    policy = headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert headers["x-content-type-options"] == "nosniff"


PAUSE = f"PUT {FIRST}/pause"
FORWARDED = {"Origin": "https://lab.example", "X-Forwarded-Host": "lab.example"}


@pytest.mark.parametrize(
    ("request_line", "headers", "status"),
    [
        (f"GET {FIRST}/iterations/4000", {}, 404),
        ("GET /api/campaigns/nowhere/now", {}, 404),
        *(
            (f"GET /static/{name}", {}, 404)
            for name in ("..%2fapp.py", "../app.py", "page.html", "uplot.LICENSE", "%00")
        ),
        # A name of another site that resolves to this machine.
        ("GET /api/campaigns", {"Host": "evil.example"}, 400),
        (PAUSE, {"Origin": "https://evil.example"}, 403),
        (PAUSE, {"Sec-Fetch-Site": "cross-site", **FORWARDED}, 403),
        (PAUSE, FORWARDED, 200),
        # No page from elsewhere begins a drawing.
        *(
            (f"GET {FIRST}/report", {"Sec-Fetch-Site": site, "Sec-Fetch-Mode": mode}, 403)
            for site in ("cross-site", "same-site")
            for mode in ("no-cors", "cors", "navigate")
        ),
        ("GET /", {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate"}, 200),
        ("GET /", {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "no-cors"}, 403),
    ],
)
def test_what_is_refused(
    server: TestClient, runs: Path, request_line: str, headers: dict[str, str], status: int
) -> None:
    method, path = request_line.split()
    body = {"paused": status != 200} if method == "PUT" else None
    assert server.request(method, path, headers=headers, json=body).status_code == status
    assert not (runs / "first" / "pause").exists()


@pytest.mark.slow
def test_its_own_page_and_a_script_get_the_same_drawing(server: TestClient) -> None:
    own = {"Sec-Fetch-Site": "same-origin", "Sec-Fetch-Mode": "navigate"}
    drawn = server.get(f"{FIRST}/report", headers=own)
    assert drawn.headers["content-security-policy"].endswith("; sandbox allow-scripts")
    assert 'http-equiv="Content-Security-Policy"' in drawn.text
    assert server.get(f"{FIRST}/report").text == drawn.text, "a script says nothing of sites"


def test_a_token_guards_everything(guarded: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    for path in ("/api/campaigns", "/metrics", "/openapi.json", "/x"):
        assert guarded.get(path).status_code == 401, path
    away = guarded.get("/", headers={"Accept": "text/html"})
    assert (away.status_code, away.headers["location"]) == (303, "login")
    wrong = guarded.post("/login", data={"token": "wrong"})
    assert wrong.headers["location"] == "login#wrong"
    assert "set-cookie" not in wrong.headers
    friend = {"Authorization": f"Bearer {TOKEN}"}
    assert guarded.get("/api/campaigns", headers=friend).status_code == 200
    # The path decides, and not an address that the Host header is part of.
    with monkeypatch.context() as patched:
        patched.setattr(HTTPConnection, "url", property(lambda _: pytest.fail("it looked")))
        for host in ("x/healthz?", "x/login?", "x/healthz#", "[::1]/healthz?"):
            for path in ("/api/campaigns", "//healthz", "/healthz/"):
                assert guarded.get(path, headers={"Host": host}).status_code == 401
            assert guarded.get("/healthz", headers={"Host": host}).status_code == 200
    signed_in = guarded.post("/login", data={"token": TOKEN})
    cookie = signed_in.headers["set-cookie"]
    assert TOKEN not in cookie + signed_in.headers["location"]
    assert "HttpOnly" in cookie
    assert "samesite=strict" in cookie.lower()
    assert guarded.get("/api/campaigns").status_code == 200


def test_a_name_that_is_no_utf_8_is_shown(tmp_path: Path) -> None:
    odd = Path(os.fsdecode(os.fsencode(tmp_path) + b"/run-\xff\xfe"))
    write_campaign(odd, simulated(4))
    write_campaign(tmp_path / "broken\udcff", simulated(2)[:1]).write_text("{")
    server = client(tmp_path)
    names = {one["name"] for one in server.get("/api/campaigns").json()}
    assert names == {"run-\ufffd\ufffd", "broken\ufffd"}
    assert all(server.get(f"/api/campaigns/{name}/now").is_success for name in names)
    assert server.get("/metrics").is_success


@pytest.mark.parametrize(
    ("words", "token"),
    [
        ("--host 0.0.0.0 .", None),
        ("--host 0.0.0.0 .", "short"),
        ("--host no.such.host.invalid .", TOKEN),
        ("--port {taken} .", None),
        ("nowhere", None),
        ("theirs", None),
    ],
)
def test_what_cannot_be_served_is_refused(tmp_path: Path, words: str, token: str | None) -> None:
    (tmp_path / "results.tsv").write_text(RESULTS_TSV)
    import_campaign(tmp_path / "results.tsv", tmp_path / "theirs")
    environment = {"AUTORESEARCH_SERVE_TOKEN": token} if token else {}
    with socket.create_server(("127.0.0.1", 0)) as other:
        arguments = words.format(taken=other.getsockname()[1]).split()
        done = installed("serve", *arguments, home=tmp_path, **environment)
    assert (done.returncode, done.stderr.count("\n")) == (1, 1)


def test_ctrl_c_ends_it_without_a_word(tmp_path: Path) -> None:
    write_campaign(tmp_path / "night", simulated(3))
    with serving(tmp_path) as server, server.client() as asked:
        assert asked.get("/api/campaigns").is_success
        server.process.send_signal(signal.SIGINT)
        said, _ = server.process.communicate()
        assert said == ""
