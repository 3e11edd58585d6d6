"""Static rails of code knobs: what they pass and refuse, and that no text crashes them."""

import contextlib
import inspect

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from torch.nn import functional

from autoresearch.errors import SpecError
from tests.support.configs import config
from tests.trainer.code.fuzz import sources
from trainer.code import (
    MAX_CHARACTERS,
    SLOTS,
    CodeRefused,
    allowed,
    check_statically,
    normalize,
    parameters,
    slot_of,
)

REFUSED = {
    "import": "import os\nreturn x",
    "import inside": "def activation(x):\n    import torch\n    return x",
    "dunder": "return x.__class__",
    "builtin import": "return __import__('os').system('id')",
    "open": "return open(0)",
    "eval": "return eval(1)",
    "getattr": "return getattr(x, 1)",
    "text": "return x if 'a' else x",
    "f-string": "return f'{x}'",
    "lambda": "return (lambda y: y)(x)",
    "comprehension": "return sum([y for y in x])",
    "walrus": "return (y := x)",
    "while": "while True:\n    x = x\nreturn x",
    "long loop": "for i in range(65):\n    x = x\nreturn x",
    "nested loops": ("for i in range(9):\n    for j in range(9):\n        x = x\nreturn x"),
    "loop over rows": "for row in x:\n    y = row\nreturn y",
    "loop of a variable's length": "for i in range(x.shape[-1]):\n    x = x\nreturn x",
    "try": "try:\n    return x\nexcept:\n    return x",
    "with": "with torch.no_grad():\n    return x",
    "global": "global x\nreturn x",
    "nested function": "def f(x):\n    def g(y): return y\n    return g(x)",
    "decorator": "@torch.compile\ndef activation(x):\n    return x",
    "default argument as memory": "def activation(x, seen=[]):\n    return x",
    "own attribute": "activation.seen = x\nreturn x",
    "attribute of a tensor": "x.seen = x\nreturn x",
    "in place": "x[0] = 1\nreturn x",
    "in-place method": "return x.add_(1)",
    "in-place argument": "return F.relu(x, inplace=True)",
    "in-place argument by place": "return F.leaky_relu(x, 0.99, True)",
    "in-place first argument by place": "return F.relu(x, True)",
    "out": "return torch.exp(x, out=x)",
    "data": "return x.data",
    "item": "return x * x.item()",
    "tolist": "return x.tolist()",
    "save": "return torch.save(x, 1)",
    "load": "return torch.load(1)",
    "from_file": "return torch.from_file(1)",
    "ops": "return torch.ops.aten.add(x, x)",
    "training flag": "return x if torch.is_grad_enabled() else 2 * x",
    "requires_grad": "return x if x.requires_grad else 2 * x",
    "number of rows": "return x * x.shape[0]",
    "whole shape": "return x.reshape(x.shape)",
    "size": "return x * x.size(0)",
    "numel": "return x * x.numel()",
    "length": "return x * len(x)",
    "mean over all": "return x - x.mean()",
    "mean over positions": "return x - x.mean(1, keepdim=True)",
    "mean over a computed dimension": "return x - x.mean(1 - 2, keepdim=True)",
    "dropped dimension": "return x - x.mean(-1)",
    "norm of everything": "return x / torch.norm(x)",
    "norm over everything": "return F.rms_norm(x, x.shape)",
    "renamed weight": "weight = x\nreturn F.rms_norm(x, weight.shape)",
    "flip": "return x.flip(1)",
    "roll": "return torch.roll(x, -1, 1)",
    "cumsum": "return x.cumsum(1)",
    "transpose": "return x.transpose(1, 2)",
    "product": "return x @ x",
    "row": "return x[0]",
    "next position": "return x[:, 1:]",
    "new dimension": "return x[..., None] * x",
    "unpack rows": "a, b = x\nreturn a",
    "max of rows": "return max(x)",
    "nonzero": "return x * torch.where(x > 0)[0].sum(-1, keepdim=True)",
    "matrix of constants": "return x * torch.ones((3, 3))",
    "softmax over positions": "return F.softmax(x, 1)",
    "random": "return x + torch.randn(1)",
    "dropout": "return F.dropout(x)",
    "unknown name": "return y",
    "module as value": "t = torch\nreturn x",
    "no return": "y = x",
    "empty return": "return",
    "not Python": "return (x",
    "other arguments": "def activation(y):\n    return y",
    "two functions": "def activation(x):\n    return x\ndef g(x):\n    return x",
    "too long": "return x" + " + 1" * (MAX_CHARACTERS // 4),
    "too many lines": "y = x\n" * 41 + "return y",
    "too large a number": "return x * 1e400",
    "null": "\0",
    "bytes": "return b'a'",
    "parameter without a value": "def activation(x, *, gain):\n    return x * gain",
    "starred": "return torch.where(*x)",
    "double starred": "return F.gelu(x, **x)",
    "underscore variable": "_y = x\nreturn _y",
    "shadowed module": "torch = x\nreturn torch",
    "await": "return await x",
    "yield": "yield x",
    "slice of an attribute": "return x.shape[:1]",
}
"""Bad functions of the slot ``activation``, by what is bad about them."""


@pytest.mark.parametrize("name", REFUSED)
def test_a_bad_function_is_refused(name: str) -> None:
    why = check_statically("code.activation", REFUSED[name])
    assert why is not None and len(why) < 300
    with pytest.raises(SpecError):
        config(**{"code.activation": REFUSED[name]})


@pytest.mark.parametrize(
    ("slot", "source"),
    [
        ("logits", f"return z + torch.tensor({[0.1] * 256})"),  # frequencies of labels
        ("logits", "return z + torch.cat(({}))".format("torch.tensor((1, 2, 3)), " * 16)),
        ("attention_scores", "return scores.softmax(-1)"),
        ("attention_scores", "return scores - scores.mean(-1, keepdim=True)"),
        ("attention_scores", "return scores.cumsum(-1)"),
        ("attention_scores", "return scores[..., :4]"),
        ("schedule", "return torch.ones(1)"),
        ("update", "state = param\nreturn param"),
        ("update", "return param + torch.randn(3)"),
        ("init", "return torch.randn(shape)"),
        ("aux_loss", "def aux_loss(logits, hidden, *, gain=1.0):\n    return gain"),
        ("attention_scores", "def f(scores, *, gain: D = 1.0):\n    return scores * gain"),
    ],
)
def test_what_a_slot_may_use_depends_on_its_reach(slot: str, source: str) -> None:
    assert check_statically(slot, source) is not None


def test_what_is_built_in_passes_and_is_the_empty_text() -> None:
    for slot in SLOTS.values():
        for choice, body in slot.builtin.items():
            assert check_statically(slot.name, body) is None
            assert normalize(slot, normalize(slot, body)) == normalize(slot, body)
            chosen = {slot.chosen_by: choice} if choice else {}
            assert config(**chosen, **{slot.key: body}) == config(**chosen)


def test_equal_code_has_equal_hashes() -> None:
    texts = [
        "return F.relu(x)**2",
        "def activation(x):\n    'Squared.'\n    return F.relu(x) ** 2  # So et al.",
        "def other(x: Tensor) -> Tensor:\n\treturn (F.relu(x)) ** 2",
    ]
    hashes = {config(**{"code.activation": text}).config_hash for text in texts}
    assert len(hashes) == 1
    assert config().config_hash not in hashes
    made = config(**{"code.activation": texts[1]})
    assert type(made).model_validate_json(made.model_dump_json()) == made
    assert list(made.code) == ["code.activation"]


def test_learned_parameters_are_read() -> None:
    source = "def norm(x, weight, *, a: D = -1, b=0.5):\n    return x * a + b"
    assert [
        (one.name, one.initial, one.is_vector) for one in parameters(SLOTS["norm"], source)
    ] == [("a", -1.0, True), ("b", 0.5, False)]


def test_a_slot_that_the_config_never_calls_is_refused() -> None:
    with pytest.raises(SpecError, match="gate"):
        config(**{"code.gate": "return x * y"})
    assert config(activation="swiglu", **{"code.gate": "return x * y"}).code


@settings(max_examples=300, deadline=None)
@given(st.sampled_from(sorted(SLOTS)), st.text(max_size=300) | sources())
@example("activation", "return " + "(" * 500 + "x" + ")" * 500)
@example("activation", "return " + "-" * 1900 + "x")
@example("activation", "x" + ".a" * 900)
@example("activation", "return " + "9" * 1900)
def test_no_text_crashes_a_rail(slot: str, source: str) -> None:
    if check_statically(slot, source) is None:
        plain = normalize(slot_of(slot), source)
        assert normalize(slot_of(slot), plain) == plain
        assert check_statically(slot, plain) is None
    else:
        with pytest.raises(SpecError):
            config(**{slot_of(slot).key: source})
    with contextlib.suppress(CodeRefused):
        normalize(slot_of(slot), source)


def test_no_argument_by_place_changes_a_tensor() -> None:
    names = allowed.ACTIVATIONS | allowed.LOSSES | allowed.OVER_SHAPE | frozenset(allowed.DIM_AT)
    for name in names:
        with contextlib.suppress(TypeError, ValueError, AttributeError):  # written in C
            known = list(inspect.signature(getattr(functional, name)).parameters)
            changing = [known.index(one) for one in ("inplace", "out") if one in known]
            assert allowed.FEW_POSITIONAL.get(name) == min(changing, default=None), name
