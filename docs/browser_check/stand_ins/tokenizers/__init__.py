"""`tokenizers` for the browser: the same Rust library, compiled to WebAssembly, behind the names that truetune calls.

The library for JavaScript encodes a text into ids and says nothing else. What else truetune asks follows from
tokenizer.json, which is kept here: vocabulary, added tokens, what the post-processor adds. Added tokens are written
into that file as `tokenizers` would, and the library reads it again. The trade-off: it gives no offsets. truetune needs
them only for a text that its ids do not spell (a normalizer changed it), and such a text is refused here.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

__version__ = "browser"
ENGINE: Any = None
"""Makes an encoder of a tokenizer.json; the page's worker sets it"""


class NoOffsets(Exception):
    """A text can't be placed in the browser."""


@dataclass(frozen=True)
class AddedToken:
    """A token beside the vocabulary, as tokenizer.json describes it."""

    content: str
    single_word: bool = False
    lstrip: bool = False
    rstrip: bool = False
    normalized: bool = True
    special: bool = False


@dataclass(frozen=True)
class Encoding:
    """The ids of a text."""

    text: str
    ids: list[int]

    @property
    def offsets(self) -> list[tuple[int, int]]:
        """Raises NoOffsets."""
        raise NoOffsets(
            f"the tokenizer changes {self.text[:60]!r} before it encodes it, and the library for browsers"
            " does not say where its tokens stand; `truetune show` does"
        )


class Tokenizer:
    """A tokenizer.json."""

    def __init__(self, settings: dict[str, Any]) -> None:
        self._settings = settings
        model = settings["model"]
        vocabulary = model["vocab"]
        if isinstance(vocabulary, list):  # Unigram: pairs of a token and its score
            vocabulary = {token: id for id, (token, _) in enumerate(vocabulary)}
        self._ids: dict[str, int] = vocabulary
        self._tokens = {id: token for token, id in vocabulary.items()}
        self._added: dict[int, AddedToken] = {}
        for entry in settings.get("added_tokens") or ():
            fields = {name: value for name, value in entry.items() if name != "id"}
            self._added[entry["id"]] = AddedToken(**fields)
        self.truncation = settings.get("truncation")
        self.padding = settings.get("padding")
        self.encode_special_tokens = False
        self._encoder: Any = None
        self._encodes_special: bool | None = None

    @classmethod
    def from_file(cls, path: str) -> Tokenizer:
        """Read a tokenizer.json."""
        with open(path, encoding="utf-8") as file:
            return cls(json.load(file))

    @classmethod
    def from_str(cls, text: str) -> Tokenizer:
        """Read the text of a tokenizer.json."""
        return cls(json.loads(text))

    def to_str(self) -> str:
        """The text of its tokenizer.json."""
        return json.dumps(self._as_settings(self._added))

    def _as_settings(self, added: dict[int, AddedToken]) -> dict[str, Any]:
        """Its tokenizer.json with these added tokens, neither cut nor padded."""
        entries = [{"id": id, **vars(token)} for id, token in sorted(added.items())]
        own = {"added_tokens": entries, "truncation": None, "padding": None}
        return {**self._settings, **own}

    def no_truncation(self) -> None:
        """Cut no text."""
        self.truncation = None

    def no_padding(self) -> None:
        """Pad no text."""
        self.padding = None

    @property
    def normalizer(self) -> object | None:
        """What changes a text first; its text is that of `tokenizers`, as far as truetune compares it."""
        return _component(self._settings.get("normalizer"))

    @property
    def decoder(self) -> object | None:
        """What makes text of tokens; the name of its class says which."""
        return _component(self._settings.get("decoder"))

    def get_vocab_size(self, with_added_tokens: bool = True) -> int:
        """The number of tokens."""
        added = {token.content for token in self._added.values()} if with_added_tokens else set()
        return len(self._ids.keys() | added)

    def get_added_tokens_decoder(self) -> dict[int, AddedToken]:
        """The added tokens by id."""
        return dict(sorted(self._added.items()))

    def token_to_id(self, token: str) -> int | None:
        """The id of a token."""
        added = next((id for id, one in self._added.items() if one.content == token), None)
        return self._ids.get(token) if added is None else added

    def id_to_token(self, id: int) -> str | None:
        """The token of an id."""
        added = self._added.get(id)
        return self._tokens.get(id) if added is None else added.content

    def add_tokens(self, tokens: Iterable[str | AddedToken]) -> int:
        """Add tokens; gives how many were new."""
        return sum(self._add(token) for token in tokens)

    def add_special_tokens(self, tokens: Iterable[str | AddedToken]) -> int:
        """Add special tokens; gives how many were new."""
        return sum(self._add(token, special=True) for token in tokens)

    def _add(self, given: str | AddedToken, *, special: bool = False) -> bool:
        """Add one token: with the id of its text, where that has one, else behind all ids. Is it new?"""
        token = AddedToken(given) if isinstance(given, str) else given
        if special:
            token = replace(token, special=True)
        if not token.content or token in self._added.values():
            return False
        id = self.token_to_id(token.content)
        if id is None:
            id = max([len(self._ids) - 1, *self._added]) + 1
        self._added[id] = token
        self._encoder = None
        return True

    def encode(self, text: str, add_special_tokens: bool = True) -> Encoding:
        """The ids of a text."""
        ids = list(self._current_encoder()(text))
        if add_special_tokens:
            ids = _with_special_tokens(ids, self._settings.get("post_processor"))
        return Encoding(text, ids)

    def decode(self, ids: list[int], skip_special_tokens: bool = True) -> str:
        """The text of ids, none of them special: what the library does with those is not asked."""
        text: str = self._current_encoder().decode(ids)
        return text

    def _current_encoder(self) -> Any:
        """The library's encoder with the added tokens of now."""
        if self._encoder is None or self._encodes_special != self.encode_special_tokens:
            self._encodes_special = self.encode_special_tokens
            added = self._added
            if self.encode_special_tokens:  # special tokens are text then
                added = {id: token for id, token in added.items() if not token.special}
            self._encoder = ENGINE(json.dumps(self._as_settings(added)))
        return self._encoder

    def encode_batch_fast(
        self, texts: list[str], add_special_tokens: bool = True
    ) -> list[Encoding]:
        """The ids of several texts."""
        return [self.encode(text, add_special_tokens) for text in texts]


def _component(settings: dict[str, Any] | None) -> object | None:
    """A part of a tokenizer, named and written as `tokenizers` does."""
    if settings is None:
        return None
    arguments = ""
    if settings["type"] == "Sequence":
        parts = settings.get("normalizers") or settings.get("decoders") or []
        arguments = f"normalizers=[{', '.join(str(_component(part)) for part in parts)}]"
    text = f"{settings['type']}({arguments})"
    return type(settings["type"], (), {"__str__": lambda self: text})()


def _with_special_tokens(ids: list[int], processor: dict[str, Any] | None) -> list[int]:
    """The ids of a text with what the post-processor adds."""
    kind = processor["type"] if processor else ""
    if processor is None or kind == "ByteLevel":
        return ids
    if kind == "Sequence":
        for part in processor["processors"]:
            ids = _with_special_tokens(ids, part)
        return ids
    if kind in ("BertProcessing", "RobertaProcessing"):
        return [processor["cls"][1], *ids, processor["sep"][1]]
    if kind != "TemplateProcessing":
        raise NoOffsets(f"the post-processor {kind} is not known in the browser")
    out: list[int] = []
    for piece in processor["single"]:
        if "Sequence" in piece:
            out += ids
        else:
            out += processor["special_tokens"][piece["SpecialToken"]["id"]]["ids"]
    return out
