import json
from contextlib import suppress
from pathlib import Path
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.menu.files import load_menu, parse_menu
from agent.proposers.llm.reply_form import proposal_schema
from autoresearch.errors import MenuError, SpecError
from tests.support.memories import constants, fresh_memory
from trainer.machine.flops import TrainingFlops
from trainer.schema import AnyConfig, Budget, gpt

STEPS_60 = Budget(unit="steps", amount=60)

KNOBS = {
    "n_layer": 'type = "int"\nlow = 2\nhigh = 6\ndefault = 4\ndoc = "blocks"',
    "d_model": 'type = "int"\nlow = 64\nhigh = 256\nstep = 32\ndefault = 128',
    "n_head": 'type = "int"\nchoices = [2, 4, 6]\ndefault = 4',
    "lr": 'type = "float"\nlow = 1e-4\nhigh = 1e-1\nscale = "log"\ndefault = 1e-3',
    "weight_decay": 'type = "float"\nlow = 0\nhigh = 1\ndefault = 0',
    "lr_warmup": 'type = "int"\nlow = 0\nhigh = 50\ndefault = 5',
    "activation": 'type = "choice"\nchoices = ["gelu", "swiglu"]\ndefault = "gelu"',
    "tie_embeddings": 'type = "choice"\nchoices = [true, false]\ndefault = true',
}
REST = """
[[constraints]]
expr = "budget_steps - lr_warmup >= 5"
doc = "warm-up leaves some budget."

[[constraints]]
expr = 'activation == "gelu" or n_layer <= 4'

[campaign]
budget = "60 steps"
"""


def menu_of(**changed: str) -> str:
    """Return the menu's text with the tables of some knobs replaced."""
    tables = "\n".join(f"[knobs.{name}]\n{body}\n" for name, body in (KNOBS | changed).items())
    return f'name = "small"\ndoc = "For tests."\n\n{tables}\n{constants(*KNOBS)}{REST}'


MENU = menu_of()


def refusal(toml: str) -> str:
    with pytest.raises(MenuError) as caught:
        parse_menu(toml, "small.toml")
    message = str(caught.value)
    assert message.startswith("menu small.toml")
    assert "\n" not in message
    return message


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
    }
    assert baseline.precision == "bf16"
    blocks = baseline.n_layer * (4 * baseline.d_model**2 + 2 * baseline.d_model * baseline.d_ff)
    embeddings = (50_257 + baseline.seq_len) * baseline.d_model
    norms = (2 * baseline.n_layer + 1) * baseline.d_model
    assert blocks + embeddings + norms == pytest.approx(354.6e6, rel=1e-3)
    assert baseline.tie_embeddings


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
    zeros = [menu.apply(menu.baseline, {"weight_decay": value}) for value in (0, 0.0, -0.0)]
    assert {one.config_hash for one in zeros} == {menu.baseline.config_hash}


def test_a_broken_constraint_is_explained_with_the_values_seen() -> None:
    menu = parse_menu(MENU, "small.toml")
    config = menu.apply(menu.baseline, {"activation": "swiglu", "n_layer": 5})
    assert menu.broken_constraint(config, STEPS_60) == menu.constraints[1]
    why = menu.why_broken(config, STEPS_60) or ""
    for seen in ("n_layer = 5", 'activation = "swiglu"', "change n_layer or activation"):
        assert seen in why


def test_constraints_on_steps_follow_the_budget_unless_it_is_in_seconds() -> None:
    menu = parse_menu(MENU, "small.toml")
    tokens = Budget(unit="tokens", amount=50 * menu.baseline.tokens_per_step)
    seconds = Budget(unit="seconds", amount=1)
    late = menu.apply(menu.baseline, {"lr_warmup": 46})
    assert menu.broken_constraint(menu.baseline, tokens) is None
    assert menu.broken_constraint(late, tokens) == menu.constraints[0]
    assert menu.broken_constraint(late, seconds) is None
    assert menu.unchecked(seconds) == menu.constraints[:1]
    assert menu.unchecked(STEPS_60) == ()


