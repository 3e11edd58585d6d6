"""Access requires the token, or a session opened with it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trajectory.live.app import COOKIE, Access, is_loopback

TOKEN = "correct horse battery staple"


def bearer(token: str) -> dict[str, str]:
    return {"authorization": f"Bearer {token}"}


def test_the_token_opens_and_nothing_else_does() -> None:
    assert Access(None).admits({}, {})
    assert not Access(None).accepts("")
    access = Access(TOKEN)
    assert access.admits(bearer(TOKEN), {})
    for headers in ({}, bearer(TOKEN[:-1]), {"authorization": f"Basic {TOKEN}"}):
        assert not access.admits(headers, {})


@given(st.text())
def test_no_other_text_is_the_token(text: str) -> None:
    access = Access(TOKEN)
    assert access.accepts(text) == (text == TOKEN)
    assert not access.admits({}, {COOKIE: text})


def test_a_session_outlives_the_server_and_not_the_token(monkeypatch: pytest.MonkeyPatch) -> None:
    cookie = Access(TOKEN).new_session()
    assert TOKEN not in cookie
    assert Access(TOKEN).admits({}, {COOKIE: cookie})
    assert not Access(TOKEN + "!").admits({}, {COOKIE: cookie})
    expires, _, signature = cookie.partition(".")
    assert not Access(TOKEN).admits({}, {COOKIE: f"{int(expires) + 1}.{signature}"})
    monkeypatch.setattr("trajectory.live.app.time.time", lambda: float(expires) + 1)
    assert not Access(TOKEN).admits({}, {COOKIE: cookie})


def test_what_only_this_machine_reaches() -> None:
    assert all(map(is_loopback, ("127.8.8.8", "::1", "localhost")))
    assert not any(map(is_loopback, ("0.0.0.0", "::", "spark.local")))
