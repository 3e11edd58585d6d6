import json
import math
import re
from pathlib import Path
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.menu.files import Knob, load_menu, parse_menu, shipped_menus
from agent.proposers.llm.reply_form import proposal_schema
from autoresearch.domains.choices import Ladder
from autoresearch.errors import MenuError, SpecError
from tests.support.memories import fresh_memory
from trainer.spec import Budget, Config

STEPS_60 = Budget(unit="steps", amount=60)

MENU = """
name = "small"
doc = "For tests."

[knobs.n_layer]
type = "int"
low = 2
high = 6
default = 4
doc = "blocks"

[knobs.d_model]
type = "int"
low = 64
high = 256
step = 32
default = 128

[knobs.n_head]
type = "int"
choices = [2, 4, 6]
default = 4

[knobs.lr]
type = "float"
low = 1e-4
high = 1e-1
scale = "log"
default = 1e-3

[knobs.weight_decay]
type = "float"
low = 0
high = 1
default = 0

[knobs.lr_warmup]
type = "int"
low = 0
high = 50
default = 5

[knobs.activation]
type = "choice"
choices = ["gelu", "swiglu"]
default = "gelu"

[knobs.tie_embeddings]
type = "choice"
choices = [true, false]
default = true

[constants]
d_ff = 512
norm = "layernorm"
positions = "learned"
lr_min_ratio = 0.1
grad_clip = 1
beta1 = 0.9
beta2 = 0.95
batch_size = 8
seq_len = 128
precision = "fp32"

[[constraints]]
expr = "budget_steps - lr_warmup >= 5"
doc = "warm-up leaves some budget."

[[constraints]]
expr = 'activation == "gelu" or n_layer <= 4'

[campaign]
budget = "60 steps"
"""


def refusal(toml: str) -> str:
    with pytest.raises(MenuError) as caught:
        parse_menu(toml, "small.toml")
    message = str(caught.value)
    assert message.startswith("menu small.toml")
    assert "\n" not in message
    return message


# --- shipped menus --------------------------------------------------------------------------------


def test_two_menus_are_shipped_under_their_own_names() -> None:
    assert shipped_menus() == ["cpu-tiny", "cpu-tiny-code", "spark-354m", "spark-354m-code"]
    assert [load_menu(name).name for name in shipped_menus()] == shipped_menus()


def test_spark_354m_has_the_published_knobs_and_is_the_published_model() -> None:
    menu = load_menu("spark-354m")
    baseline = menu.baseline

    assert menu.knob_values(baseline) == {
        "n_layer": 24,
        "n_head": 16,
        "d_model": 1024,
        "d_ff": 4096,
        "lr": 3e-4,
        "lr_warmup": 5,
        "grad_clip": 1.0,
        "weight_decay": 0.0,
        "beta1": 0.9,
        "beta2": 0.95,
        "batch_size": 16,
        "seq_len": 1024,
        "precision": "bf16",
    }
    blocks = baseline.n_layer * (4 * baseline.d_model**2 + 2 * baseline.d_model * baseline.d_ff)
    embeddings = (50_257 + baseline.seq_len) * baseline.d_model
    norms = (2 * baseline.n_layer + 1) * baseline.d_model
    assert blocks + embeddings + norms == pytest.approx(354.6e6, rel=1e-3)
    assert baseline.tie_embeddings


def test_spark_354m_leaves_five_steps_after_warm_up() -> None:
    menu = load_menu("spark-354m")
    config = menu.apply(menu.baseline, {"lr_warmup": 50})

    assert menu.broken_constraint(config, Budget(amount=55)) is None
    broken = menu.broken_constraint(config, Budget(amount=54))
    assert broken is not None
    assert broken.expr == "budget_steps - lr_warmup >= 5"


def test_cpu_tiny_has_about_a_million_parameters_and_ten_knobs() -> None:
    menu = load_menu("cpu-tiny")
    base = menu.baseline
    vocab_size = int(menu.campaign.tokenizer.removeprefix("bpe:"))
    blocks = base.n_layer * (4 * base.d_model**2 + 2 * base.d_model * base.d_ff)

    assert len(menu.knobs) >= 10
    assert blocks + vocab_size * base.d_model == pytest.approx(1e6, rel=0.2)


