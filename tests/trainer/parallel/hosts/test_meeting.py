from __future__ import annotations

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
    with pytest.raises(SettingsError, match="--this-host"):
        read_hosts("127.0.0.1,127.0.0.2")
    assert read_hosts("127.0.0.1,127.0.0.2", this="127.0.0.2").this == 1


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("127.0.0.1", "names 1 host, and 2 to 64 are needed"),
        ("127.0.0.1,", "names 1 host"),
        ("", "names 0 hosts"),
        ("127.0.0.1,localhost", "names one host twice"),
        ("127.0.0.1,no-such-host.invalid", "has no address that this machine knows"),
        ("198.51.100.1,198.51.100.2", "this machine is none by its addresses"),
    ],
)
def test_what_names_no_hosts_is_one_sentence(text: str, said: str) -> None:
    with pytest.raises(SettingsError, match=said) as refused:
        read_hosts(text)
    assert "\n" not in str(refused.value)


def test_a_host_that_is_none_of_them_and_a_port_that_is_none() -> None:
    with pytest.raises(SettingsError, match="--this-host"):
        read_hosts("127.0.0.1,127.0.0.2", this="spark-9")
    with pytest.raises(SettingsError, match="--port"):
        read_hosts("198.51.100.1,127.0.0.1", port=80)
