import hashlib
import itertools
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer as HfTokenizer
from tokenizers import models, pre_tokenizers, processors

from autoresearch.errors import CorpusError
from tests.support.present import known
from tests.support.texts import make_texts
from trainer.corpus.tokenization import (
    ByteTokenizer,
    Tokenizer,
    Tokens,
    check_lossless,
    dtype_name,
    parse_tokenizer,
)

SAMPLE = [text.encode() for text in make_texts(200)]
unicode_texts = st.text(alphabet=st.characters(exclude_categories=["Cs"]))


def documents_in(tokenizer: Tokenizer, tokens: Tokens) -> list[bytes]:
    starts = [*np.flatnonzero(tokens == tokenizer.separator_id), len(tokens)]
    return [tokenizer.decode(tokens[a + 1 : b]) for a, b in itertools.pairwise(starts)]


@pytest.fixture(scope="module")
def bpe() -> Tokenizer:
    return parse_tokenizer("bpe:400").build(SAMPLE)


@given(st.lists(unicode_texts, min_size=1, max_size=5))
def test_bytes_come_back(texts: list[str]) -> None:
    tokenizer = ByteTokenizer()
    documents = [text.encode() for text in texts]
    tokens = tokenizer.encode(documents)
    assert tokens.dtype == np.dtype("<u2")
    assert len(tokens) == sum(map(len, documents)) + len(documents)
    assert documents_in(tokenizer, tokens) == documents


def test_bpe_gives_back_text_it_never_saw(bpe: Tokenizer) -> None:
    @given(st.lists(unicode_texts, min_size=1, max_size=5))
    def check(texts: list[str]) -> None:
        documents = [text.encode() for text in texts]
        assert documents_in(bpe, bpe.encode(documents)) == documents

    check()


def test_bpe_has_the_size_asked_for_with_the_separator_last(bpe: Tokenizer) -> None:
    assert bpe.separator_id == 399
    tokens = bpe.encode(SAMPLE[:10])
    assert int(tokens.max()) == 399
    assert len(tokens) < sum(map(len, SAMPLE[:10])) / 2


def test_no_text_can_spell_the_separator(bpe: Tokenizer) -> None:
    for text in (b"<|endoftext|>", b"\x00", b"</s>", "Ā".encode()):
        assert list(bpe.encode([text])).count(bpe.separator_id) == 1


def test_bpe_is_the_same_in_every_process(bpe: Tokenizer) -> None:
    code = (
        "import hashlib\n"
        "from tests.support.texts import make_texts\n"
        "from trainer.corpus.tokenization import parse_tokenizer\n"
        "sample = [t.encode() for t in make_texts(200)]\n"
        "print(hashlib.sha256(parse_tokenizer('bpe:400').build(sample).json).hexdigest())\n"
    )
    expected = hashlib.sha256(known(bpe.json)).hexdigest()
    for _ in range(3):
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True)
        assert done.stdout.decode().strip() == expected


def test_a_file_that_truncates_pads_or_adds_loses_nothing(bpe: Tokenizer, tmp_path: Path) -> None:
    hf = HfTokenizer.from_str(known(bpe.json).decode())
    hf.enable_truncation(8)
    hf.enable_padding(length=5000, pad_id=0, pad_token="!")
    hf.add_special_tokens(["<s>"])
    hf.post_processor = processors.TemplateProcessing("<s> $A", None, [("<s>", 399)])
    hf.model.dropout = 0.5
    path = tmp_path / "own.json"
    hf.save(str(path))
    recipe = parse_tokenizer(f"file:{path}")
    tokenizer = recipe.build([])
    assert recipe.label == "file:own.json"
    assert tokenizer.separator_id == 400
    documents = [*SAMPLE, b"a literal <s> in the text"]
    check_lossless(tokenizer, "own", documents)
    plain = [list(bpe.encode([text]))[1:] for text in SAMPLE]
    assert [list(tokenizer.encode([text]))[1:] for text in SAMPLE] == plain


def test_a_lossy_tokenizer_is_refused_with_the_text_it_lost(tmp_path: Path) -> None:
    vocabulary = {"[UNK]": 0, "the": 1, "loss": 2}
    hf = HfTokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
    hf.pre_tokenizer = pre_tokenizers.Whitespace()
    path = tmp_path / "words.json"
    hf.save(str(path))
    tokenizer = parse_tokenizer(f"file:{path}").build([])
    with pytest.raises(CorpusError, match=r"words\.json"):
        check_lossless(tokenizer, "file:words.json", [b"the loss", b"the study"])


@pytest.mark.parametrize(
    ("spec", "content"),
    [
        *((spec, b"") for spec in ("gpt2", "bpe", "bpe:1e3", "bpe:256", "bpe:99999999")),
        *((spec, b"") for spec in ("file:", "file:/nowhere", "file:/tmp")),
        *(("file:{}", content) for content in (b"{", b"[]", b"\xff\xfe", b'{"version": 1}')),
    ],
)
def test_what_is_no_tokenizer_is_refused(spec: str, content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "t.json"
    path.write_bytes(content)
    with pytest.raises(CorpusError):
        parse_tokenizer(spec.format(path))


def test_the_smallest_type_that_fits() -> None:
    sizes = (2, 256, 257, 65_536, 65_537, 200_000)
    names = ("uint8", "uint8", "uint16", "uint16", "uint32", "uint32")
    assert tuple(map(dtype_name, sizes)) == names
    for size in sizes:
        assert np.iinfo(dtype_name(size)).max >= size - 1