def test_no_config_of_cpu_tiny_trains_on_more_tokens_than_its_baseline() -> None:
    menu = load_menu("cpu-tiny")
    rng = Random(1)
    drawn = [{name: domain.draw(rng) for name, domain in menu.domains.items()} for _ in range(300)]
    configs = [menu.apply(menu.baseline, values) for values in drawn]
    allowed = [one for one in configs if menu.broken_constraint(one, STEPS_60) is None]

    assert allowed
    assert max(one.tokens_per_step for one in allowed) <= menu.baseline.tokens_per_step
    assert any(one.tokens_per_step > menu.baseline.tokens_per_step for one in configs)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["cpu-tiny", "spark-354m"])
def test_most_edits_of_a_shipped_baseline_meet_its_constraints(name: str) -> None:
    menu = load_menu(name)

    assert menu.satisfied_share(menu.campaign.budget, max_changes=3) > 0.7


# --- what a menu is for ---------------------------------------------------------------------------


def test_a_menu_keeps_its_text_and_order() -> None:
    menu = parse_menu(MENU, "small.toml")

    assert menu.toml == MENU
    assert menu.sha256 == parse_menu(MENU, "elsewhere").sha256
    assert menu.sha256 != parse_menu(MENU + "\n", "small.toml").sha256
    assert list(menu.knobs)[:3] == ["n_layer", "d_model", "n_head"]
    assert menu.campaign.budget == STEPS_60
    assert menu.campaign.horizon_steps == 1000


def test_the_horizon_may_be_the_budget() -> None:
    toml = MENU + 'horizon_steps = "budget"'

    assert parse_menu(toml, "small.toml").campaign.horizon_steps is None


def test_apply_edits_only_what_is_changed() -> None:
    menu = parse_menu(MENU, "small.toml")
    config = menu.apply(menu.baseline, {"lr": 0.01, "n_layer": 2})

    assert config == menu.baseline.model_copy(update={"lr": 0.01, "n_layer": 2})
    assert menu.knob_values(config)["lr"] == 0.01


def test_equal_values_make_equal_configs() -> None:
    menu = parse_menu(MENU, "small.toml")
    hashes = {
        menu.apply(menu.baseline, {"weight_decay": value}).config_hash for value in (0, 0.0, -0.0)
    }

    assert hashes == {menu.baseline.config_hash}


def test_what_the_trainer_cannot_run_is_a_spec_error() -> None:
    menu = parse_menu(MENU, "small.toml")

    with pytest.raises(SpecError, match="d_model"):
        menu.apply(menu.baseline, {"n_head": 6})


def test_a_broken_constraint_is_explained_with_the_values_seen() -> None:
    menu = parse_menu(MENU, "small.toml")
    config = menu.apply(menu.baseline, {"activation": "swiglu", "n_layer": 5})

    assert menu.broken_constraint(config, STEPS_60) == menu.constraints[1]
    assert menu.why_broken(config, STEPS_60) == (
        'the constraint activation == "gelu" or n_layer <= 4 does not hold where n_layer = 5, '
        'activation = "swiglu"; change n_layer or activation'
    )


def test_budget_steps_follow_from_a_budget_in_tokens() -> None:
    menu = parse_menu(MENU, "small.toml")
    budget = Budget(unit="tokens", amount=50 * menu.baseline.tokens_per_step)

    assert menu.broken_constraint(menu.baseline, budget) is None
    late = menu.apply(menu.baseline, {"lr_warmup": 46})
    assert menu.broken_constraint(late, budget) == menu.constraints[0]


def test_a_budget_in_seconds_leaves_constraints_on_steps_unchecked() -> None:
    menu = parse_menu(MENU, "small.toml")
    seconds = Budget(unit="seconds", amount=1)
    late = menu.apply(menu.baseline, {"lr_warmup": 50})

    assert menu.broken_constraint(late, seconds) is None
    assert menu.unchecked(seconds) == menu.constraints[:1]
    assert menu.unchecked(STEPS_60) == ()


def test_a_constraint_that_has_no_value_counts_as_broken() -> None:
    extra = '[[constraints]]\nexpr = "1 / (n_layer - 2) > 0"\n[campaign]'
    menu = parse_menu(MENU.replace("[campaign]", extra), "small.toml")
    config = menu.apply(menu.baseline, {"n_layer": 2})

    assert menu.broken_constraint(config, STEPS_60) == menu.constraints[2]
    assert "1 / 0 divides by zero" in (menu.why_broken(config, STEPS_60) or "")


