"""Computes a script's calls of its tokenizer: text to ids, chats to text, special tokens.

How it works: whoever has a tokenizer gives its functions; `data` itself reads none. Ids are lists of constants,
so that the script's own code on them (slices, sums, `-100` for prompts) is followed like any other.

The trade-off: where rows are made, padding and truncation are those of one row by itself, and texts that a call pads to
the longest of them stay as long as they are, which changes no label. Where a collator makes a batch, they are padded.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from truetune.data.script_rows.compute_tensors_with_numpy import TENSOR
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
    padding_side: str = "right"
    """`left` or `right`, where the script sets no other"""
    model_max_length: int | None = None
    """Tokens that `truncation=True` keeps without a `max_length`; None where its files state no limit"""


class Padding(NamedTuple):
    """How the tokenizer pads and truncates at one place of a script."""

    id: int
    side: str
    """`left` or `right`"""
    is_to_longest: bool
    """Are the texts of one call padded to the longest of them? Else each stays as long as it is, as rows that are
    made one by one"""
    model_max_length: int | None = None
    """Tokens that a call with truncation keeps without a `max_length`; None where there is no limit, or it is not
    known"""


@dataclass(eq=False, slots=True)
class PaddedIds(Sequence):
    """Ids of one text, with pads beside them."""

    pads: int = 0
    side: str = "right"


@dataclass(eq=False, slots=True)
class ChatIds(Sequence):
    """What `apply_chat_template` gives as ids: a list, or a dictionary of it, by the release of transformers."""


def call_tokenizer(
    tokenizer: ScriptTokenizer,
    args: tuple[Value, ...],
    keywords: dict[str, Value],
    padding: Padding,
) -> Value | None:
    """The result of `tokenizer(text, ...)`; None if it is not known."""
    plain = constant_of(args[0] if args else keywords.get("text"))
    if len(args) > 1 or "text_pair" in keywords:
        return None
    if isinstance(plain, str):
        ids = _encode_and_truncate(tokenizer, plain, keywords, padding)
        return _ids_and_mask(Sequence(TENSOR, [ids]) if _returns_tensors(keywords) else ids)
    if isinstance(plain, list) and plain and all(isinstance(one, str) for one in plain):
        return _ids_and_mask(_encode_texts(tokenizer, plain, keywords, padding))
    return None


def _encode_texts(
    tokenizer: ScriptTokenizer, texts: list[str], keywords: dict[str, Value], padding: Padding
) -> Sequence:
    """The ids of several texts, padded to the longest of them where the call says so."""
    encoded = [_encode_and_truncate(tokenizer, text, keywords, padding) for text in texts]
    if padding.is_to_longest and constant_of(keywords.get("padding")) in (True, "longest"):
        encoded = _pad_to_longest(encoded, padding)
    return Sequence(TENSOR if _returns_tensors(keywords) else "list", list(encoded))


def _ids_and_mask(ids: Sequence) -> MappingValue:
    """What the tokenizer gives: ids, with the mask of what is no pad."""
    return MappingValue({"input_ids": ids, "attention_mask": _attention_mask(ids)})


def call_pad(
    tokenizer: ScriptTokenizer,
    args: tuple[Value, ...],
    keywords: dict[str, Value],
    padding: Padding,
) -> Value | None:
    """The result of `tokenizer.pad(rows, ...)`: ids padded to the longest row; None if it is not known.

    As in transformers, only the tokenizer's own columns are padded: labels stay as they are.
    """
    columns = _columns_of_rows(args[0] if args else keywords.get("encoded_inputs"))
    column = columns.get("input_ids")
    if not isinstance(column, Sequence):
        return None
    kind = TENSOR if _returns_tensors(keywords) else "list"
    rows = [PaddedIds(kind, list(one.items)) for one in column.items if isinstance(one, Sequence)]
    if not rows or len(rows) != len(column.items):
        return None
    limit = constant_of(keywords.get("max_length"))
    is_to_limit = constant_of(keywords.get("padding")) == "max_length" and type(limit) is int
    padded = _pad_to_longest(rows, padding, limit if is_to_limit else 0)
    return MappingValue({**columns, **_ids_and_mask(Sequence(kind, list(padded))).entries})


def _columns_of_rows(value: Value | None) -> dict[Any, Value]:
    """The columns of rows, by name; those of a dictionary of columns as they are. Empty where they are not known."""
    if isinstance(value, MappingValue):
        return {} if value.is_open else dict(value.entries)
    rows = _known_rows(value)
    if not rows:
        return {}
    names = set(rows[0].entries).intersection(*(row.entries for row in rows))
    return {name: Sequence("list", [row.entries[name] for row in rows]) for name in names}


def _known_rows(value: Value | None) -> list[MappingValue]:
    """The rows of a list; empty where it is no list, or not all of it is known."""
    if not isinstance(value, Sequence) or value.is_open:
        return []
    rows = [one for one in value.items if isinstance(one, MappingValue) and not one.is_open]
    return rows if len(rows) == len(value.items) else []


def call_encode(
    tokenizer: ScriptTokenizer,
    args: tuple[Value, ...],
    keywords: dict[str, Value],
    padding: Padding,
) -> Value | None:
    """The result of `tokenizer.encode(text, ...)`; None if it is not known."""
    plain = constant_of(args[0] if args else keywords.get("text"))
    if not isinstance(plain, str):
        return None
    return _encode_and_truncate(tokenizer, plain, keywords, padding)


def call_apply_chat_template(
    tokenizer: ScriptTokenizer,
    args: tuple[Value, ...],
    keywords: dict[str, Value],
    padding: Padding,
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
    settings = {**keywords, "add_special_tokens": Constant(False)}
    ids = _encode_and_truncate(tokenizer, text, settings, padding)
    if constant_of(keywords.get("return_dict")) is True:
        return _ids_and_mask(ids)
    chat = ChatIds("list", ids.items)
    return Sequence(TENSOR, [chat]) if _returns_tensors(keywords) else chat


def _returns_tensors(keywords: dict[str, Value]) -> bool:
    """Does a call return tensors, in which one text is a batch of one?"""
    return isinstance(constant_of(keywords.get("return_tensors")), str)


def _encode_and_truncate(
    tokenizer: ScriptTokenizer,
    text: str,
    keywords: dict[str, Value],
    padding: Padding,
) -> PaddedIds:
    """The ids of one text, truncated and padded to a fixed length as the call says."""
    adds = constant_of(keywords.get("add_special_tokens"))
    ids = tokenizer.encode(text, adds is NO_CONSTANT or bool(adds))
    limit = constant_of(keywords.get("max_length"))
    is_stated = "max_length" in keywords and limit is not None
    kept = limit if is_stated else padding.model_max_length
    if constant_of(keywords.get("truncation")) in (True, "longest_first") and type(kept) is int:
        ids = ids[:kept]
    kind = TENSOR if _returns_tensors(keywords) else "list"
    encoded = PaddedIds(kind, [Constant(one) for one in ids])
    if constant_of(keywords.get("padding")) == "max_length" and type(limit) is int:
        return _pad_ids(encoded, limit, padding)
    return encoded


def _pad_to_longest(rows: list[PaddedIds], padding: Padding, least: int = 0) -> list[PaddedIds]:
    """Rows of ids padded to the longest of them, and at least to a length."""
    length = max(least, *(len(one.items) for one in rows))
    return [_pad_ids(one, length, padding) for one in rows]


def _pad_ids(ids: PaddedIds, length: int, padding: Padding) -> PaddedIds:
    """Ids with pads up to a length, on one side."""
    missing = max(length - len(ids.items), 0)
    pads: list[Value] = [Constant(padding.id) for _ in range(missing)]
    items = [*pads, *ids.items] if padding.side == "left" else [*ids.items, *pads]
    return PaddedIds(ids.kind, items, pads=ids.pads + missing, side=padding.side)


def _attention_mask(ids: Value) -> Sequence:
    """The attention mask of ids: ones, and zeros for the pads beside them."""
    if not isinstance(ids, Sequence):
        return Sequence("list", [])
    if any(isinstance(one, Sequence) for one in ids.items):
        return Sequence(ids.kind, [_attention_mask(one) for one in ids.items])
    pads = ids.pads if isinstance(ids, PaddedIds) else 0
    zeros: list[Value] = [Constant(0) for _ in range(pads)]
    ones: list[Value] = [Constant(1) for _ in range(len(ids.items) - pads)]
    is_left = isinstance(ids, PaddedIds) and ids.side == "left"
    return Sequence(ids.kind, [*zeros, *ones] if is_left else [*ones, *zeros])
