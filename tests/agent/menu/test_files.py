import json
from pathlib import Path
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.menu.files import load_menu, parse_menu, shipped_menus
from agent.proposers.llm.reply_form import proposal_schema
from autoresearch.errors import MenuError, SpecError
from tests.support.memories import fresh_memory
from trainer.spec import Budget

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


def test_a_menu_keeps_its_text_and_order() -> None:
    menu = parse_menu(MENU, "small.toml")
    assert menu.toml == MENU
    assert menu.sha256 == parse_menu(MENU, "elsewhere").sha256
    assert menu.sha256 != parse_menu(MENU + "\n", "small.toml").sha256
    assert list(menu.knobs)[:3] == ["n_layer", "d_model", "n_head"]
    assert menu.campaign.budget == STEPS_60
    assert menu.campaign.horizon_steps == 1000
    by_budget = parse_menu(MENU + 'horizon_steps = "budget"', "small.toml")
    assert by_budget.campaign.horizon_steps is None


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
    why = menu.why_broken(config, STEPS_60) or ""
    for seen in ("n_layer = 5", 'activation = "swiglu"', "change n_layer or activation"):
        assert seen in why


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


@pytest.mark.slow
def test_the_satisfied_share_is_measured() -> None:
    menu = parse_menu(MENU.replace("n_layer <= 4", "False"), "small.toml")
    whole = parse_menu(MENU.replace("choices = [2, 4, 6]", "choices = [2, 4, 8]"), "small.toml")
    # n_head 6 divides only 96 and 192 of the seven widths, and half of the activations are refused.
    assert menu.satisfied_share(STEPS_60) == pytest.approx((2 / 3 + 2 / 21) / 2, abs=0.04)
    assert menu.satisfied_share(STEPS_60) == menu.satisfied_share(STEPS_60)
    assert whole.satisfied_share(STEPS_60) == pytest.approx(1 - 1 / 2 * 2 / 5, abs=0.04)


@given(value=st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text()))
def test_a_value_in_the_domain_trains_and_no_other_passes(value: object) -> None:
    menu = load_menu("cpu-tiny")
    for knob in menu.knobs.values():
        if knob.why_not(value) is None:
            assert isinstance(value, bool | int | float | str)
            config = menu.apply(menu.baseline, {knob.name: value})
            assert menu.knob_values(config)[knob.name] == value


def with_knob(name: str, body: str) -> str:
    """Return the menu with one knob's table replaced by ``body``."""
    head, rest = MENU.split(f"[knobs.{name}]\n", 1)
    _, rest = rest.split("\n[", 1)
    return f"{head}[knobs.{name}]\n{body}\n[{rest}"


WHOLE = 'type = "int"\nlow = 2\nhigh = 6\n'


@pytest.mark.parametrize(
    ("name", "body"),
    [
        ("n_layer", ""),
        ("n_layer", WHOLE),
        ("n_layer", 'type = "integer"\ndefault = 1'),
        ("n_layer", 'type = "int"\nlow = 2\ndefault = 4'),
        ("n_layer", 'type = "int"\nlow = 6\nhigh = 2\ndefault = 4'),
        ("n_layer", 'type = "int"\nlow = 2.0\nhigh = 6\ndefault = 4'),
        ("n_layer", 'type = "int"\nlow = true\nhigh = 6\ndefault = 4'),
        ("n_layer", 'type = "int"\nlow = 2\nhigh = 7\nstep = 2\ndefault = 4'),
        ("n_layer", 'type = "int"\nlow = 0\nhigh = 6\ndefault = 4'),
        ("n_layer", 'type = "float"\nlow = 2\nhigh = 6\ndefault = 4'),
        ("n_layer", WHOLE + "default = 9"),
        ("n_layer", WHOLE + "default = 4.0"),
        ("n_layer", WHOLE + "defautl = 4"),
        ("n_layer", WHOLE + 'default = 4\nname = "x"'),
        ("n_layer", 'type = "int"\nchoices = [4]\ndefault = 4'),
        ("n_layer", 'type = "int"\nchoices = [4, 2, 4]\ndefault = 4'),
        ("n_layer", 'type = "int"\nchoices = [4, true]\ndefault = 4'),
        ("n_layer", 'type = "int"\nchoices = [4.0, 5.0]\ndefault = 4'),
        ("n_layer", 'type = "int"\nchoices = 4\ndefault = 4'),
        ("n_layer", 'type = "int"\nchoices = [[4], [5]]\ndefault = 4'),
        ("n_layer", 'type = "int"\nchoices = [4, 5]\nlow = 2\ndefault = 4'),
        ("n_layer", 'type = "int"\nchoices = [4, 5]\nstep = 2\ndefault = 4'),
        ("n_layer", 'type = "int"\nchoices = [4, 5]\ndefault = 6'),
        ("lr", 'type = "float"\nlow = 0\nhigh = 1\nscale = "log"\ndefault = 0.1'),
        ("lr", 'type = "float"\nlow = 0.1\nhigh = inf\ndefault = 0.1'),
        ("lr", 'type = "float"\nlow = 0.1\nhigh = 1\nstep = 2\ndefault = 0.1'),
        ("lr", 'type = "float"\nchoices = [0.1, 0.2]\ndefault = 0.1'),
        ("lr", 'type = "float"\nlow = 0.1\nhigh = 1\ndefault = 1979-05-27'),
        ("lr", 'type = "choice"\nchoices = ["1e-3", "1e-2"]\ndefault = "1e-3"'),
        ("activation", 'type = "choice"\nchoices = ["gelu", "relu"]\ndefault = "gelu"'),
    ],
)
def test_a_bad_knob_is_named(name: str, body: str) -> None:
    assert name in refusal(with_knob(name, body))