@pytest.mark.slow
def test_the_satisfied_share_is_measured() -> None:
    menu = parse_menu(MENU.replace("n_layer <= 4", "False"), "small.toml")
    whole = parse_menu(MENU.replace("choices = [2, 4, 6]", "choices = [2, 4, 8]"), "small.toml")

    # n_head 6 divides only 96 and 192 of the seven widths, and half of the activations are refused.
    assert menu.satisfied_share(STEPS_60) == pytest.approx((2 / 3 + 2 / 21) / 2, abs=0.04)
    assert menu.satisfied_share(STEPS_60) == menu.satisfied_share(STEPS_60)
    assert whole.satisfied_share(STEPS_60) == pytest.approx(1 - 1 / 2 * 2 / 5, abs=0.04)


# --- knobs --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("knob", "good", "bad"),
    [
        ("n_layer", [2, 6], [1, 7, 4.0, True, "4", None, [4], math.nan, 10**5000]),
        ("d_model", [64, 96, 256], [65, 32, 288, 96.0]),
        ("n_head", [2, 4, 6], [3, 8, 4.0, True, "4"]),
        ("lr", [1e-4, 1e-1, 0.05], [1, 0, 9e-5, True, "1e-3", math.nan, math.inf, -math.inf]),
        ("weight_decay", [0, 1, 0.0, -0.0, 0.5], [True, False, -1e-9, 10**5000, {}]),
        ("activation", ["gelu"], ["GELU", "", 0, True, None, ["gelu"], {}]),
        ("tie_embeddings", [True, False], [1, 0, 1.0, "true", None]),
    ],
)
def test_why_not_takes_types_literally(knob: str, good: list[object], bad: list[object]) -> None:
    chosen = parse_menu(MENU, "small.toml").knobs[knob]

    assert [chosen.why_not(value) for value in good] == [None] * len(good)
    for value in bad:
        clause = chosen.why_not(value)
        assert clause is not None, value
        assert clause.startswith(f"{knob} = ")
        assert len(clause) < 200


def test_a_choice_of_floats_takes_whole_ones_as_ints() -> None:
    knob = Knob(name="beta1", domain=Ladder(choices=(0.5, 1.0)), default=0.5)

    assert knob.why_not(1) is None
    assert knob.why_not(True) is not None


@given(value=st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text()))
def test_a_value_in_the_domain_trains_and_no_other_passes(value: object) -> None:
    menu = load_menu("cpu-tiny")
    for knob in menu.knobs.values():
        if knob.why_not(value) is None:
            assert isinstance(value, bool | int | float | str)
            config = menu.apply(menu.baseline, {knob.name: value})
            assert menu.knob_values(config)[knob.name] == value


# --- invalid menus --------------------------------------------------------------------------------


def with_knob(name: str, body: str) -> str:
    """Return the menu with one knob's table replaced by ``body``."""
    head, rest = MENU.split(f"[knobs.{name}]\n", 1)
    _, rest = rest.split("\n[", 1)
    return f"{head}[knobs.{name}]\n{body}\n[{rest}"


