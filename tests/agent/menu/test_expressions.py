import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.menu.expressions import MAX_CHARACTERS, MAX_MAGNITUDE, Expression, ExpressionError
from autoresearch.values import Scalar

VALUES: dict[str, Scalar] = {"x": 7, "y": 2.5, "activation": "gelu", "label": "a", "tied": True}
NAMES = list(VALUES)


@pytest.mark.parametrize(
    "source",
    [
        "x + 1 > 7 and x - 1 < 7",
        "x / 2 == 3.5 and x // 2 == 3 and x % 2 == 1",
        "2 ** 3 ** 2 == 512 and -2 ** 2 == -4",
        "-x < +x",
        "1 < y < x <= 7",
        "not (tied and x > 3)",
        "tied == True",
        "tied",
        "activation != 'swiglu' and label == 'a' and label != 'b'",
        'activation in ("gelu", "swiglu")',
        "x not in (1, 2, -3)",
        "x in (7,)",
        "  (x ==\n 7)  # and a comment",
        "2 + 3 * 4 - 6 / 3 == 12 and (2 + 3) * 4 == 20",
        "x != 7 and 1 / (x - 7) > 0",
        "x == 7 or 1 / (x - 7) > 0",
    ],
)
def test_an_expression_means_what_it_means_in_python(source: str) -> None:
    expected = eval(source.strip(), {"__builtins__": {}}, dict(VALUES))
    assert Expression.parse(source, NAMES).holds(VALUES) is expected


def test_a_formula_comes_to_what_it_does_in_python() -> None:
    for source in ("x", "(x + 64) // 128", "-y ** 2 % 3", "2 ** -x", "x if tied else y"):
        expected = eval(source, {"__builtins__": {}}, dict(VALUES))
        assert Expression.parse(source, NAMES).number(VALUES) == expected
    for source in ("x > 3", "tied", "label", "'a'", "x + tied"):
        with pytest.raises(ExpressionError):
            Expression.parse(source, NAMES).number(VALUES)


OUTSIDE = """
print(x)
x.__class__ == 7
label[0] == 'a'
(lambda: True)()
any(x for x in (1, 2))
f'{x}' == label
(z := 7) == x
x in (*(1, 2), 3)
x in (y, 2)
x in [1, 2]
x in ()
x in y
x in (1, 2) in (True, False)
x is 7
x & 1 == 1
await x
None == None
1j == 1j
x; y
x = 7
# nothing
(x == 7
7or x == 7
label == '\\d'
x == 7\x00
activatoin == 'gelu'
x == 1e999
"""
OF_ANOTHER_KIND = """
x
x if tied else y
'gelu'
x and tied
not x
tied + 1 == 2
tied == 1
x == '7'
label * 1000 == 'a'
'%d' % x == '7'
label < 'b'
x in (1, 'b')
x / (x - 7) > 1
(x - 7) ** -1 > 1
10 ** 10 ** 10 > 1
y ** -65 > 1
9 ** 64 > 1
(9.5 ** 30) ** 60 > 1
x * 1e30 > 1
(-x) ** 0.5 > 1
"""
TOO_LARGE = [
    f"x == {'9' * 5000}",
    "(" * 300 + "tied" + ")" * 300,
    "-" * 900 + "x == 1",
    " and ".join(["tied"] * 160),
    " + ".join(["x"] * 200) + " > 0",
    "tied" + " " * MAX_CHARACTERS,
]


@pytest.mark.parametrize("source", [*OUTSIDE.split("\n"), "x == 7\ny == 2", *TOO_LARGE])
def test_what_is_no_condition_of_these_names_is_refused_when_read(source: str) -> None:
    with pytest.raises(ExpressionError):
        Expression.parse(source, NAMES)


@pytest.mark.parametrize("source", OF_ANOTHER_KIND.strip().split("\n"))
def test_mixed_kinds_and_arithmetic_without_a_value_are_errors(source: str) -> None:
    expression = Expression.parse(source, NAMES)
    with pytest.raises(ExpressionError):
        expression.holds(VALUES)


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
def test_arithmetic_agrees_with_python_where_it_has_a_value(source: str, x: int, y: float) -> None:
    try:
        held = Expression.parse(f"{source} > x", NAMES).holds({"x": x, "y": y})
    except ExpressionError:
        return
    assert held is eval(f"{source} > x", {"__builtins__": {}}, {"x": x, "y": y})
