"""Check that no output holds a secret of the environment, against a server that echoes every
header."""

import html
import json
import re
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import quote

import httpx2
import pytest

from tests.support.campaigns import Toy
from tests.support.openai_server import Handler, OpenAIServer, Turn, refuses, says, sends

NAMES = ("Llm", "Url", "Proxy", "Page", "Sql", "Aws", "Ml", "Uri", "Ray", "Post", "Topic", "Told")
CORES = [f"Marked{name}5ecretMarked" for name in (*NAMES, "Wandb")]
LLM, URL, PROXY, PAGE, SQL, AWS, MLFLOW, URI, RAY, POST, TOPIC, TOLD = (
    f"s'k+/<{core}>" for core in CORES[:-1]
)
WANDB = f"{CORES[-1]}{'0' * 20}"
"""wandb sends no key of another form."""


def in_url(secret: str) -> str:
    return quote(secret, safe="")


class Night:
    """Run commands with a secret in every place for one, and keep what they print."""

    def __init__(self, home: Path) -> None:
        self.toy = Toy(home)
        self.outputs: dict[str, bytes] = {}
        self.toy.environment |= {
            "AUTORESEARCH_LLM_MODEL": "tiny",
            "AUTORESEARCH_LLM_API_KEY": f"{LLM}\r\n",
            "AUTORESEARCH_SERVE_TOKEN": f"{PAGE}\n",
            "HTTPS_PROXY": f"http://lab:{in_url(PROXY)}@127.0.0.1:9",
            "WANDB_API_KEY": WANDB,
            "AWS_SECRET_ACCESS_KEY": AWS,
            "MLFLOW_TRACKING_USERNAME": "lab",
            "MLFLOW_TRACKING_PASSWORD": MLFLOW,
            "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "0",
            "MLFLOW_DISABLE_TELEMETRY": "true",
            "RAY_AUTH_TOKEN": RAY,
        }

    def run(self, *arguments: str, code: int = 0, **variables: str) -> None:
        kept, self.toy.environment = self.toy.environment, self.toy.environment | variables
        done = self.toy.run(*arguments)
        self.toy.environment = kept
        self.outputs[f"{len(self.outputs)}: {arguments[0]}"] = (done.stdout + done.stderr).encode()
        assert done.returncode == code, done.stdout + done.stderr

    def serve(self) -> None:
        """Ask for pages as one who has the token, one who has another and one who has none."""
        with self.toy.started("serve", "--port=0", str(self.toy.campaign)) as process:
            try:
                assert process.stdout is not None
                printed = process.stdout.readline()
                url = printed.split()[0]
                shown = [
                    httpx2.get(url + path, headers={"Authorization": f"Bearer {token}".strip()})
                    for token in (PAGE, PAGE[:-1], "")
                    for path in ("/", "/login", "/api/campaigns", f"/{in_url(PAGE)}", "/nowhere")
                ]
                form = {"token": PAGE}
                shown += [httpx2.post(f"{url}/login", data=form), httpx2.post(f"{url}/api/x")]
            finally:
                process.terminate()
            printed += process.stdout.read()
        assert {200, 401} <= {page.status_code for page in shown}
        answers = [f"{page.headers} {page.text}" for page in shown]
        self.outputs["serve"] = " ".join([printed, *answers]).encode()

    def leaks(self) -> set[tuple[str, str]]:
        """Return file, or command, and the core of each secret in it."""
        paths = (path for path in self.toy.home.rglob("*") if path.is_file())
        outputs = {str(path): path.read_bytes() for path in paths} | self.outputs
        return {
            (name, core)
            for name, data in outputs.items()
            for core in CORES
            if core.encode() in data
        }


# --- turns of the server that echo what a request sent --------------------------------------------


def echoed(handler: Handler) -> str:
    """Return the request's headers in the forms in which programs print them."""
    sent = "; ".join(handler.headers.values())
    go = re.sub("[<>&]", lambda found: rf"\u{ord(found[0]):04x}", sent)
    dotnet = re.sub("[<>&'+]", lambda found: rf"\u{ord(found[0]):04X}", sent)
    return " ".join((sent, repr(sent.encode()), html.escape(sent), quote(sent), go, dotnet))


def echoes(status: int, **headers: str) -> Turn:
    """Answer with an error in the protocol's form."""
    return lambda handler: refuses(
        status, echoed(handler), X_Seen=quote(echoed(handler)), **headers
    )(handler)