@pytest.mark.parametrize(
    ("name", "body", "clauses"),
    [
        ("n_layer", "", ["knob n_layer", "type", "required"]),
        ("n_layer", 'type = "int"\nlow = 2\nhigh = 6', ["knob n_layer", "default", "required"]),
        ("n_layer", 'type = "integer"\ndefault = 1', ["type: ", "'int', 'float'", "'integer'"]),
        ("n_layer", 'type = "int"\nlow = 2\ndefault = 4', ["no high", "add high"]),
        ("n_layer", 'type = "int"\nhigh = 2\ndefault = 4', ["no low", "add low"]),
        ("n_layer", 'type = "int"\nlow = 6\nhigh = 2\ndefault = 4', ["low 6", "high 2", "raise"]),
        ("n_layer", 'type = "int"\nlow = 4\nhigh = 4\ndefault = 4', ["low 4 is not below"]),
        ("n_layer", 'type = "int"\nlow = 2\nhigh = 6\ndefault = 9', ["default", "n_layer = 9"]),
        ("n_layer", 'type = "int"\nlow = 2\nhigh = 6\ndefault = 4.0', ["default", "a float"]),
        ("n_layer", 'type = "int"\nlow = 2.0\nhigh = 6\ndefault = 4', ["whole", "2.0"]),
        ("n_layer", 'type = "int"\nlow = "2"\nhigh = 6\ndefault = 4', ["low", "not a number"]),
        ("n_layer", 'type = "int"\nlow = true\nhigh = 6\ndefault = 4', ["low", "not a number"]),
        ("n_layer", 'type = "int"\nlow = 2\nhigh = 6\nstep = 0\ndefault = 4', ["step"]),
        ("n_layer", 'type = "int"\nlow = 2\nhigh = 7\nstep = 2\ndefault = 4', ["set high to 6"]),
        ("n_layer", 'type = "int"\nlow = 0\nhigh = 6\ndefault = 4', ["knob n_layer reaches 0"]),
        ("n_layer", 'type = "float"\nlow = 2\nhigh = 6\ndefault = 4', ["reaches 2.0", "integer"]),
        ("n_layer", 'type = "int"\nlow = 2\nhigh = 6\ndefautl = 4', ["defautl", "mean default?"]),
        ("n_layer", 'type = "int"\nname = "x"\nlow = 2\nhigh = 6\ndefault = 4', ['key "name"']),
        ("n_layer", 'type = "int"\nchoices = []\ndefault = 4', ["0 choices", "two or more"]),
        ("n_layer", 'type = "int"\nchoices = [4]\ndefault = 4', ["1 choices", "constant"]),
        ("n_layer", 'type = "int"\nchoices = [4, 2, 4]\ndefault = 4', ["4 is listed twice"]),
        ("n_layer", 'type = "int"\nchoices = [4, "5"]\ndefault = 4', ["mix int and str"]),
        ("n_layer", 'type = "int"\nchoices = [4, true]\ndefault = 4', ["mix bool and int"]),
        ("n_layer", 'type = "int"\nchoices = [4.0, 5.0]\ndefault = 4', ["4.0 is not an int"]),
        ("n_layer", 'type = "int"\nchoices = 4\ndefault = 4', ["choices is 4", "list"]),
        ("n_layer", 'type = "int"\nchoices = [[4], [5]]\ndefault = 4', ["choices", "[4]"]),
        ("n_layer", 'type = "int"\nchoices = [4, 5]\nlow = 2\ndefault = 4', ["both choices and"]),
        ("n_layer", 'type = "int"\nchoices = [4, 5]\nstep = 2\ndefault = 4', ["step and scale"]),
        ("n_layer", 'type = "int"\nchoices = [4, 5]\ndefault = 6', ["default", "one of 4, 5"]),
        ("lr", 'type = "float"\nlow = 0\nhigh = 1\nscale = "log"\ndefault = 0.1', ["log", "low 0"]),
        ("lr", 'type = "float"\nlow = 0.1\nhigh = 1\nscale = "Log"\ndefault = 0.1', ["scale"]),
        ("lr", 'type = "float"\nlow = 0.1\nhigh = inf\ndefault = 0.1', ["high", "not a number"]),
        ("lr", 'type = "float"\nlow = nan\nhigh = 1\ndefault = 0.1', ["low", "not a number"]),
        ("lr", 'type = "float"\nlow = 0.1\nhigh = 1\nstep = 2\ndefault = 0.1', ["step 2", "int"]),
        ("lr", 'type = "float"\nchoices = [0.1, 0.2]\ndefault = 0.1', ["choices", "choice"]),
        ("lr", 'type = "float"\nlow = 0.1\nhigh = 1\ndefault = "a"', ["default", "a string"]),
        ("lr", 'type = "float"\nlow = 0.1\nhigh = 1\ndefault = 1979-05-27', ["default", "date"]),
        ("lr", 'type = "choice"\nchoices = ["1e-3", "1e-2"]\ndefault = "1e-3"', ["convert it to"]),
        ("activation", 'type = "choice"\ndefault = "gelu"', ["0 choices"]),
        (
            "activation",
            'type = "choice"\nchoices = ["gelu", "relu"]\ndefault = "gelu"',
            ["knob activation reaches", "relu", "'geglu' or 'relu2'"],
        ),
    ],
)
def test_a_bad_knob_is_named_with_the_mend(name: str, body: str, clauses: list[str]) -> None:
    message = refusal(with_knob(name, body))

    assert name in message
    for clause in clauses:
        assert clause in message