def test_a_constraint_that_has_no_value_counts_as_broken() -> None:
    extra = '[[constraints]]\nexpr = "1 / (n_layer - 2) > 0"\n[campaign]'
    menu = parse_menu(MENU.replace("[campaign]", extra), "small.toml")
    config = menu.apply(menu.baseline, {"n_layer": 2})
    assert menu.broken_constraint(config, STEPS_60) == menu.constraints[2]


WHOLE = 'type = "int"\nlow = 2\nhigh = 6\n'


@pytest.mark.parametrize(
    ("name", "body"),
    [
        ("n_layer", ""),
        ("n_layer", WHOLE),
        ("n_layer", 'type = "int"\nlow = 2\ndefault = 4'),
        ("n_layer", 'type = "int"\nlow = 6\nhigh = 2\ndefault = 4'),
        ("n_layer", 'type = "int"\nlow = true\nhigh = 6\ndefault = 4'),
        ("n_layer", 'type = "int"\nlow = 2\nhigh = 7\nstep = 2\ndefault = 4'),
        ("n_layer", 'type = "int"\nlow = 0\nhigh = 6\ndefault = 4'),
        ("n_layer", 'type = "float"\nlow = 2\nhigh = 6\ndefault = 4'),
        ("n_layer", WHOLE + "default = 9"),
        ("n_layer", WHOLE + "default = 4.0"),
        ("n_layer", WHOLE + "defautl = 4"),
        ("n_layer", 'type = "int"\nchoices = [4]\ndefault = 4'),
        ("n_layer", 'type = "int"\nchoices = [4, 2, 4]\ndefault = 4'),
        ("n_layer", 'type = "int"\nchoices = [4, true]\ndefault = 4'),
        ("n_layer", 'type = "int"\nchoices = [4.0, 5.0]\ndefault = 4'),
        ("n_layer", 'type = "int"\nchoices = 4\ndefault = 4'),
        ("n_layer", 'type = "int"\nchoices = [4, 5]\nlow = 2\ndefault = 4'),
        ("n_layer", 'type = "int"\nchoices = [4, 5]\nstep = 2\ndefault = 4'),
        ("lr", 'type = "float"\nlow = 0\nhigh = 1\nscale = "log"\ndefault = 0.1'),
        ("lr", 'type = "float"\nlow = 0.1\nhigh = inf\ndefault = 0.1'),
        ("lr", 'type = "float"\nlow = 0.1\nhigh = 1\nstep = 2\ndefault = 0.1'),
        ("lr", 'type = "float"\nchoices = [0.1, 0.2]\ndefault = 0.1'),
        ("lr", 'type = "choice"\nchoices = ["1e-3", "1e-2"]\ndefault = "1e-3"'),
        ("activation", 'type = "choice"\nchoices = ["gelu", "relu"]\ndefault = "gelu"'),
    ],
)
def test_a_bad_knob_is_named(name: str, body: str) -> None:
    assert name in refusal(menu_of(**{name: body}))


@pytest.mark.parametrize(
    ("old", "new", "seen"),
    [
        ('doc = "For tests."', "doc = 3", "doc"),
        ('doc = "For tests."', 'dok = "x"', "dok"),
        ("[knobs.lr]", "[knobs.learning_rate]", "learning_rate"),
        ("d_ff = 512", "dff = 512", "dff"),
        ("d_ff = 512\n", "", "d_ff"),
        ("d_ff = 512", "d_ff = 512\nlr = 0.1", "lr"),
        ("d_ff = 512", "d_ff = true", "d_ff = true"),
        ("d_ff = 512", "d_ff = [512]", "constants"),
        ("grad_clip = 1.0", 'grad_clip = "1"', "grad_clip"),
        ('precision = "bf16"', 'precision = "fp64"', "precision"),
        ("d_ff = 512", "d_ff = 512\nd_ff = 256", "TOML"),
        ("high = 6", f"high = {'9' * 5000}", "TOML"),
        ("high = 6", f"high = {'[' * 3000}", "TOML"),
        ("high = 6", f"high = {'9' * 400}", "high"),
        ("n_layer <= 4", "n_layers <= 4", "n_layers"),
        ("n_layer <= 4", "print(n_layer)", "constraint"),
        (">= 5", ">= 56", "budget_steps = 60"),
        (">= 5", "/ 0 >= 5", "defaults"),
        ('"budget_steps - lr_warmup >= 5"', "5", "expr"),
        ("[[constraints]]", "[constraints]", "TOML"),
        ("high = 256\nstep = 32", "step = 32", "add high = "),
        ("choices = [2, 4, 6]", "", "or choices"),
        ("low = 1e-4\nhigh = 1e-1", "choices = [0.1, 0.2]", "make its type choice"),
        ("[constants]", "[tied]\nlr_min = 3\n[constants]", "make it a constant"),
        ('budget = "60 steps"', "budget = 60", "budget"),
        ('budget = "60 steps"', 'budget = "inf steps"', "budget"),
        ('budget = "60 steps"', 'wall_s = "9"', "wall_s"),
        ('budget = "60 steps"', "memory_gib = 1e12", "memory_gib"),
        ("default = 4\n\n[knobs.lr]", "default = 6\n\n[knobs.lr]", "n_head 6"),
    ],
)
def test_a_bad_menu_is_refused_in_one_sentence(old: str, new: str, seen: str) -> None:
    assert old in MENU
    assert seen in refusal(MENU.replace(old, new))


