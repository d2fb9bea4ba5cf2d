"""Chooses the pad token that a tokenizer should have.

truetune masks pads by position, so that its own training does not depend on this choice. Other people's code masks by
id, and a pad that is also a stop token teaches a model never to stop; so the best token of the vocabulary is named. The
trade-off: a published vocabulary is searched by the spelling of its tokens, for no file says what a reserved token is
for. What the published tokenizers give is held by tests/render/test_pads.py.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from truetune.render.tokenizer import SpecialToken, StopToken, Tokenizer

MADE_FOR_PADDING = r"^[\W_]*(finetune_)?((right|left)_)?pad(ding)?(_token|_id)?[\W_]*$"
"""Not `<|image_pad|>`, which is a place that a picture fills."""
ORDINARY = "naïve 日本語 龘 \U0001fae0 \u1680\x07\n"
"""Text that a vocabulary without bytes to fall back on can't spell."""
MARK = re.compile(r"[<\[{|\uff5c]|pad|unk|unused|reserved|special", re.IGNORECASE)
"""What tokens that were made for a purpose have in their names; pieces of text have none of it"""


def pad_token_if_it_encodes_text(tokenizer: Tokenizer) -> SpecialToken | None:
    """The pad token, where it is a token of the vocabulary that encodes text (`!`); None where it is a mark.

    A token that a settings file names as special keeps its id, so that texts encode to it as before.
    """
    pad = tokenizer.special.get("pad")
    if pad is None or MARK.search(pad.token):
        return None
    if tokenizer.backend.get_vocab(with_added_tokens=False).get(pad.token) != pad.id:
        return None
    ends = {tokenizer.special[name].id for name in ("bos", "eos") if name in tokenizer.special}
    return None if pad.id in ends else pad


def choose_pad_token(
    tokenizer: Tokenizer, stops: Iterable[StopToken]
) -> tuple[SpecialToken | None, str]:
    """The best pad that the vocabulary offers, and why; None where a new token has to be added.

    Never a stop token, never BOS, never beyond the embedding. In this order: the pad that is set and is no text, a
    token made for padding, UNK where ordinary text can't produce it, the end of documents, a reserved token, another
    kind of pad.
    """
    unusable = {stop.id for stop in stops}
    unusable |= {tokenizer.special[name].id for name in ("bos", "eos") if name in tokenizer.special}
    # An id beyond the embedding crashes the first forward pass.
    limit = tokenizer.embedding_rows or tokenizer.vocabulary
    for tokens, reason in _pad_candidates(tokenizer):
        for token in tokens:
            if token.id not in unusable and token.id < limit:
                return token, reason
    return None, "no token of the vocabulary is free: add one and resize the embedding"


def _pad_candidates(tokenizer: Tokenizer) -> Iterator[tuple[list[SpecialToken], str]]:
    """(tokens, why one of them would do), the best first."""
    special = tokenizer.special
    if "pad" in special and pad_token_if_it_encodes_text(tokenizer) is None:
        yield [special["pad"]], "it is set, and is no stop token"
    added = sorted(tokenizer.backend.get_added_tokens_decoder().items())
    control = [SpecialToken(token.content, id) for id, token in added if token.special]
    yield _tokens_that_hold_pattern(MADE_FOR_PADDING, control), "it is made for padding"
    # UNK is fine where bytes spell all text, as in Llama 2's vocabulary; elsewhere masking it would mask real text.
    unk = special.get("unk")
    if unk is not None:
        ordinary = tokenizer.backend.encode(ORDINARY, add_special_tokens=False).ids
        if unk.id not in ordinary:
            yield [unk], "it is no end-of-turn token, and normal text never produces it"
    yield _tokens_that_hold_pattern(r"endoftext", control), "it ends documents, and no turn"
    reserved = r"reserved|unused|dummy|extra|control_\d|special_\d"
    yield _tokens_that_hold_pattern(reserved, control), "it is reserved, and nothing uses it"
    # Last, for most of these are places that something else fills: `<|image_pad|>`.
    yield (
        _tokens_that_hold_pattern(r"pad(?!d)", control),
        "it is no end-of-turn token, and text never produces it",
    )


def _tokens_that_hold_pattern(pattern: str, tokens: list[SpecialToken]) -> list[SpecialToken]:
    """The tokens whose text holds a pattern, in order, in any case of letters."""
    return [token for token in tokens if re.search(pattern, token.token, re.IGNORECASE)]
