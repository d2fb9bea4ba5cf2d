"""The tokens that a checkpoint has and its base has not, by the files of both tokenizers."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from truetune.checkpoint.files import read_object
from truetune.parsing.json_reader import RowDecoder
from truetune.parsing.limits import MODEL_FILE

HEAD = 16 << 20
"""Bytes: added_tokens stands before the vocabulary in tokenizer.json"""
ADDED = re.compile(r'"added_tokens"\s*:\s*(?=\[)')


class NewTokens(NamedTuple):
    """What a tokenizer has beyond that of its base."""

    ids: Mapping[str, int]
    base_size: int
    """Tokens of the base: its highest id, plus one"""


def new_tokens(folder: Path, base: Path) -> NewTokens | None:
    """The added tokens that the base does not have; None where a tokenizer is missing."""
    mine, theirs = added_tokens(folder), added_tokens(base)
    if mine is None or theirs is None:
        return None
    ids = {text: id for text, id in mine.items() if text not in theirs}
    if not ids:
        return NewTokens({}, 0)
    vocabulary = {**_vocabulary(base), **theirs}
    return NewTokens(
        {text: id for text, id in ids.items() if text not in vocabulary},
        max(vocabulary.values(), default=-1) + 1,
    )


def added_tokens(folder: Path) -> dict[str, int] | None:
    """Added tokens with their ids, of tokenizer.json and what stands beside it; None without tokenizer.json.

    tokenizer.json is long, so only the list itself is parsed.
    """
    path = folder / "tokenizer.json"
    if not path.is_file():
        return None
    with path.open("rb") as file:
        text = file.read(HEAD).decode("utf-8", "replace")
    match = ADDED.search(text)
    try:
        found = RowDecoder(MODEL_FILE).read_at(text, match.end()).value if match else []
    except ValueError:
        found = []
    listed = (read_object(folder / "tokenizer_config.json", []) or {}).get("added_tokens_decoder")
    if isinstance(listed, dict):
        found = [
            *found,
            *(
                {**t, "id": int(id)}
                for id, t in listed.items()
                if isinstance(t, dict) and _number(id)
            ),
        ]
    more = read_object(folder / "added_tokens.json", []) or {}
    return {**{text: id for text, id in more.items() if type(id) is int}, **_by_text(found)}


def _by_text(tokens: Iterable[Any]) -> dict[str, int]:
    return {
        token["content"]: token["id"]
        for token in tokens
        if isinstance(token, dict)
        and isinstance(token.get("content"), str)
        and type(token.get("id")) is int
    }


def _number(text: str) -> bool:
    return text.isdecimal() and len(text) < 10


def _vocabulary(folder: Path) -> dict[str, int]:
    model = (read_object(folder / "tokenizer.json", []) or {}).get("model")
    vocab = model.get("vocab") if isinstance(model, dict) else None
    if isinstance(vocab, list):
        texts = [pair[0] if isinstance(pair, list) and pair else None for pair in vocab]
        return {text: i for i, text in enumerate(texts) if isinstance(text, str)}
    return (
        {text: id for text, id in vocab.items() if type(id) is int}
        if isinstance(vocab, dict)
        else {}
    )