@pytest.mark.parametrize(
    "text",
    [
        "",
        "knobs = 3",
        "[knobs]\nlr = 3",
        "constraints = 3\n[knobs.lr]",
        MENU.replace("choices = [2, 4, 6]", f"choices = {list(range(1, 100_001))}"),
        "a." * 50_000 + "b = 1\n" + MENU,
        "[" + ".".join("abcd" * 9_000) + "]\n" + MENU,
        MENU.replace("high = 256\nstep = 32", f"high = {64 + 32 * 2**60}\nstep = 32"),
    ],
)
def test_a_menu_without_tables_or_of_endless_work_is_refused_at_once(text: str) -> None:
    assert len(refusal(text if "name =" in text else f'name = "x"\n{text}')) < 400


@given(st.text(max_size=200))
def test_no_text_does_anything_but_load_or_be_refused(toml: str) -> None:
    with pytest.raises(MenuError):
        parse_menu(toml, "small.toml")


@pytest.mark.parametrize(
    "name", ["cpu-tny", "latin.toml", "huge.toml", ".", "latin.toml/x", "a\0b", "x" * 5000]
)
def test_what_is_no_menu_file_is_refused(name: str, tmp_path: Path) -> None:
    (tmp_path / "latin.toml").write_bytes(b'name = "caf\xe9"')
    (tmp_path / "huge.toml").write_bytes(b"#" * (1 << 20) + b"\n")
    with pytest.raises(MenuError):
        load_menu(str(tmp_path / name))


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


@pytest.mark.parametrize(
    ("name", "vocab_size"),
    [("cpu-tiny", 1024), ("cpu-modern", 1024), ("spark-354m", 50257), ("spark-modern", 50257)],
)
def test_a_shipped_menu_holds_the_compute_of_a_step(name: str, vocab_size: int) -> None:
    menu, rng = load_menu(name), Random(1)

    def step_flops(config: AnyConfig) -> float:
        shape = gpt(config)
        flops = TrainingFlops.of(shape, vocab_size=vocab_size, seq_len=shape.seq_len)
        return flops.per_token * shape.tokens_per_step

    bar = 1.25 * step_flops(menu.baseline)
    drawn = []
    for _ in range(400):
        with suppress(SpecError):
            values = {knob: domain.draw(rng) for knob, domain in menu.domains.items()}
            drawn.append(menu.apply(menu.baseline, values))
    is_met = [menu.broken_constraint(one, STEPS_60) is None for one in drawn]
    assert max(step_flops(one) for one, met in zip(drawn, is_met, strict=True) if met) <= bar
    larger = [one for one in drawn if step_flops(one) > bar]
    assert larger and all(menu.broken_constraint(one, STEPS_60) for one in larger)
    if name.startswith("cpu"):  # a gate can be tried by itself
        gated = menu.apply(menu.baseline, {"activation": "swiglu"})
        assert menu.broken_constraint(gated, STEPS_60) is None
