"""Engines: the libraries that turn text into ids, and the proof that a fast one agrees with `tokenizers`.

An engine is given texts without added tokens in them: those are cut out beforehand (`pieces`).
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
"""Pairs of tokens of the vocabulary, written one after the other, that a fast engine must encode alike."""
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
    name: str
    """The library and its version."""
    encode: Encode


class EnginesDiffer(FastPathError):
    """A fast engine gave other ids than `tokenizers` for a text."""


def reference_engine(backend: tokenizers.Tokenizer) -> Engine:
    """`tokenizers` itself."""

    def encode(texts: list[str]) -> FlatIds:
        return flatten_ids(
            [e.ids for e in backend.encode_batch_fast(texts, add_special_tokens=False)]
        )

    return Engine(f"tokenizers {tokenizers.__version__}", encode)


def fastest_engine(
    backend: tokenizers.Tokenizer, samples: Iterable[str], added: re.Pattern[str], prefix: str = ""
) -> Engine:
    """The first of the installed engines that encodes probes, vocabulary and samples just as `tokenizers` does.

    `added` finds an added token; no sample has one in it. `prefix` is what will stand before each text.
    """
    theirs = reference_engine(backend)
    rows = ("".join(row) for size in (2, 3) for row in itertools.product(ATOMS, repeat=size))
    texts = [
        *PROBES,
        *rows,
        *(text for text in _decode_random_pairs(backend) if not added.search(text)),
        *samples,
    ]
    texts = [prefix + text for text in texts]
    wanted = theirs.encode(texts)
    for name, make in _MAKERS.items():
        if importlib.util.find_spec(name) is None:
            continue
        try:
            encode = make(backend)
            found = encode(texts)
        except Exception:  # an engine may refuse a tokenizer in whatever way it likes
            continue
        if np.array_equal(found.ids, wanted.ids) and np.array_equal(found.offsets, wanted.offsets):
            return Engine(f"{name} {importlib.metadata.version(name)}", encode)
    return theirs


def insert_ids(found: FlatIds, places: list[int], others: FlatIds) -> FlatIds:
    """Ids of texts, with those of some of them, which have none there, put in."""
    counts = np.diff(found.offsets)
    counts[places] = np.diff(others.offsets)
    taken = np.zeros(len(counts), dtype=np.bool_)
    taken[places] = True
    mask = np.repeat(taken, counts)
    ids = np.empty(len(mask), dtype=np.int32)
    ids[mask], ids[~mask] = others.ids, found.ids
    return FlatIds(ids, offsets_of(counts))


class OddCharacters:
    """Letters, marks and numbers that Unicode got after 3.2: libraries have other tables of them."""

    def __init__(self) -> None:
        self._known: set[str] = set()
        self._odd: set[str] = set()

    def among(self, texts: list[str]) -> list[int]:
        """The places of texts that hold one."""
        suspects = [i for i, text in enumerate(texts) if not text.isascii()]
        new = set().union(*(texts[i] for i in suspects)) - self._known
        self._known |= new
        self._odd |= {
            c for c in new if category(c)[0] not in "SP" and ucd_3_2_0.category(c) == "Cn"
        }
        return [i for i in suspects if not self._odd.isdisjoint(texts[i])] if self._odd else []


def flatten_ids(lists: list[list[int]]) -> FlatIds:
    """Lists of ids, laid end to end."""
    offsets = offsets_of([len(ids) for ids in lists])
    return FlatIds(
        np.fromiter(itertools.chain.from_iterable(lists), dtype=np.int32, count=offsets[-1]),
        offsets,
    )


def offsets_of(lengths: Sequence[int] | NDArray[Any]) -> NDArray[np.int64]:
    """(n,) lengths of things laid end to end -> (n + 1,) where each begins, and where the last ends."""
    return np.concatenate((np.zeros(1, dtype=np.int64), np.cumsum(lengths, dtype=np.int64)))


def _decode_random_pairs(backend: tokenizers.Tokenizer) -> list[str]:
    rng = random.Random(0)
    size = backend.get_vocab_size(with_added_tokens=False)
    pairs = [[rng.randrange(size), rng.randrange(size)] for _ in range(VOCABULARY_PAIRS)]
    return [str(text) for text in backend.decode_batch(pairs, skip_special_tokens=False)]


def _make_gigatoken(backend: tokenizers.Tokenizer) -> Encode:
    import gigatoken

    tokenizer = gigatoken.Tokenizer.from_json(backend.to_str())

    def encode(texts: list[str]) -> FlatIds:
        layout = tokenizer.encode_batch(texts, parallel=False).layout
        return FlatIds(layout.content.data.astype(np.int32), layout.offsets.data.astype(np.int64))

    return encode


def _make_kitoken(backend: tokenizers.Tokenizer) -> Encode:
    import kitoken

    tokenizer = kitoken.Kitoken.from_tokenizers(backend.to_str().encode())
    return lambda texts: flatten_ids(tokenizer.encode_all(texts, True))


_MAKERS: dict[str, Callable[[tokenizers.Tokenizer], Encode]] = {
    "gigatoken": _make_gigatoken,
    "kitoken": _make_kitoken,
}
"""The fastest first."""