@pytest.mark.parametrize(
    ("old", "new", "clauses"),
    [
        ('name = "small"\n', "", ["name is null"]),
        ('name = "small"', "name = 3", ["name is 3"]),
        ('name = "small"', 'name = ""', ['name is ""']),
        ('doc = "For tests."', "doc = 3", ["doc"]),
        ('doc = "For tests."', 'dok = "x"', ['unknown key "dok"', "mean doc?"]),
        ("[constants]", "[constant]", ['unknown key "constant"', "mean constants?"]),
        ("[knobs.lr]", "[knobs.learning_rate]", ["knob learning_rate is not a field", "lr"]),
        ("[knobs.lr_warmup]", "[knobs.warmup]", ["warmup is not a field", "mean lr_warmup?"]),
        ("d_ff = 512", "dff = 512", ["constant dff is not a field", "mean d_ff?"]),
        ("d_ff = 512\n", "", ["d_ff is not defined", "[knobs.d_ff]"]),
        ("d_ff = 512", "d_ff = 512\nlr = 0.1", ["lr is both a knob and a constant"]),
        ("d_ff = 512", "d_ff = 512.5", ["constant d_ff = 512.5"]),
        ("d_ff = 512", "d_ff = 0", ["constant d_ff = 0"]),
        ("d_ff = 512", "d_ff = true", ["constant d_ff = true"]),
        ("d_ff = 512", "d_ff = [512]", ["constants", "[512]"]),
        ("grad_clip = 1", "grad_clip = true", ["constant grad_clip = true", "convert it to 1.0"]),
        ("grad_clip = 1", 'grad_clip = "1"', ['grad_clip = "1"', "convert it to 1.0"]),
        ("grad_clip = 1", "grad_clip = inf", ["grad_clip"]),
        ('precision = "fp32"', 'precision = "fp64"', ['precision = "fp64"', "bf16"]),
        ("d_ff = 512", "d_ff = 512\nd_ff = 256", ["not readable TOML", "line"]),
        ("[knobs.lr]", "[knobs.n_layer]", ["not readable TOML", "line"]),
        ("low = 2\n", "low = \n", ["not readable TOML", "line 7"]),
        ("high = 6", f"high = {'9' * 5000}", ["not readable TOML"]),
        ("high = 6", f"high = {'[' * 3000}", ["not readable TOML"]),
        ("high = 6", f"high = {'9' * 400}", ["high"]),
        ("n_layer <= 4", "n_layers <= 4", ["constraint", '"n_layers"', "mean n_layer?"]),
        ("n_layer <= 4", "n_layer", ["constraint", "a number where a condition belongs"]),
        ("n_layer <= 4", "print(n_layer)", ["constraint", "not part of the constraint language"]),
        ('== "gelu"', '== "gelo"', ["constraint", "mean gelu?"]),
        (">= 5", ">= 56", ["defaults are inconsistent", "budget_steps = 60", "lr_warmup = 5"]),
        (">= 5", "/ 0 >= 5", ["defaults are inconsistent", "divides by zero"]),
        ('"budget_steps - lr_warmup >= 5"', "5", ["constraint", "expr"]),
        ("expr =", "expression =", ["a constraint", '"expression"', "mean expr?"]),
        ("[[constraints]]", "[constraints]", ["TOML"]),
        ('budget = "60 steps"', "budget = 60", ["[campaign]", "'60'", "60 steps"]),
        ('budget = "60 steps"', 'budget = "60.5 steps"', ["[campaign]", "60.5 steps"]),
        ('budget = "60 steps"', 'budget = "-3 steps"', ["[campaign]"]),
        ('budget = "60 steps"', 'budget = "inf steps"', ["[campaign]"]),
        ('budget = "60 steps"', "heldout_bytes = 0", ["[campaign]", "heldout_bytes"]),
        ('budget = "60 steps"', 'heldout_bytes = "9"', ["[campaign]", "heldout_bytes"]),
        ('budget = "60 steps"', "horizon_steps = 0", ["[campaign]", "horizon_steps"]),
        ('budget = "60 steps"', 'wall_s = "9"', ["[campaign]", "wall_s"]),
        ('budget = "60 steps"', "memory_gib = 1e12", ["[campaign]", "memory_gib", "1048576"]),
        ('budget = "60 steps"', "stepz = 9", ["[campaign]", '"stepz"']),
        ("default = 4\n\n[knobs.lr]", "default = 6\n\n[knobs.lr]", ["128", "n_head 6", "change"]),
    ],
)
def test_a_bad_menu_is_refused_in_one_sentence(old: str, new: str, clauses: list[str]) -> None:
    message = refusal(MENU.replace(old, new))

    for clause in clauses:
        assert clause in message


