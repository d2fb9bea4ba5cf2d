"""Finds the tokens that a checkpoint has and its base has not, by the files of both tokenizers.

The trade-off: the tokenizer is not loaded, only its lists of added tokens are read, from each of the three files that
may hold them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from truetune.checkpoint.read_weight_files_and_faults import read_json_object
from truetune.parsing.input_limits import MODEL_FILE
from truetune.parsing.parse_json_within_limits import RowDecoder

MAX_HEAD_BYTES = 16 << 20
"""Bytes: added_tokens stands before the vocabulary in tokenizer.json"""
ADDED_TOKENS_KEY = re.compile(r'"added_tokens"\s*:\s*(?=\[)')


class NewTokens(NamedTuple):
    """The added tokens of a tokenizer that its base does not have."""

    ids: Mapping[str, int]
    base_size: int
    """Tokens of the base: its highest id, plus one"""


def find_new_tokens(folder: Path, base: Path) -> NewTokens | None:
    """The added tokens that the base does not have; None where a tokenizer is missing."""
    own_tokens, base_tokens = read_added_tokens(folder), read_added_tokens(base)
    if own_tokens is None or base_tokens is None:
        return None
    ids = {text: id for text, id in own_tokens.items() if text not in base_tokens}
    # The vocabulary is read only where it is needed: it is long.
    if not ids:
        return NewTokens({}, 0)
    vocabulary = {**_read_vocabulary(base), **base_tokens}
    return NewTokens(
        {text: id for text, id in ids.items() if text not in vocabulary},
        max(vocabulary.values(), default=-1) + 1,
    )


def read_added_tokens(folder: Path) -> dict[str, int] | None:
    """Added tokens with their ids, of tokenizer.json and what stands beside it; None without tokenizer.json.

    tokenizer.json is long, so only the list itself is parsed.
    """
    path = folder / "tokenizer.json"
    if not path.is_file():
        return None
    # The first bytes alone: a vocabulary of a million tokens makes a file of 30 MB and more.
    with path.open("rb") as file:
        text = file.read(MAX_HEAD_BYTES).decode("utf-8", "replace")
    # Parsing all of it, with its merges, takes a second for large vocabularies.
    match = ADDED_TOKENS_KEY.search(text)
    try:
        tokens = RowDecoder(MODEL_FILE).read_at(text, match.end()).value if match else []
    except ValueError:
        tokens = []
    listed = (read_json_object(folder / "tokenizer_config.json", []) or {}).get(
        "added_tokens_decoder"
    )
    if isinstance(listed, dict):
        described = [
            {**token, "id": int(id)}
            for id, token in listed.items()
            if isinstance(token, dict) and _is_text_a_possible_id(id)
        ]
        tokens = [*tokens, *described]
    more = read_json_object(folder / "added_tokens.json", []) or {}
    return {
        **{text: id for text, id in more.items() if type(id) is int},
        **_added_token_ids(tokens),
    }


def _added_token_ids(tokens: Iterable[Any]) -> dict[str, int]:
    """Text -> id of the entries that have both; others are left out, for the files are not ours."""
    return {
        token["content"]: token["id"]
        for token in tokens
        if isinstance(token, dict)
        and isinstance(token.get("content"), str)
        and type(token.get("id")) is int
    }


def _is_text_a_possible_id(text: str) -> bool:
    """Is a key a number that may be an id? Python refuses to convert thousands of digits."""
    return text.isdecimal() and len(text) < 10


def _read_vocabulary(folder: Path) -> dict[str, int]:
    """Text -> id of tokenizer.json's vocabulary: a list of pairs where the model is Unigram, a
    dictionary otherwise.
    """
    model = (read_json_object(folder / "tokenizer.json", []) or {}).get("model")
    vocab = model.get("vocab") if isinstance(model, dict) else None
    if isinstance(vocab, list):
        texts = [pair[0] if isinstance(pair, list) and pair else None for pair in vocab]
        return {text: i for i, text in enumerate(texts) if isinstance(text, str)}
    return (
        {text: id for text, id in vocab.items() if type(id) is int}
        if isinstance(vocab, dict)
        else {}
    )
