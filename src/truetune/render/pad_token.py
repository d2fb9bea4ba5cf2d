"""The pad token that a tokenizer should have."""

from __future__ import annotations

import re
from collections.abc import Iterable

from truetune.render.tokenizer import Special, Stop, Tokenizer

MADE_FOR_PADDING = r"^[\W_]*(finetune_)?((right|left)_)?pad(ding)?(_token|_id)?[\W_]*$"
"""Not `<|image_pad|>`, which is a place that a picture fills."""
ORDINARY = "naïve 日本語 龘 \U0001fae0 \u1680\x07\n"
"""Text that a vocabulary without bytes to fall back on can't spell."""


def choose_pad_token(tokenizer: Tokenizer, stops: Iterable[Stop]) -> tuple[Special | None, str]:
    """The best pad that the vocabulary offers, and why; None where a new token has to be added.

    Never a stop token, never BOS, never beyond the embedding. In this order: the pad that is set, a token made for
    padding, UNK where ordinary text can't produce it, the end of documents, a reserved token, another kind of pad.
    """
    special = tokenizer.special
    limit = tokenizer.embedding_rows or tokenizer.vocabulary
    taken = {stop.id for stop in stops} | {
        special[name].id for name in ("bos", "eos") if name in special
    }
    added = sorted(tokenizer.backend.get_added_tokens_decoder().items())
    control = [Special(token.content, id) for id, token in added if token.special]
    ordinary = set(tokenizer.backend.encode(ORDINARY, add_special_tokens=False).ids)
    unk = [token for token in (special.get("unk"),) if token and token.id not in ordinary]
    for tokens, reason in (
        ([special["pad"]] if "pad" in special else [], "it is set, and is no stop token"),
        (_tokens_matching(MADE_FOR_PADDING, control), "it is made for padding"),
        (unk, "it ends no turn, and ordinary text never becomes it"),
        (_tokens_matching(r"endoftext", control), "it ends documents, and no turn"),
        (
            _tokens_matching(r"reserved|unused|dummy|extra|control_\d|special_\d", control),
            "it is reserved, and nothing uses it",
        ),
        (_tokens_matching(r"pad(?!d)", control), "it ends no turn, and text never becomes it"),
    ):
        for token in tokens:
            if token.id not in taken and token.id < limit:
                return token, reason
    return None, "no token of the vocabulary is free: add one and resize the embedding"


def _tokens_matching(pattern: str, tokens: list[Special]) -> list[Special]:
    return [token for token in tokens if re.search(pattern, token.token, re.IGNORECASE)]
