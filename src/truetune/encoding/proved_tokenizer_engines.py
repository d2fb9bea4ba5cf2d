"""Engines: the libraries that turn text into ids, and the proof that a fast one agrees with `tokenizers`.

An engine is given texts without added tokens in them: those are cut out beforehand (`split_at_added_tokens`).

`tokenizers` is what models were trained with, so its ids are right by definition. Other libraries read the same
tokenizer.json and are several times as fast, and each gets some tokenizer a little wrong. So an engine is used only
after it has encoded alike what is likely to differ: probes of white space, digits, scripts and emoji, pairs of tokens
of the vocabulary, and the first pieces of the data. The trade-off: a second or so at the beginning. It is no proof for
every text; `encoder.CHECK_EVERY` says how often it compares again.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import itertools
import random
import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple
from unicodedata import category, ucd_3_2_0

import numpy as np
import tokenizers
from numpy.typing import NDArray

from truetune.errors import FastPathError

VOCABULARY_PAIRS = 1000
"""Pairs of tokens of the vocabulary, written one after the other, that a fast engine must encode alike: they try merges
that no text of the probes has. Chosen, not measured; it bounds what is spent before the first batch."""
PROBES = (
    "", " ", "  ", "\n", "\n\n\n", "\t \t", " \n ", "\r\n", "hello world", " lead", "trail ", "two  spaces",
    "a" * 300,
    "123456.789 1,234 007 ١٢٣ １２３ ²³ ½", "don't I'LL we'Ve it’s", "def f(x):\n\treturn x  # ok\n\n\n    pass",
    '{"a": [1, 2.5e-3, null], "b": "\\u00e9"}', "https://example.org/a?b=c&d=%20", "snake_case CamelCase kebab-case",
    "naïve café e\u0301 \u212b \u00c5 ﬁ ①", "日本語のテキスト。", "中文字符，標點！",
    "한국어 ᄒ\u1161\u11ab", "Привет, мир!",
    "مرحبا بالعالم", "नमस्ते दुनिया", "ภาษาไทย", "👩‍👩‍👧 🫠 🇫🇷🇩🇪", "\u200b\u200d\ufeff\u00a0\u2003\u3000",
    "\x00\x01\x07\x1b\x7f\u0085", "\u1680\u180e\u2028\u2029", "▁a ▁", "Ġword Ċ", "<0x0A>", "\U0010ffff\ufffd",
    "!!!???...---===", "$x^2 + \\frac{1}{2}$",
)  # fmt: skip

ATOMS = (
    "'",
    "'s",
    "'ll",
    "'S",
    "\n",
    "\r",
    "\t",
    "\x0b",
    " ",
    "1",
    "a",
    "B",
    ".",
    "-",
    "/",
    '"',
    "é",
    "data",
)
"""Each row of up to three of these is a probe too: where white space, marks and letters meet, rules differ."""


class FlatIds(NamedTuple):
    """Ids of several texts, laid end to end."""

    ids: NDArray[np.int32]
    """(tokens,)"""
    offsets: NDArray[np.int64]
    """(texts + 1,)"""

    def of(self, text: int) -> NDArray[np.int32]:
        """The ids of one text."""
        return self.ids[self.offsets[text] : self.offsets[text + 1]]


Encode = Callable[[list[str]], FlatIds]


class Engine(NamedTuple):
    """A library that turns texts into ids."""

    name: str
    """The library and its version."""
    encode: Encode
    """Texts without added tokens -> their ids"""


class EnginesDiffer(FastPathError):
    """A fast engine gave other ids than `tokenizers` for a text."""


def reference_engine(backend: tokenizers.Tokenizer) -> Engine:
    """The engine of `tokenizers` itself."""

    def encode(texts: list[str]) -> FlatIds:
        return flatten_ids(
            [e.ids for e in backend.encode_batch_fast(texts, add_special_tokens=False)]
        )

    return Engine(f"tokenizers {tokenizers.__version__}", encode)


def fastest_engine(
    backend: tokenizers.Tokenizer, samples: Iterable[str], added: re.Pattern[str], prefix: str = ""
) -> Engine:
    """The first of the installed engines that encodes probes, vocabulary and samples just as `tokenizers` does.

    Args:
        backend: the tokenizer.
        samples: pieces of the data.
        added: finds an added token; no sample has one in it.
        prefix: what will stand before each text.

    Returns:
        The engine; `tokenizers` itself where no other is installed or right.
    """
    tokenizers_engine = reference_engine(backend)
    atom_rows: list[str] = []
    for size in (2, 3):
        atom_rows += map("".join, itertools.product(ATOMS, repeat=size))
    # Decoded pairs may spell an added token, which an engine is never given.
    pairs = [text for text in _decode_random_pairs(backend) if not added.search(text)]
    texts = [prefix + text for text in (*PROBES, *atom_rows, *pairs, *samples)]
    expected = tokenizers_engine.encode(texts)
    for name, make in _MAKERS.items():
        if importlib.util.find_spec(name) is None:
            continue
        try:
            encode = make(backend)
            candidate = encode(texts)
        except Exception:  # an engine may refuse a tokenizer in whatever way it likes
            continue
        has_same_ids = np.array_equal(candidate.ids, expected.ids)
        if has_same_ids and np.array_equal(candidate.offsets, expected.offsets):
            return Engine(f"{name} {importlib.metadata.version(name)}", encode)
    return tokenizers_engine


def insert_ids_of_empty_texts(ids: FlatIds, texts: list[int], inserted: FlatIds) -> FlatIds:
    """Ids of texts, with those of some of them, which have none there, put in.

    Args:
        ids: of all texts; `texts` have no token in them.
        texts: numbers of the texts whose ids are put in, rising.
        inserted: their ids, in the same order.
    """
    counts = np.diff(ids.offsets)  # (all texts,) in tokens
    counts[texts] = np.diff(inserted.offsets)
    is_inserted = np.zeros(len(counts), dtype=np.bool_)
    is_inserted[texts] = True
    # Both kinds keep their order, so that a mask over the tokens says whose turn it is.
    token_is_inserted = np.repeat(is_inserted, counts)
    merged = np.empty(len(token_is_inserted), dtype=np.int32)
    merged[token_is_inserted] = inserted.ids
    merged[~token_is_inserted] = ids.ids
    return FlatIds(merged, offsets_of(counts))


class NewerCharacters:
    """Letters, marks and numbers that Unicode got after 3.2: libraries have other tables of them.

    A pattern such as `\\p{L}+` splits a text by the Unicode version of the library that runs it. 3.2 is the oldest
    table that Python has beside its own; a character in it is old enough to be in all. Symbols and punctuation are not
    odd: patterns take "neither letter nor number" for them and for unassigned characters alike.
    """

    def __init__(self) -> None:
        self._checked: set[str] = set()
        self._odd: set[str] = set()

    def find_texts_with_any(self, texts: list[str]) -> list[int]:
        """The numbers of the texts that hold one."""
        candidates = [i for i, text in enumerate(texts) if not text.isascii()]
        # Each character is looked up once a run: data of a language has some thousand different ones.
        new = set().union(*(texts[i] for i in candidates)) - self._checked
        self._checked |= new
        self._odd.update(filter(_is_newer_than_unicode_3_2, new))
        if not self._odd:
            return []
        return [i for i in candidates if not self._odd.isdisjoint(texts[i])]


def _is_newer_than_unicode_3_2(character: str) -> bool:
    """Is it a letter, mark or number that Unicode 3.2 did not know?"""
    return category(character)[0] not in "SP" and ucd_3_2_0.category(character) == "Cn"


def flatten_ids(lists: list[list[int]]) -> FlatIds:
    """Lists of ids, laid end to end."""
    offsets = offsets_of([len(ids) for ids in lists])
    # `fromiter` with a count fills one array; np.concatenate would make an array of each list first.
    return FlatIds(
        np.fromiter(itertools.chain.from_iterable(lists), dtype=np.int32, count=offsets[-1]),
        offsets,
    )


def offsets_of(lengths: Sequence[int] | NDArray[Any]) -> NDArray[np.int64]:
    """(n,) lengths of things laid end to end -> (n + 1,) where each begins, and where the last ends."""
    return np.concatenate((np.zeros(1, dtype=np.int64), np.cumsum(lengths, dtype=np.int64)))


def _decode_random_pairs(backend: tokenizers.Tokenizer) -> list[str]:
    """Texts of two random tokens of the vocabulary each; the same ones in every run, so that runs use one engine."""
    rng = random.Random(0)
    size = backend.get_vocab_size(with_added_tokens=False)
    pairs = [[rng.randrange(size), rng.randrange(size)] for _ in range(VOCABULARY_PAIRS)]
    return [str(text) for text in backend.decode_batch(pairs, skip_special_tokens=False)]


def _make_gigatoken_encode(backend: tokenizers.Tokenizer) -> Encode:
    """The encode function of the library gigatoken; in one thread, for shards are already shared
    out over the cores.
    """
    import gigatoken

    tokenizer = gigatoken.Tokenizer.from_json(backend.to_str())

    def encode(texts: list[str]) -> FlatIds:
        layout = tokenizer.encode_batch(texts, parallel=False).layout
        return FlatIds(layout.content.data.astype(np.int32), layout.offsets.data.astype(np.int64))

    return encode


def _make_kitoken_encode(backend: tokenizers.Tokenizer) -> Encode:
    """The encode function of the library kitoken; True has it know special tokens, which texts here
    do not hold.
    """
    import kitoken

    tokenizer = kitoken.Kitoken.from_tokenizers(backend.to_str().encode())
    return lambda texts: flatten_ids(tokenizer.encode_all(texts, True))


_MAKERS: dict[str, Callable[[tokenizers.Tokenizer], Encode]] = {
    "gigatoken": _make_gigatoken_encode,
    "kitoken": _make_kitoken_encode,
}
"""The fastest first."""
