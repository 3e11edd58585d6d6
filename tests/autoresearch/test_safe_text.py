"""Check that every form of a secret is redacted, and that ordinary text is not."""

import html
import json
from collections.abc import Iterator
from urllib.parse import quote, quote_plus

import pytest

from autoresearch.safe_text import REDACTED, learn, redact

KEY = "sk-Mark'er<1>/\"x+é\\ABCDEFGH"


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with monkeypatch.context() as inner:
        inner.setenv("AUTORESEARCH_LLM_API_KEY", f"{KEY}\r\n")
        inner.setenv("HTTP_PROXY", "http://bob:Pr%40xyPassword@proxy:3128")
        inner.setenv("SOME_TOKEN", "none")
        inner.setenv("AUTORESEARCH_NOTIFY_URLS", "json://127.0.0.1:9000/Topic")
        inner.setenv("BASE_URL", "https://host/v1?version=2026-01-01&api_key=0123%2F456789&x=usual")
        inner.setenv("PRIVATE_KEY_FILE", "/etc/ssl/private/server.pem")
        learn()
        yield
    learn()


@pytest.mark.parametrize(
    "form",
    [
        KEY,
        repr(KEY)[1:-1],
        repr(KEY.encode())[2:-1],
        json.dumps(KEY)[1:-1],
        json.dumps(KEY, ensure_ascii=False)[1:-1],
        r"sk-Mark'er\u003c1\u003e/\"x+é\\ABCDEFGH",  # Go
        r"sk-Mark\u0027er\u003c1\u003e/\"x+é\\ABCDEFGH",  # Gson
        r"sk-Mark\u0027er\u003C1\u003E/\u0022x\u002B\u00E9\\ABCDEFGH",  # .NET
        html.escape(KEY),
        quote(KEY),
        quote(KEY, safe=""),
        quote_plus(KEY),
        "Pr%40xyPassword",
        "Pr@xyPassword",
        "0123%2F456789",
        "0123/456789",
    ],
)
def test_each_form_is_replaced(form: str) -> None:
    assert redact(f"before {form}, after") == f"before {REDACTED}, after"


@pytest.mark.parametrize("text", [KEY[:8], f"({KEY[:17]}); check it", f"Bearer {KEY[:-1]}"])
def test_a_secret_that_a_limit_cut_off_is_replaced(text: str) -> None:
    assert KEY[:8] not in redact(text)


@pytest.mark.parametrize(
    "text",
    [
        "http://127.0.0.1:8000 serves the page",
        "2026-01-01 as usual",
        "none of it",
        "/etc/ssl/private/server.pem",
        "sk-Mark and more",
        "http://proxy:3128",
    ],
)
def test_ordinary_text_stays(text: str) -> None:
    assert redact(text) == text
