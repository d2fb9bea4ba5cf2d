"""Computes a script's calls of its tokenizer: text to ids, chats to text, special tokens.

How it works: whoever has a tokenizer gives its functions; `data` itself reads none. Ids are lists of constants,
so that the script's own code on them (slices, sums, `-100` for prompts) is followed like any other.

The trade-off: padding and truncation are those of one row by itself. A batch that is padded to its longest row stays as
long as its rows are, which changes no label.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from truetune.source.symbolic_execution.fold_constants import constant_of
from truetune.source.symbolic_execution.values_of_run import (
    NO_CONSTANT,
    Constant,
    Sequence,
    Value,
)
from truetune.source.symbolic_execution.values_of_run import Mapping as MappingValue


@dataclass(frozen=True, slots=True, eq=False)
class ScriptTokenizer:
    """A tokenizer, by what scripts ask of it. Two are the same where they are one object: rows are kept by it."""

    encode: Callable[[str, bool], list[int]]
    """The ids of a text, with special tokens or without"""
    render: Callable[[list[Any], bool], str | None]
    """The text of a chat, with the generation prompt or without; None where the template refuses it"""
    special: Mapping[str, str]
    """`eos_token` and the like -> the token"""
    id_of: Callable[[str], int | None]
    """The id of a token"""

    def pad_id(self) -> int:
        """The id that fills up a row: that of the pad token, otherwise of EOS, as scripts set it,
        otherwise 0.
        """
        token = self.special.get("pad_token") or self.special.get("eos_token")
        return (self.id_of(token) if token is not None else None) or 0


@dataclass(eq=False, slots=True)
class PaddedIds(Sequence):
    """Ids of one text, with pads behind them."""

    pads: int = 0


@dataclass(eq=False, slots=True)
class ChatIds(Sequence):
    """What `apply_chat_template` gives as ids: a list, or a dictionary of it, by the release of transformers."""


def call_tokenizer(
    tokenizer: ScriptTokenizer, args: tuple[Value, ...], keywords: dict[str, Value]
) -> Value | None:
    """The result of `tokenizer(text, ...)`; None if it is not known."""
    texts = args[0] if args else keywords.get("text")
    plain = constant_of(texts)
    if len(args) > 1 or "text_pair" in keywords:
        return None
    if isinstance(plain, str):
        ids = _encode_and_truncate(tokenizer, plain, keywords)
        rows: Value = Sequence("list", [ids]) if _returns_tensors(keywords) else ids
        return MappingValue({"input_ids": rows, "attention_mask": _attention_mask(rows)})
    if isinstance(plain, list) and plain and all(isinstance(one, str) for one in plain):
        many = Sequence("list", [_encode_and_truncate(tokenizer, one, keywords) for one in plain])
        return MappingValue({"input_ids": many, "attention_mask": _attention_mask(many)})
    return None


def call_encode(
    tokenizer: ScriptTokenizer, args: tuple[Value, ...], keywords: dict[str, Value]
) -> Value | None:
    """The result of `tokenizer.encode(text, ...)`; None if it is not known."""
    plain = constant_of(args[0] if args else keywords.get("text"))
    return _encode_and_truncate(tokenizer, plain, keywords) if isinstance(plain, str) else None


def call_apply_chat_template(
    tokenizer: ScriptTokenizer, args: tuple[Value, ...], keywords: dict[str, Value]
) -> Value | None:
    """The result of `apply_chat_template(messages, ...)`, as text or ids; None if it is not known."""
    messages = constant_of(args[0] if args else keywords.get("conversation"))
    if not isinstance(messages, list) or any(name in keywords for name in ("tools", "documents")):
        return None
    adds = constant_of(keywords.get("add_generation_prompt")) is True
    text = tokenizer.render(messages, adds)
    if text is None:
        return None
    if constant_of(keywords.get("tokenize")) is False:
        return Constant(text)
    # A template writes its own special tokens.
    ids = _encode_and_truncate(tokenizer, text, {**keywords, "add_special_tokens": Constant(False)})
    if constant_of(keywords.get("return_dict")) is True:
        return MappingValue({"input_ids": ids, "attention_mask": _attention_mask(ids)})
    chat = ChatIds("list", ids.items)
    return Sequence("list", [chat]) if _returns_tensors(keywords) else chat


def _returns_tensors(keywords: dict[str, Value]) -> bool:
    """Does a call return tensors, in which one text is a batch of one?"""
    return isinstance(constant_of(keywords.get("return_tensors")), str)


def _encode_and_truncate(
    tokenizer: ScriptTokenizer, text: str, keywords: dict[str, Value]
) -> Sequence:
    """The ids of one text, truncated as the call says."""
    adds = constant_of(keywords.get("add_special_tokens"))
    ids = tokenizer.encode(text, adds is NO_CONSTANT or bool(adds))
    limit = constant_of(keywords.get("max_length"))
    if constant_of(keywords.get("truncation")) in (True, "longest_first") and type(limit) is int:
        ids = ids[:limit]
    pads = 0
    if constant_of(keywords.get("padding")) == "max_length" and type(limit) is int:
        pads = max(limit - len(ids), 0)
        ids = ids + [tokenizer.pad_id()] * pads
    kind = "tensor" if _returns_tensors(keywords) else "list"
    return PaddedIds(kind, [Constant(one) for one in ids], pads=pads)


def _attention_mask(ids: Value) -> Sequence:
    """The attention mask of ids: ones, and zeros for the pads after them."""
    items = ids.items if isinstance(ids, Sequence) else []
    pads = ids.pads if isinstance(ids, PaddedIds) else 0
    kind = ids.kind if isinstance(ids, Sequence) else "list"
    real = len(items) - pads
    mask = [
        _attention_mask(one) if isinstance(one, Sequence) else Constant(int(place < real))
        for place, one in enumerate(items)
    ]
    return Sequence(kind, list(mask))
