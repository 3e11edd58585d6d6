"""Access requires the token, or a session opened with it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trajectory.live.access import COOKIE, Access, is_loopback

TOKEN = "correct horse battery staple"


def bearer(token: str) -> dict[str, str]:
    return {"authorization": f"Bearer {token}"}


def test_without_a_token_nobody_is_asked() -> None:
    assert Access(None).admits({}, {})
    assert not Access(None).accepts("")


def test_the_token_opens_and_nothing_else_does() -> None:
    access = Access(TOKEN)
    assert access.admits(bearer(TOKEN), {})
    assert not access.admits({}, {})
    assert not access.admits(bearer(TOKEN[:-1]), {})
    assert not access.admits({"authorization": f"Basic {TOKEN}"}, {})


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
    monkeypatch.setattr("trajectory.live.access.time.time", lambda: float(expires) + 1)
    assert not Access(TOKEN).admits({}, {COOKIE: cookie})


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        ("127.8.8.8", True),
        ("::1", True),
        ("localhost", True),
        ("0.0.0.0", False),
        ("::", False),
        ("spark.local", False),
    ],
)
def test_what_only_this_machine_reaches(host: str, expected: bool) -> None:
    assert is_loopback(host) is expected