@pytest.mark.parametrize(
    ("old", "new", "seen"),
    [
        ('name = "small"', 'name = ""', "name"),
        ('doc = "For tests."', "doc = 3", "doc"),
        ('doc = "For tests."', 'dok = "x"', "dok"),
        ("[knobs.lr]", "[knobs.learning_rate]", "learning_rate"),
        ("d_ff = 512", "dff = 512", "dff"),
        ("d_ff = 512\n", "", "d_ff"),
        ("d_ff = 512", "d_ff = 512\nlr = 0.1", "lr"),
        ("d_ff = 512", "d_ff = 0", "d_ff = 0"),
        ("d_ff = 512", "d_ff = true", "d_ff = true"),
        ("d_ff = 512", "d_ff = [512]", "constants"),
        ("grad_clip = 1", 'grad_clip = "1"', "grad_clip"),
        ("grad_clip = 1", "grad_clip = inf", "grad_clip"),
        ('precision = "fp32"', 'precision = "fp64"', "precision"),
        ("d_ff = 512", "d_ff = 512\nd_ff = 256", "TOML"),
        ("high = 6", f"high = {'9' * 5000}", "TOML"),
        ("high = 6", f"high = {'[' * 3000}", "TOML"),
        ("high = 6", f"high = {'9' * 400}", "high"),
        ("n_layer <= 4", "n_layers <= 4", "n_layers"),
        ("n_layer <= 4", "print(n_layer)", "constraint"),
        (">= 5", ">= 56", "budget_steps = 60"),
        (">= 5", "/ 0 >= 5", "defaults"),
        ('"budget_steps - lr_warmup >= 5"', "5", "expr"),
        ("expr =", "expression =", "expression"),
        ("[[constraints]]", "[constraints]", "TOML"),
        ('budget = "60 steps"', "budget = 60", "budget"),
        ('budget = "60 steps"', 'budget = "inf steps"', "budget"),
        ('budget = "60 steps"', "heldout_bytes = 0", "heldout_bytes"),
        ('budget = "60 steps"', "horizon_steps = 0", "horizon_steps"),
        ('budget = "60 steps"', 'wall_s = "9"', "wall_s"),
        ('budget = "60 steps"', "memory_gib = 1e12", "memory_gib"),
        ('budget = "60 steps"', "stepz = 9", "stepz"),
        ("default = 4\n\n[knobs.lr]", "default = 6\n\n[knobs.lr]", "n_head 6"),
    ],
)
def test_a_bad_menu_is_refused_in_one_sentence(old: str, new: str, seen: str) -> None:
    assert old in MENU
    assert seen in refusal(MENU.replace(old, new))


@pytest.mark.parametrize(
    "rest",
    ["", "knobs = 3", "[knobs]\nlr = 3", "constraints = 3\n[knobs.lr]"],
)
def test_a_menu_without_its_tables_is_refused(rest: str) -> None:
    refusal(f'name = "x"\n{rest}')


@given(st.text(max_size=200))
def test_no_text_does_anything_but_load_or_be_refused(toml: str) -> None:
    with pytest.raises(MenuError):
        parse_menu(toml, "small.toml")


def test_a_file_of_ones_own_is_loaded_by_path(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(MENU, encoding="utf-8")
    assert load_menu(str(path)) == parse_menu(MENU, "small.toml")


@pytest.mark.parametrize(
    "name", ["cpu-tny", "latin.toml", "huge.toml", ".", "latin.toml/x", "a\0b", "x" * 5000]
)
def test_what_is_no_menu_file_is_refused(name: str, tmp_path: Path) -> None:
    (tmp_path / "latin.toml").write_bytes(b'name = "caf\xe9"')
    (tmp_path / "huge.toml").write_bytes(b"#" * (1 << 20) + b"\n")
    with pytest.raises(MenuError):
        load_menu(str(tmp_path / name))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("choices = [2, 4, 6]", f"choices = {list(range(1, 100_001))}"),
        ('name = "small"', "a." * 50_000 + 'b = 1\nname = "small"'),
        ('name = "small"', "[" + ".".join("abcd" * 9_000) + ']\nname = "small"'),
        ("high = 256\nstep = 32", f"high = {64 + 32 * 2**60}\nstep = 32"),
    ],
)
def test_a_menu_that_would_take_for_ever_is_refused_at_once(old: str, new: str) -> None:
    assert old in MENU
    assert len(refusal(MENU.replace(old, new))) < 400


def test_a_wide_stepped_range_is_no_list() -> None:
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
