import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.menu.expressions import MAX_CHARACTERS, MAX_MAGNITUDE, Expression, ExpressionError, Name
from autoresearch.values import Scalar

NAMES = {
    "x": Name("number"),
    "y": Name("number"),
    "activation": Name("text", ("gelu", "swiglu")),
    "label": Name("text"),
    "tied": Name("truth"),
}
VALUES: dict[str, Scalar] = {"x": 7, "y": 2.5, "activation": "gelu", "label": "a", "tied": True}


@pytest.mark.parametrize(
    "source",
    [
        "x == 7",
        "x != 7",
        "x + 1 > 7 and x - 1 < 7",
        "x * 2 == 14.0",
        "x / 2 == 3.5 and x // 2 == 3 and x % 2 == 1",
        "x ** 2 == 49 and 2 ** -1 == 0.5",
        "-x < +x",
        "1 < y < x <= 7",
        "1 < y > x",
        "not tied or x > 3",
        "not (tied and x > 3)",
        "tied == True",
        "tied",
        "activation == 'gelu' or x == 0",
        'activation == "swiglu"',
        "activation != 'swiglu' and label == 'a' and label != 'b'",
        'activation in ("gelu", "swiglu")',
        "x not in (1, 2, -3)",
        "x in (7,)",
        "  x == 7  # and a comment",
        "(x ==\n 7)",
        "2 + 3 * 4 - 6 / 3 == 12 and (2 + 3) * 4 == 20",
        "2 ** 3 ** 2 == 512 and -2 ** 2 == -4",
    ],
)
def test_an_expression_means_what_it_means_in_python(source: str) -> None:
    expected = eval(source.strip(), {"__builtins__": {}}, dict(VALUES))

    assert Expression.parse(source, NAMES).holds(VALUES) is expected


@pytest.mark.parametrize(
    "source",
    ["x", "7", "x * 7 / 2", "(x + 64) // 128", "-y ** 2 % 3", "2 ** -x"],
)
def test_a_formula_comes_to_what_it_does_in_python(source: str) -> None:
    expected = eval(source, {"__builtins__": {}}, dict(VALUES))

    assert Expression.parse(source, NAMES, "number").number(VALUES) == expected


@pytest.mark.parametrize("source", ["x > 3", "tied", "label", "'a'", "x + tied", "not x"])
def test_a_formula_is_a_number(source: str) -> None:
    with pytest.raises(ExpressionError):
        Expression.parse(source, NAMES, "number")


@pytest.mark.parametrize("source", ["x / 0", "10 ** 30 * x", "(0 - x) ** 0.5", "2 ** (x * 10)"])
def test_a_formula_without_a_value_says_so(source: str) -> None:
    with pytest.raises(ExpressionError):
        Expression.parse(source, NAMES, "number").number(VALUES)


@pytest.mark.parametrize(
    "source",
    [
        "__import__('os').system('true')",
        "print(x)",
        "x.real == 7",
        "x.__class__ == 7",
        "label[0] == 'a'",
        "(lambda: True)()",
        "[x for x in (1, 2)] == x",
        "any(x for x in (1, 2))",
        "f'{x}' == label",
        "(z := 7) == x",
        "x in (*(1, 2), 3)",
        "x in (y, 2)",
        "x in [1, 2]",
        "x in {1, 2}",
        "x in ()",
        "x in y",
        "x in (1, 2) in (True, False)",
        "x if tied else y",
        "x is 7",
        "x is not y",
        "x & 1 == 1",
        "x << 3 == 1",
        "~x == 1",
        "x @ y == 1",
        "await x",
        "(yield)",
        "None == None",
        "... == ...",
        "1j == 1j",
        "b'a' == b'a'",
        "{} == {}",
        "x; y",
        "x = 7",
        "import os",
        "",
        "   ",
        "# nothing",
        "x ==",
        "(x == 7",
        "x == 7)",
        "7or x == 7",
        "label == '\\d'",
        "x == 7\x00",
        "x == 7\ny == 2",
    ],
)
def test_what_is_outside_the_language_is_refused_when_read(source: str) -> None:
    with pytest.raises(ExpressionError):
        Expression.parse(source, NAMES)


@pytest.mark.parametrize(
    "source",
    [
        "x",
        "x + 1",
        "'gelu'",
        "x and tied",
        "not x",
        "tied + 1 == 2",
        "tied * 3 == 3",
        "-tied == -1",
        "tied == 1",
        "x == '7'",
        "label + 'b' == 'ab'",
        "label * 1000 == 'a'",
        "'%d' % x == '7'",
        "label < 'b'",
        "tied < tied",
        "activation == 3",
        "x in ('a', 'b')",
        "x in (1, 'b')",
        "x < y == tied",
    ],
)
def test_kinds_do_not_mix(source: str) -> None:
    with pytest.raises(ExpressionError):
        Expression.parse(source, NAMES)


