"""Cuts a text at a tokenizer's added tokens into pieces that are encoded one by one, where the tokenizer itself does
so.

So do we, where that is so: a piece that stands in many texts (the turns that the examples of one chat share) is encoded
once a batch, and an added token is never encoded at all.

Whether it is so depends on the tokenizer: an added token may swallow the white space beside it (`lstrip`), be found
only in normalized text, or the first piece may get a space before it. The settings are read where they say so, and
the rest is tried on probes. The trade-off: a tokenizer that fails is encoded text by text, slower and exact.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import groupby

import tokenizers

from truetune.encoding.proved_tokenizer_engines import PROBES


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
    """How texts of a tokenizer are cut; None where what stands beside an added token changes how it is encoded."""
    ids: dict[str, int] = {}
    tokens: list[tokenizers.AddedToken] = []
    for id, token in backend.get_added_tokens_decoder().items():
        if token.content:
            ids[token.content] = id
            tokens.append(token)
    normalizer = backend.normalizer
    changes_text = normalizer is not None and "normalizers=[]" not in str(normalizer)
    if any(_does_added_token_depend_on_neighbours(token, changes_text) for token in tokens):
        return None
    # One special token stands for all when the rule is tried: they are told apart by their text alone.
    special = next((token.content for token in tokens if token.special), None)
    if special is None:
        return None
    pattern = re.compile(f"({pattern_of_longest_word(sorted(ids))})")
    # Without a prefix first: with one, every piece costs a token more to encode.
    for prefix in ("", special):
        if _are_probes_encoded_alike_alone(backend, prefix, special, ids[special]):
            return PieceRule(pattern, ids, prefix)
    return None


def _does_added_token_depend_on_neighbours(
    token: tokenizers.AddedToken, changes_text: bool
) -> bool:
    """Does it matter to an added token, or to the text beside it, what stands there?

    `changes_text`: the tokenizer has a normalizer, so that a normalized token is found in another text than ours.
    """
    if token.lstrip or token.rstrip or token.single_word:
        return True
    return bool(token.normalized and changes_text)


def _are_probes_encoded_alike_alone(
    backend: tokenizers.Tokenizer, prefix: str, token: str, id: int
) -> bool:
    """Is every probe between two tokens encoded as it is behind the prefix?"""
    return all(_encodes_alike_alone(backend, text, prefix, token, id) for text in PROBES)


def _encodes_alike_alone(
    backend: tokenizers.Tokenizer, text: str, prefix: str, token: str, id: int
) -> bool:
    """Is a text between two tokens encoded as it is alone (or behind the prefix)?"""
    alone = backend.encode(prefix + text, add_special_tokens=False).ids[bool(prefix) :]
    between = backend.encode(f"{token}{text}{token}{text}", add_special_tokens=False).ids
    return between == [id, *alone, id, *alone]


def pattern_of_longest_word(words: list[str]) -> str:
    """A pattern for the longest of some sorted words that stands at a place: common beginnings are tried once.

    `["<a>", "<ab>", "<b>"]` becomes `<(?:a(?:b>|>)|b>)`. Vocabularies have up to some thousand added tokens that begin
    alike (`<|reserved_special_token_17|>`); a plain alternation would try each of them at every `<` of a text.
    """
    # The words by their first character; "" stands for a word that ends here.
    tails_by_head: dict[str, list[str]] = {}
    for head, group in groupby(words, key=lambda word: word[:1]):
        tails_by_head[head] = [word[1:] for word in group]
    a_word_ends = "" in tails_by_head
    last_characters: list[str] = []
    branches: list[str] = []
    for head, tails in tails_by_head.items():
        if head and tails == [""]:
            last_characters.append(re.escape(head))
        elif head:
            branches.append(re.escape(head) + pattern_of_longest_word(tails))
    if len(last_characters) > 1:
        branches.append(f"[{''.join(last_characters)}]")
    else:
        branches += last_characters
    if not branches:
        return ""
    if not a_word_ends:
        return branches[0] if len(branches) == 1 else f"(?:{'|'.join(branches)})"
    # Greedy, so that a longer word is taken where one stands.
    return f"(?:{'|'.join(branches)})?"
