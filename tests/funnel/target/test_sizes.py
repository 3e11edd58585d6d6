from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoresearch.errors import AutoresearchError
from funnel.target.shape import parse_size, size_text


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("200M", 200_000_000),
        ("1.5b", 1_500_000_000),
        (" 300k ", 300_000),
        ("8,030,261,248", 8_030_261_248),
        ("7_000", 7000),
    ],
)
def test_sizes_are_read_as_people_write_them(text: str, size: int) -> None:
    assert parse_size(text) == size


@pytest.mark.parametrize("text", ["", "200MM", "-1M", "0.1", "1e6", "nan", "٣M", "M"])
def test_what_is_no_size_is_refused(text: str) -> None:
    with pytest.raises(AutoresearchError):
        parse_size(text)


@pytest.mark.parametrize(("size", "text"), [(999, "999"), (999_600, "1M"), (212_345_678, "212M")])
def test_three_digits_are_written(size: int, text: str) -> None:
    assert size_text(size) == text


@given(st.integers(1, 10**15))
def test_what_is_written_is_read_back_to_three_digits(size: int) -> None:
    assert parse_size(size_text(size)) == pytest.approx(size, rel=0.005)