def test_an_unknown_name_is_refused_with_the_nearest() -> None:
    with pytest.raises(ExpressionError):
        Expression.parse("activatoin == 'gelu'", NAMES)


@pytest.mark.parametrize(
    "source",
    ["activation == 'swigul'", "'swigul' != activation", "activation in ('gelu', 'swigul')"],
)
def test_a_string_that_a_name_can_never_be_is_refused_with_the_nearest(source: str) -> None:
    with pytest.raises(ExpressionError):
        Expression.parse(source, NAMES)


@pytest.mark.parametrize(
    "source",
    [
        "x == 1e999",
        f"x == {'9' * 40}",
        f"x == {'9' * 5000}",
        "(" * 300 + "tied" + ")" * 300,
        "not " * 200 + "tied",
        "-" * 900 + "x == 1",
        " and ".join(["tied"] * 160),
        " + ".join(["x"] * 200) + " > 0",
        "tied" + " " * MAX_CHARACTERS,
    ],
)
def test_a_source_too_large_is_refused(source: str) -> None:
    with pytest.raises(ExpressionError):
        Expression.parse(source, NAMES)


@pytest.mark.parametrize(
    ("source", "clause"),
    [
        ("x / (x - 7) > 1", "7 / 0 divides by zero"),
        ("x // (x - 7) > 1", "divides by zero"),
        ("x % (x - 7) > 1", "divides by zero"),
        ("(x - 7) ** -1 > 1", "divides by zero"),
        ("10 ** 10 ** 10 > 1", "exponent beyond"),
        ("x ** 65 > 1", "exponent beyond"),
        ("y ** -65 > 1", "exponent beyond"),
        ("9 ** 64 > 1", "beyond"),
        ("(9.5 ** 30) ** 60 > 1", "too large"),
        ("x * 1e30 > 1", "beyond"),
        ("(-x) ** 0.5 > 1", "not a real number"),
    ],
)
def test_arithmetic_without_a_value_is_told_in_a_clause(source: str, clause: str) -> None:
    expression = Expression.parse(source, NAMES)

    with pytest.raises(ExpressionError, match=clause):
        expression.holds(VALUES)


def test_and_or_stop_early_as_in_python() -> None:
    assert not Expression.parse("x != 7 and 1 / (x - 7) > 0", NAMES).holds(VALUES)
    assert Expression.parse("x == 7 or 1 / (x - 7) > 0", NAMES).holds(VALUES)


def test_the_names_an_expression_uses_are_known() -> None:
    assert Expression.parse("x + y > 1 or not tied", NAMES).names == {"x", "y", "tied"}


def test_the_worst_expression_takes_no_time() -> None:
    source = " + ".join(["(x ** 30) ** 2"] * 15) + " > 0"
    expression = Expression.parse(source, {"x": Name("number")})

    with pytest.raises(ExpressionError):
        expression.holds({"x": 999999})


WORDS = "z 0 1 3 2.5 1e30 'gelu' True None and or not in is if else lambda f'' __class__"
SIGNS = "+ - * / // % ** < <= == != ( ) [ ] { } , . : := = # @"
PIECES = st.sampled_from([*NAMES, *WORDS.split(), *SIGNS.split(), "\n"])
NUMBERS = st.one_of(
    st.integers(-(10**30), 10**30),
    st.floats(-MAX_MAGNITUDE, MAX_MAGNITUDE, allow_nan=False),
)


@given(
    source=st.one_of(st.text(max_size=60), st.lists(PIECES, max_size=25).map(" ".join)),
    x=NUMBERS,
    y=NUMBERS,
)
def test_no_text_does_anything_but_hold_or_be_refused(source: str, x: float, y: float) -> None:
    try:
        assert Expression.parse(source, NAMES).holds({**VALUES, "x": x, "y": y}) in (True, False)
    except ExpressionError as error:
        assert "\n" not in str(error)


def arithmetic(children: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    operators = st.sampled_from(["+", "-", "*", "/", "//", "%", "**"])
    return st.tuples(children, operators, children).map(lambda t: f"({t[0]} {t[1]} {t[2]})")


@given(
    source=st.recursive(st.sampled_from(["x", "y", "2", "0.5", "-3"]), arithmetic, max_leaves=8),
    x=st.integers(-50, 50),
    y=st.floats(-50, 50),
)
def test_arithmetic_agrees_with_python_wherever_it_has_a_value(
    source: str, x: int, y: float
) -> None:
    try:
        held = Expression.parse(f"{source} > x", NAMES).holds({"x": x, "y": y})
    except ExpressionError:
        return

    assert held is eval(f"{source} > x", {"__builtins__": {}}, {"x": x, "y": y})
