"""The command prints the cost argument and refuses invalid settings."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from agent.cli import app
from autoresearch.errors import AutoresearchError
from autoresearch.layout import JOURNAL_FILE
from funnel.cost.bill import CloudRun
from funnel.cost.rates import Rates
from tests.support.places import NIGHT
from trajectory.reading import Results


def run(*arguments: str, **environment: str) -> str:
    result = CliRunner().invoke(app, ["cost", *arguments], env=environment)
    if result.exception is not None:
        raise result.exception
    return result.stdout


def refusal(*arguments: str, **environment: str) -> str:
    result = CliRunner().invoke(app, ["cost", *arguments], env=environment)
    assert isinstance(result.exception, AutoresearchError), result.output
    assert result.stdout == ""
    assert "\n" not in str(result.exception)
    return str(result.exception)


def test_the_environment_and_set_give_rates_and_set_wins() -> None:
    other_name = {"H100_HOURLY_USD": "4", "AUTORESEARCH_USD_PER_KWH": "0.5"}
    rates = json.loads(run("--json", "--set", "h100_hourly_usd=3", **other_name))["rates"]
    assert rates["h100_hourly_usd"] == 3
    assert rates["kwh_usd"] == 0.5, "one price of electricity under both its names"
    assert json.loads(run("--json", KWH_USD="0.25", **other_name))["rates"]["kwh_usd"] == 0.25


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("KWH_USD", "abc"),
        ("KWH_USD", "-1"),
        ("H100_HOURLY_USD", "nan"),
        ("SPARK_LIFE_YEARS", "0"),
        ("CAMPAIGN_ITERS", "2.5"),
        ("WRONG_PICK_RATE", "1.5"),
    ],
)
def test_a_bad_rate_is_one_sentence_that_names_it(variable: str, value: str) -> None:
    for command in (("--json",), ("cluster",), ("--set", f"{variable}={value}")):
        environment = {} if "--set" in command else {variable: value}
        said = refusal(*command, **environment)
        assert said.startswith(f"{variable} ")
        assert repr(value) in said


@pytest.mark.parametrize(
    ("arguments", "names"),
    [
        (("--set", "KWH=1"), "KWH"),
        (("--set", "KWH_USD"), "--set KWH_USD has no value"),
        (("--campaign", "nowhere"), "nowhere"),
        (("cluster", "--set", "SPARK_TFLOPS=-1"), "SPARK_TFLOPS"),
        (("cluster", "--set", "SPARK_SCALING=2"), "SPARK_SCALING"),
        (("cluster", "--set", "SPARK_SCALING=1e-320"), "SPARK_SCALING"),
        (("cluster", "--gpu", "h999"), "h999"),
        (("timeline", "--target", "nothing"), "nothing"),
    ],
)
def test_nonsense_is_refused_by_name(arguments: tuple[str, ...], names: str) -> None:
    assert names in refusal(*arguments)


def test_an_option_of_another_view_is_wrong_usage() -> None:
    for words in (["cluster", "--searches", "4"], ["--gpus", "8"], ["month", "--gpu", "h200"]):
        assert CliRunner().invoke(app, ["cost", *words]).exit_code == 2
    for gpus in ("0", "9" * 400):
        assert CliRunner().invoke(app, ["cost", "cluster", "--gpus", gpus]).exit_code == 2


def test_the_month_and_the_timeline_in_text_and_json() -> None:
    monthly = json.loads(run("cluster", "--json"))
    assert monthly["monthly_usd"]["rented_usd"] == 14610
    assert monthly["pays_within_life"] is False
    assert "break-even month" in run("cluster")
    two = ("cluster", "--gpu", "b200", "--gpus", "2", "--json")
    for rate, usd in (((), 2.25), (("--set", "B200_HOURLY_USD=6"), 6)):
        rented = json.loads(run(*two, *rate))["monthly_usd"]["rented_usd"]
        assert rented == pytest.approx(2 * usd * 730.5)
    days = json.loads(run("timeline", "--target", "llama-7b", "--units", "16", "--json"))
    assert days["days_by_phase"] == {"all": pytest.approx(days["days"])}
    assert "8,192" in run("timeline")


def test_published_keys_are_kept_where_they_mean_the_same() -> None:
    other = run("--json", "--set", "TARGET_SCALE=30", "--set", "FINAL_NODE_HOURS=100")
    assert "target_scale_60x" not in other
    assert "$1,678.99" in run()
    for key in ("h100_8gpu_node_target_scale", "8xh100_100_hours"):
        assert f'"{key}"' in other


def test_the_plans_hours_are_taken_where_there_is_a_plan(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assumed = json.loads(run("--json"))
    assert assumed["bill"]["run"]["hours"] == 168
    assert "664 h" in run()
    planned = CloudRun.supposed(Rates()).model_copy(update={"hours": 664.0, "source": "a plan"})
    (tmp_path / "handoff").mkdir()
    plan = {"campaign": {"id": "mine"}, "money": {"run": planned.model_dump()}}
    (tmp_path / "handoff/plan.json").write_text(json.dumps(plan))
    found = json.loads(run("--json"))
    assert found["bill"]["run"]["hours"] == 664
    assert found["phases"]["cloud_usd"] == pytest.approx(664 * 20)
    another = json.loads(run("--campaign", str(NIGHT), "--json"))
    assert another["bill"]["run"]["hours"] == 168, "the plan is another campaign's"


def test_a_month_of_both_in_text_and_json() -> None:
    """$5,000 over 18 months, 4 × 100 × 88 s at 0.24 kW and $0.13, one week of 8 × $2.50."""
    month = json.loads(run("month", "--searches", "4", "--runs", "1", "--json"))["hybrid_month_usd"]
    for key, usd in {
        "unit_month_usd": 277.78,
        "electricity_usd": 0.31,
        "runs_usd": 3360,
        "hybrid_usd": 5000 / 18 + 0.305 + 3360,
        "all_rented_usd": 4 * 6.11 + 3360,
    }.items():
        assert month[key] == pytest.approx(usd, abs=0.01), key
    assert month["searches_to_pay"] == pytest.approx((5000 / 18) / (6.1111 - 0.0763), rel=1e-3)
    many = json.loads(run("month", "--searches", "60", "--json"))
    assert "units for the searches" in many["verdict"]
    assert "a month of both" in run("month")
    assert "--units" in refusal("month", "--searches", "400")


def test_what_was_measured_stands_before_the_argument_and_its_assumption_in_each_line() -> None:
    night = NIGHT
    shown = run("--campaign", str(night), "--set", "WRONG_PICK_RATE=0.37")
    measured, _, argument = shown.partition("the article's argument")
    result = Results(night / JOURNAL_FILE).headline()
    assert result.verdict == "confirmed"
    assert result.line in measured
    assert "0.37" not in measured
    dependent = [line for line in argument.splitlines() if "p × F" in line or "(p − q)" in line]
    named = [line for line in dependent if "break-even" not in line and "capex" not in line]
    assert len(named) == 4
    assert all("if p is 0.37" in line for line in named)
