"""The report's format of texts, intervals and values."""

import pytest

from autoresearch.domains.ranges import RealRange, WholeRange
from tests.support.present import known
from trainer.schema import Measure
from trajectory.report.wording import ScoreFormat, cell_text, label, rate, shown
from trajectory.statistics.intervals import of_mean, of_share


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("plain, with\nlines\tand é ü 漢字 😀", "plain, with\nlines\tand é ü 漢字 😀"),
        ("\u202egnp.exe", "⟨U+202E⟩gnp.exe"),
        ("a\u0000b\x1b[0m", "a⟨U+0000⟩b⟨U+001B⟩[0m"),
        ("a\u200bb\u2028c", "a⟨U+200B⟩b⟨U+2028⟩c"),
        ("\ud800", "⟨U+D800⟩"),
        ("one\r\ntwo\rthree", "one\ntwo⟨U+000D⟩three"),
        ("👩\u200d🔬", "👩\u200d🔬"),
    ],
)
def test_what_is_invisible_is_spelled_out(text: str, expected: str) -> None:
    assert shown(text) == expected


def test_a_label_is_one_short_line() -> None:
    assert label("a\n b\t c") == "a b c"
    assert label("x" * 100, 10) == "x" * 9 + "…"


def test_the_interval_of_a_mean_is_students() -> None:
    estimate = of_mean([1.0, 2.0, 3.0])
    assert estimate.value == 2.0
    assert estimate.n == 3
    assert estimate.hi == pytest.approx(2 + 4.302653 / 3**0.5)  # t(0.975, 2) = 4.302653
    assert of_mean([1.0]).lo is None


def test_the_interval_of_a_share_is_wilsons() -> None:
    estimate = known(of_share(2, 25))
    assert (estimate.lo, estimate.hi) == (
        pytest.approx(0.02223, abs=5e-5),
        pytest.approx(0.24965, abs=5e-5),
    )
    none_of_ten = known(of_share(0, 10))
    assert none_of_ten.lo == pytest.approx(0, abs=1e-12)
    assert none_of_ten.hi == pytest.approx(0.27753, abs=5e-5)
    assert of_share(0, 0) is None


def test_a_cell_is_its_value_or_the_ends_of_its_bin() -> None:
    few, many = WholeRange(low=2, high=6, step=2), WholeRange(low=0, high=30)
    assert [cell_text(cell) for cell in few.cells] == ["2", "4", "6"]
    assert [cell_text(cell) for cell in many.cells][1:] == [
        *("5 – 9", "10 – 14", "15 – 19", "20 – 24", "25 – 30")
    ]
    assert cell_text(RealRange(low=1e-4, high=1e-1, scale="log").cells[0]) == "1e-4 – 3.2e-4"


def test_a_price_is_given_at_least_to_the_cent() -> None:
    assert [rate(usd) for usd in (0.3, 0.1234, 12.5)] == ["$0.30", "$0.1234", "$12.50"]


def test_a_score_that_grows_is_told_as_it_was_printed_and_in_its_own_decimals() -> None:
    accuracy = ScoreFormat(Measure(unit="accuracy", direction="maximise", digits=3))
    assert (accuracy.text(-0.8614), accuracy.signed(-0.0161)) == ("0.861", "+0.016")
    assert accuracy.span(-0.9, -0.8) == "0.800 … 0.900"
    assert (accuracy.text(0.0), accuracy.size(0.01)) == ("0.000", "0.010")
    assert ScoreFormat(Measure(unit="loss", digits=7)).text(0.00022) == "0.0002200"
