"""Rows of examples that are described instead of written: so many copies, repeated texts, drawn
words.

An example that needs forty rows says how they are made. The draws begin at a fixed seed, so that a
page shows the very rows that the rule's test judges.
"""

from __future__ import annotations

import random
import zlib
from base64 import b64encode
from typing import Any

LABELS = ("billing", "shipping", "account")
TOPICS = ("sea", "law", "soup", "star", "bike", "song")
SEED = 0


def rows_of_example(data: Any) -> list[Any]:
    """The rows of an example's `data`.

    Args:
        data: a list of rows, in which `{repeat: n, text: t}` stands for t, n times, and
            `{copies: n, of: row}` for a row, n times, and `{picture: [width, height]}` for a grey PNG as
            a data URL, with `bits` of a pixel and `kept` bytes of the file where these are named; or how
            rows are drawn: `{grouped: n}` and `{shuffled: n}` for n rows of several sources,
            `{pairs: n, chosen: a, rejected: b}` for n pairs whose answers have up to a and b words,
            `{rows: n, column: text}` for n rows of these columns, in which `{i}` is the number of the
            row, `{words}` are 30 drawn words, `{words_before}` those of the row before, and `{label}`
            is one of three.

    Returns:
        All rows, in the order of the file.
    """
    rng = random.Random(SEED)
    if isinstance(data, dict) and "pairs" in data:
        return _generate_preference_pairs(rng, **data)
    if isinstance(data, dict) and "rows" in data:
        return _numbered_rows(rng, **data)
    if isinstance(data, dict):
        ((order, count),) = data.items()
        return _rows_of_topics(rng, count, shuffled=order == "shuffled")
    return [_with_repeated_texts(row) for item in data for row in _expand_copies_of_item(item)]


def generate_chats_with_some_long(
    rows: int, words: int = 0, long: int = 0, long_words: int = 0
) -> list[Any]:
    """Chats of so many words, every so-many-th a long one."""
    chats = [
        _chat(f"What is {number} plus {number}?", f"It is {2 * number}.") for number in range(rows)
    ]
    for number, chat in enumerate(chats):
        is_long = long and number % (rows // long) == 0
        chat["messages"][-1]["content"] += " and so on" * ((long_words if is_long else words) // 3)
    return chats


def generate_rows_with_some_long_texts(
    rows: int, words: int, long: int, long_words: int
) -> list[Any]:
    """Rows of one text each, every so-many-th a long one."""
    lengths = [long_words if number % (rows // long) == 0 else words for number in range(rows)]
    return [{"text": "word " * length} for length in lengths]


def _expand_copies_of_item(item: Any) -> list[Any]:
    if isinstance(item, dict) and set(item) == {"copies", "of"}:
        return [item["of"]] * item["copies"]
    return [item]


def _with_repeated_texts(value: Any) -> Any:
    if isinstance(value, dict):
        if set(value) == {"repeat", "text"}:
            return value["text"] * value["repeat"]
        if "picture" in value:
            width, height = value["picture"]
            return _grey_png_as_data_url(width, height, value.get("bits", 8), value.get("kept"))
        return {key: _with_repeated_texts(item) for key, item in value.items()}
    return [_with_repeated_texts(item) for item in value] if isinstance(value, list) else value


def _grey_png_as_data_url(width: int, height: int, bits: int, kept: int | None) -> str:
    """A PNG in one shade of grey, of which only the first bytes are kept if `kept` says how many."""
    # Each row of pixels begins with the number of its filter, 0: none.
    pixels = (b"\0" + b"\xc8" * (width * bits // 8)) * height
    header = width.to_bytes(4, "big") + height.to_bytes(4, "big") + bytes((bits, 0, 0, 0, 0))
    chunks = ((b"IHDR", header), (b"IDAT", zlib.compress(pixels, 9)), (b"IEND", b""))
    file = b"\x89PNG\r\n\x1a\n" + b"".join(_png_chunk(kind, content) for kind, content in chunks)
    return f"data:image/png;base64,{b64encode(file[:kept]).decode()}"


def _png_chunk(kind: bytes, content: bytes) -> bytes:
    """A chunk of a PNG with its length and checksum."""
    check = zlib.crc32(kind + content).to_bytes(4, "big")
    return len(content).to_bytes(4, "big") + kind + content + check


def _rows_of_topics(rng: random.Random, count: int, *, shuffled: bool) -> list[Any]:
    rows = []
    for topic in TOPICS:
        words = [f"{topic}{i}" for i in range(12)]
        for _ in range(count // len(TOPICS)):
            question, answer = (" ".join(rng.choices(words, k=12)) for _ in range(2))
            rows.append(_chat(question, answer))
    if shuffled:
        rng.shuffle(rows)
    return rows


def _numbered_rows(rng: random.Random, rows: int, **columns: str) -> list[Any]:
    letters = "abcdefghijklmnopqrstuvwxyz"
    words = [" ".join("".join(rng.choices(letters, k=4)) for _ in range(30)) for _ in range(rows)]
    labels = [rng.choice(LABELS) for _ in range(rows)]
    return [
        {
            name: text.format(i=i, words=words[i], words_before=words[i - 1], label=labels[i])
            for name, text in columns.items()
        }
        for i in range(rows)
    ]


def _generate_preference_pairs(rng: random.Random, pairs: int, **words: int) -> list[Any]:
    rows = []
    for i in range(pairs):
        texts = {
            side: " ".join(rng.choices("abcdefgh", k=rng.randint(most // 2, most)))
            for side, most in words.items()
        }
        answers = {side: [{"role": "assistant", "content": text}] for side, text in texts.items()}
        rows.append({"prompt": [{"role": "user", "content": f"Question {i}?"}], **answers})
    return rows


def _chat(question: str, answer: str) -> dict[str, Any]:
    return {
        "messages": [
            {"role": "user", "content": question},
            {"role": "assistant", "content": answer},
        ]
    }
