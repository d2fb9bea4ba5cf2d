"""Pieces: a tokenizer cuts a text at its added tokens first, and encodes what stands between them piece by piece.

So do we, where that is so: a piece that stands in many texts (the turns that the examples of one chat share) is encoded
once a batch, and an added token is never encoded at all.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import groupby

import tokenizers

from truetune.encoding.engines import PROBES


@dataclass(frozen=True)
class PieceRule:
    """Where texts are cut, and how the pieces are encoded."""

    pattern: re.Pattern[str]
    """An added token, as a group: `split` gives pieces and tokens in turn."""
    added: dict[str, int]
    """The added tokens' ids."""
    prefix: str
    """A token to write before a piece, whose id is dropped again, so that the piece is not taken for the text's
    beginning; empty where that makes no difference."""


def find_piece_rule(backend: tokenizers.Tokenizer) -> PieceRule | None:
    """None where what stands beside an added token changes how it is encoded."""
    added = {
        token.content: (id, token)
        for id, token in backend.get_added_tokens_decoder().items()
        if token.content
    }
    tokens = [token for _, token in added.values()]
    changes_text = backend.normalizer is not None and "normalizers=[]" not in str(
        backend.normalizer
    )
    if any(
        t.lstrip or t.rstrip or t.single_word or (t.normalized and changes_text) for t in tokens
    ):
        return None
    first = next((token.content for token in tokens if token.special), None)
    if first is None:
        return None
    pattern = re.compile(f"({any_of(sorted(added))})")
    ids = {content: id for content, (id, _) in added.items()}
    for prefix in ("", first):
        if all(_encodes_alike_alone(backend, text, prefix, first, ids[first]) for text in PROBES):
            return PieceRule(pattern, ids, prefix)
    return None


def _encodes_alike_alone(
    backend: tokenizers.Tokenizer, text: str, prefix: str, token: str, id: int
) -> bool:
    """Is a text between two tokens encoded as it is alone (or behind the prefix)?"""
    alone = backend.encode(prefix + text, add_special_tokens=False).ids[bool(prefix) :]
    between = backend.encode(f"{token}{text}{token}{text}", add_special_tokens=False).ids
    return between == [id, *alone, id, *alone]


def any_of(words: list[str]) -> str:
    """A pattern for the longest of some words, in order, that stands at a place: common beginnings are tried once."""
    heads = {
        head: [word[1:] for word in group]
        for head, group in groupby(words, key=lambda word: word[:1])
    }
    ends = "" in heads
    singles = [head for head, tails in heads.items() if head and tails == [""]]
    branches = [
        re.escape(head) + any_of(tails) for head, tails in heads.items() if head and tails != [""]
    ]
    if singles:
        branches.append(
            f"[{''.join(map(re.escape, singles))}]" if len(singles) > 1 else re.escape(singles[0])
        )
    if not branches:
        return ""
    joined = branches[0] if len(branches) == 1 and not ends else f"(?:{'|'.join(branches)})"
    return f"{joined}?" if ends else joined
