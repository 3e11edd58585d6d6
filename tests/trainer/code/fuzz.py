"""Draw sources that are nearly functions: known words in any order, and good functions damaged."""

from random import Random

from hypothesis import strategies as st

from trainer.code import SLOTS

WORDS = (
    "return if else for in range ( ) [ ] { } , : . = += == < > + - * / ** @ % -1 0 1 2.5 1e9 x y"
    " z weight scores state param grad lr step torch F math . mean sum exp gelu keepdim=True dim=-1"
    " ... None True lambda yield await def class import from as while try with global del assert"
    " not and or is * ** _ __class__ 'text' f'{x}' shape dtype \n \n    \n        D Tensor # \\ ;"
    " ~ | & ^ !="
).split(" ")


def draw_source(rng: Random) -> str:
    """Return a text made of words of the language, or a built-in function with a few changes."""
    if rng.random() < 0.5:
        return " ".join(rng.choice(WORDS) for _ in range(rng.randint(1, 40)))
    slot = rng.choice(sorted(SLOTS.values(), key=lambda slot: slot.name))
    text = list(rng.choice(sorted(slot.builtin.values())))
    for _ in range(rng.randint(1, 4)):
        at = rng.randrange(len(text) + 1)  # a built-in one may be empty
        text[at : at + rng.randint(0, 4)] = rng.choice(WORDS)
    return "".join(text)


def sources() -> st.SearchStrategy[str]:
    """Return a strategy that draws such texts."""
    return st.integers(0, 2**32).map(lambda seed: draw_source(Random(seed)))
