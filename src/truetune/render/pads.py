"""The pad token that a tokenizer should have."""

from __future__ import annotations

import re
from collections.abc import Iterable

from truetune.render.tokenizer import Special, Stop, Tokenizer

PAD_LIKE = re.compile(r"pad(?!d)", re.IGNORECASE)
RESERVED = re.compile(r"reserved|unused|dummy|extra|special_\d+", re.IGNORECASE)


def good_pad(tokenizer: Tokenizer, stops: Iterable[Stop]) -> tuple[Special | None, str]:
    """The best pad that the vocabulary offers, and why; None where a new token has to be added.

    Never a stop token, never BOS, never beyond the embedding. In this order: the pad that is set, a token made for
    padding, UNK where ordinary text can't produce it, a reserved token.
    """
    limit = tokenizer.embedding_rows or tokenizer.vocabulary
    taken = {stop.id for stop in stops} | {tokenizer.special[n].id for n in ("bos", "eos") if n in tokenizer.special}
    pad, unk = tokenizer.special.get("pad"), tokenizer.special.get("unk")
    if pad is not None and pad.id not in taken and pad.id < limit:
        return pad, "it is set, and is no stop token"
    added = tokenizer.backend.get_added_tokens_decoder()
    free = [Special(token.content, id) for id, token in added.items() if token.special and id not in taken]
    free = [token for token in free if token.id < limit and token != unk]
    for found, reason in (
        (_first(free, PAD_LIKE), "it is made for padding"),
        (unk if unk is not None and unk.id not in taken and unk.id < limit else None, "UNK ends no turn"),
        (_first(free, RESERVED), "it is reserved, and nothing else uses it"),
    ):
        if found is not None:
            return found, reason
    return None, "no token of the vocabulary is free: add one and resize the embedding"


def _first(tokens: list[Special], pattern: re.Pattern[str]) -> Special | None:
    found = [token for token in tokens if pattern.search(token.token)]
    return min(found, key=lambda token: (len(token.token), token.id), default=None)