def is_page(handler: Handler) -> None:
    sends(f"<html><body>{echoed(handler)}</body></html>".encode())(handler)


def redirects(handler: Handler) -> None:
    place = f"http://127.0.0.1:9/{quote(echoed(handler))}?key={quote(echoed(handler))}"
    sends(echoed(handler).encode(), 307, {"Location": place})(handler)


def is_cut(handler: Handler) -> None:
    """Close the connection in the middle of a body."""
    body = f'{{"choices": [{{"message": {{"content": "{echoed(handler)}'.encode()
    handler.start(200, {"Content-Length": str(2 * len(body))})
    handler.wfile.write(body)
    handler.close_connection = True


def proposes(handler: Handler) -> None:
    """Answer with a proposal whose reason is an echo."""
    reply = {"changes": {"lr": 0.002}, "reason": handler.headers["Authorization"]}
    says(json.dumps(reply), reasoning=echoed(handler))(handler)


def talks(handler: Handler) -> None:
    says(echoed(handler), finish_reason=echoed(handler))(handler)


def declines(handler: Handler) -> None:
    says(None, refusal=echoed(handler))(handler)


def thinks(name: str) -> Turn:
    """Answer with thoughts alone, in the field of this name."""
    return lambda handler: says("", **{name: echoed(handler)})(handler)


def calls(handler: Handler) -> None:
    """Call a function instead of answering."""
    says(None, tool_calls=[{"function": {"name": "f", "arguments": echoed(handler)}}])(handler)


TURNS = (
    *(proposes, talks, declines, is_page),  # each iteration asks up to three times
    *(thinks("reasoning"), thinks("reasoning_content"), calls),
    *(echoes(400), echoes(400)),  # with the schema, and without
    *(echoes(429, Retry_After="99999"), echoes(503, Retry_After="99999")),
    *(redirects, is_cut, echoes(500), echoes(401)),
)


@pytest.mark.slow
def test_no_secret_is_printed_or_written(tmp_path: Path) -> None:
    night = Night(tmp_path)
    campaign = f"--campaign={night.toy.campaign}"
    with OpenAIServer(TURNS) as server:
        server.elsewhere = echoes(404)
        address = server.url.removesuffix("/v1").partition("://")[2]
        night.toy.environment["AUTORESEARCH_LLM_BASE_URL"] = server.url
        options = ["--llm-share=1"]
        if find_spec("apprise"):
            post = f"json://lab:{in_url(POST)}@{address}/{in_url(TOPIC)}"
            night.toy.environment["AUTORESEARCH_NOTIFY_URLS"] = post
            options += [f"--notify=json://{address}/{in_url(TOLD)}", "--notify-keeps"]
        night.run(*night.toy.arguments(10, *options)[1:])
        assert len(server.script) == 1, "every way to echo was used"
        assert all(LLM in str(header) for header in server.authorizations)
        assert server.others_asked > 0 or not find_spec("apprise"), "no notice came"
        night.run("doctor")
        url = server.url.replace("://", f"://lab:{in_url(URL)}@")
        night.run("doctor", AUTORESEARCH_LLM_BASE_URL=url)
    night.run("doctor", AUTORESEARCH_LLM_BASE_URL="https://models.invalid/v1")
    sql = f"postgresql+psycopg://lab:{in_url(SQL)}@127.0.0.1:9/lab"
    night.run("reindex", campaign, code=1, AUTORESEARCH_HISTORY_URL=sql)
    night.run("top", campaign)
    night.run("report", campaign)
    for form in ("chat-jsonl", "jsonl", "csv"):
        night.run("export", f"--to={form}", campaign)
    night.serve()
    assert "[secret]" in (night.toy.campaign / "trajectory.jsonl").read_text()
    assert not night.leaks()


@pytest.mark.slow
@pytest.mark.parametrize("tracker", ["mlflow", "wandb"])
def test_no_secret_of_a_tracker_is_printed_or_written(tracker: str, tmp_path: Path) -> None:
    pytest.importorskip(tracker)
    night = Night(tmp_path)
    with OpenAIServer() as server:
        server.elsewhere = echoes(404)
        url = server.url.removesuffix("/v1")
        night.toy.environment["WANDB_BASE_URL"] = url
        place = url.replace("://", f"://lab:{in_url(URI)}@")
        log = f"--log=mlflow:{place}" if tracker == "mlflow" else "--log=wandb:lab"
        night.run(*night.toy.arguments(1, log)[1:])
        assert server.models_asked + server.others_asked > 0
    assert not night.leaks()
