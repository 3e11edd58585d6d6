"""Check that no output holds a secret of the environment, against a server that echoes every
header."""

from __future__ import annotations

import base64
import html
import json
from pathlib import Path
from urllib.parse import quote

import pytest

from tests.support.campaigns import Toy
from tests.support.openai_server import Handler, OpenAIServer, Turn, refuses, says, sends

CORES = [
    f"Marked{name}5ecretMarked"
    for name in ("Llm", "Url", "Proxy", "Page", "Sql", "Wb", "Ml", "Uri")
]
LLM, URL, PROXY, PAGE, SQL, WANDB, MLFLOW, URI = (f"s'k+/<{core}>" for core in CORES)


def echoed(handler: Handler) -> str:
    """Return the request's headers in the forms in which programs print them."""
    sent = "; ".join(handler.headers.values())
    spelled = (sent, repr(sent.encode()), html.escape(sent), quote(sent))
    return " ".join([*spelled, base64.b64encode(sent.encode()).decode()])


def echoes(status: int) -> Turn:
    """Answer with an error in the protocol's form."""
    return lambda handler: refuses(status, echoed(handler), X_Seen=quote(echoed(handler)))(handler)


def is_page(handler: Handler) -> None:
    sends(f"<html><body>{echoed(handler)}</body></html>".encode())(handler)


def proposes(handler: Handler) -> None:
    """Answer with a proposal whose reason is an echo."""
    says(json.dumps({"changes": {"lr": 0.002}, "reason": handler.headers["Authorization"]}))(
        handler
    )


def talks(handler: Handler) -> None:
    says(echoed(handler))(handler)


def spellings(core: str) -> list[bytes]:
    """Return the secret's core, and the characters that hold it in the base64 form of any text."""
    coded = [base64.b64encode(b"\0" * before + core.encode())[4:-4] for before in range(3)]
    return [core.encode(), *coded]


@pytest.mark.slow
def test_no_secret_is_printed_or_written(tmp_path: Path) -> None:
    pytest.importorskip("mlflow")
    toy, printed = Toy(tmp_path), ""
    toy.environment |= {
        "AUTORESEARCH_LLM_MODEL": "tiny",
        "AUTORESEARCH_LLM_API_KEY": f"{LLM}\r\n",
        "AUTORESEARCH_SERVE_TOKEN": f"{PAGE}\n",
        "HTTPS_PROXY": f"http://lab:{quote(PROXY, safe='')}@127.0.0.1:9",
        "WANDB_API_KEY": WANDB,
        "AWS_SECRET_ACCESS_KEY": WANDB,
        "MLFLOW_TRACKING_USERNAME": "lab",
        "MLFLOW_TRACKING_PASSWORD": MLFLOW,
        "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "0",
        "MLFLOW_DISABLE_TELEMETRY": "true",
    }

    def run(*arguments: str, code: int = 0, **variables: str) -> None:
        nonlocal printed
        kept, toy.environment = toy.environment, toy.environment | variables
        done = toy.run(*arguments)
        toy.environment = kept
        printed += done.stdout + done.stderr
        assert done.returncode == code, done.stdout + done.stderr

    turns = [talks, is_page, echoes(400), proposes, echoes(500), echoes(401)]
    with OpenAIServer(turns) as server:
        server.looked_at = echoes(404)
        toy.environment["AUTORESEARCH_LLM_BASE_URL"] = server.url
        mlflow = server.url.removesuffix("/v1").replace("://", f"://lab:{quote(URI, safe='')}@")
        run(*toy.arguments(4, "--llm-share=1", f"--log=mlflow:{mlflow}")[1:])
        assert len(server.script) == 1, "every way to echo was used"
        assert all(LLM in str(header) for header in server.authorizations)
        run("doctor")
        in_url = server.url.replace("://", f"://lab:{quote(URL, safe='')}@")
        run("doctor", AUTORESEARCH_LLM_BASE_URL=in_url)
    run("doctor", AUTORESEARCH_LLM_BASE_URL="https://models.invalid/v1")
    campaign = f"--campaign={toy.campaign}"
    sql = f"postgresql+psycopg://lab:{quote(SQL, safe='')}@127.0.0.1:9/lab"
    run("reindex", campaign, code=1, AUTORESEARCH_HISTORY_URL=sql)
    run("top", campaign)
    run("report", campaign)
    for form in ("chat-jsonl", "jsonl", "csv"):
        run("export", f"--to={form}", campaign)
    assert "[secret]" in (toy.campaign / "trajectory.jsonl").read_text()
    files = {str(path): path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    files["what was printed"] = printed.encode()
    found = {
        (name, core)
        for name, data in files.items()
        for core in CORES
        if any(form in data for form in spellings(core))
    }
    assert not found