@pytest.mark.parametrize(
    ("toml", "clause"),
    [
        ("", "no [knobs.NAME] table"),
        ('name = "x"', "no [knobs.NAME] table"),
        ('name = "x"\nknobs = 3', "knobs is 3"),
        ('name = "x"\n[knobs]\nlr = 3', "knob lr is 3"),
        ('name = "x"\nconstraints = 3\n[knobs.lr]', "constraints is not a list"),
    ],
)
def test_a_menu_without_its_tables_is_refused(toml: str, clause: str) -> None:
    assert clause in refusal(toml)


@given(st.text(max_size=200))
def test_no_text_does_anything_but_load_or_be_refused(toml: str) -> None:
    with pytest.raises(MenuError):
        parse_menu(toml, "small.toml")


# --- files --------------------------------------------------------------------------------------


def test_a_file_of_ones_own_is_loaded_by_path(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(MENU, encoding="utf-8")

    assert load_menu(str(path)) == parse_menu(MENU, "small.toml")


def test_a_menu_that_is_not_there_is_told_with_the_nearest() -> None:
    with pytest.raises(MenuError):
        load_menu("cpu-tny")


def test_what_is_no_menu_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "latin.toml").write_bytes(b'name = "caf\xe9"')
    (tmp_path / "huge.toml").write_bytes(b"#" * (1 << 20) + b"\n")
    (tmp_path / "bom.toml").write_bytes(b"\xef\xbb\xbf" + MENU.encode())

    for name, clause in [
        ("latin.toml", r"not UTF-8 \(byte 11 is 0xe9\)"),
        ("huge.toml", "larger than 1,048,576 bytes"),
        ("bom.toml", "not readable TOML"),
        (".", "cannot be read: Is a directory"),
        ("latin.toml/x", "no menu"),
        ("a\0b", "cannot be read"),
        ("", "cannot be read: Is a directory"),
        ("x" * 5000, "cannot be read: File name too long"),
    ]:
        with pytest.raises(MenuError, match=clause):
            load_menu(str(tmp_path / name))


def test_the_baseline_is_a_config() -> None:
    assert isinstance(parse_menu(MENU, "small.toml").baseline, Config)


# --- menus that would take forever or print too much ----------------------------------------------


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        (
            "choices = [2, 4, 6]",
            f"choices = {list(range(1, 100_001))}",
            "knob n_head: it has 100,000 choices and 256 are the most",
        ),
        ('name = "small"', "a." * 50_000 + 'b = 1\nname = "small"', "over 64 dots"),
        ('name = "small"', "[" + ".".join("abcd" * 9_000) + ']\nname = "small"', "over 64 dots"),
        (
            "low = 64\nhigh = 256\nstep = 32",
            f"low = 64\nhigh = {64 + 32 * 2**60}\nstep = 32",
            "beyond 2**53",
        ),
    ],
)
def test_a_menu_that_would_take_for_ever_is_refused_at_once(old: str, new: str, said: str) -> None:
    assert old in MENU
    with pytest.raises(MenuError, match=re.escape(said)):
        parse_menu(MENU.replace(old, new), "a.toml")


def test_a_wide_stepped_range_is_no_list() -> None:
    """The values are too many to list in a schema for a language model, or anywhere else."""
    text = MENU.replace("low = 0\nhigh = 50\n", f"low = 1\nhigh = {1 + 2**40}\nstep = 16\n")
    text = text.replace("default = 5", "default = 17")
    menu = parse_menu(text, "a.toml")
    schema = proposal_schema(fresh_memory(menu))
    assert len(json.dumps(schema)) < 5000
    offered = [each["properties"] for each in schema["properties"]["changes"]["items"]["anyOf"]]
    warmup = next(each["value"] for each in offered if each["knob"]["enum"] == ["lr_warmup"])
    assert len(warmup["enum"]) < 30
    assert menu.satisfied_share(STEPS_60, draws=200) >= 0


def test_a_menus_words_are_plain_text() -> None:
    ugly = r"\u001b]0;owned\u0007\u001b[2J\u202e"
    menu = parse_menu(MENU.replace('doc = "', f'doc = "{ugly}'), "a.toml")
    assert menu.doc.isprintable()
    assert all(knob.doc.isprintable() for knob in menu.knobs.values())
    assert all(constraint.doc.isprintable() for constraint in menu.constraints)
