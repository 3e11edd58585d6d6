from __future__ import annotations

from typing import Any

import pytest

from autoresearch.errors import SettingsError
from trainer.parallel.hosts.job import read_hosts


def test_this_machine_is_the_host_whose_address_it_has() -> None:
    hosts = read_hosts("198.51.100.1, 127.0.0.1")  # the first address is unassigned (RFC 5737)
    assert hosts.this == 1
    assert hosts.addresses == ("198.51.100.1", "127.0.0.1")
    assert hosts.interface == "lo"
    assert list(hosts.others()) == [(0, "198.51.100.1")]


def test_where_several_are_this_machine_a_person_says_which() -> None:
    assert read_hosts("127.0.0.1,127.0.0.2", this="127.0.0.2").this == 1


@pytest.mark.parametrize(
    ("text", "more"),
    [
        ("127.0.0.1", {}),
        ("127.0.0.1,", {}),
        ("127.0.0.1,localhost", {}),
        ("127.0.0.1,no-such-host.invalid", {}),
        ("198.51.100.1,198.51.100.2", {}),
        ("127.0.0.1,127.0.0.2", {}),
        ("127.0.0.1,127.0.0.2", {"this": "spark-9"}),
        ("198.51.100.1,127.0.0.1", {"port": 80}),
    ],
)
def test_what_names_no_hosts_is_one_sentence(text: str, more: dict[str, Any]) -> None:
    with pytest.raises(SettingsError) as refused:
        read_hosts(text, **more)
    assert "\n" not in str(refused.value)
