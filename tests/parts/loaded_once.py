"""Tokenizers of the parts are read once in a process of the tests, and not by every test that names their folder.

Reading one takes up to 1.7 s (Gemma's file has 33 MB), and thousands of tests name one. A folder of the parts never
changes once it is laid out, so what was read stays true. All 29 take 1.1 GB.

A test that changes a template or a setting copies a folder of the parts, and leaves its tokenizer.json as it is. The
tokenizer of such a copy is used again for the next copy with the same file, once nobody holds it any more.
"""

from __future__ import annotations

import copy
import hashlib
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import tokenizers

from tests.parts.shelf import root
from truetune.render import tokenizer as loading
from truetune.render.tokenizer import Tokenizer

State = tuple[int, object, object, bool]
MIN_BYTES = 1 << 20
"""A smaller file is read in some ms."""
MAX_COPIES = 2
"""Tokenizers of copies that are kept; tests of one family come one after the other. Gemma's takes 150 MB."""
UNHELD_REFERENCES = 2
"""Of an object that only we hold: our own, and that of the call that counts them"""


def keep_tokenizers_of_parts() -> None:
    """Have `truetune.render.tokenizer.load_tokenizer` read each folder of the parts once, and copies seldom."""
    vars(loading)["_load_folder"] = _once(loading._load_folder)
    vars(loading)["_load_tokenizers_backend"] = _again_for_copies(loading._load_tokenizers_backend)


def _once(read: Callable[[Path, Path], Tokenizer]) -> Callable[[Path, Path], Tokenizer]:
    known: dict[Path, tuple[Tokenizer, State]] = {}

    def read_once(folder: Path, weights: Path) -> Tokenizer:
        if folder != weights or root() not in folder.parents:
            return read(folder, weights)
        kept = known.get(folder)
        # Who added tokens to it, or switched its truncation on, has one of his own from then on.
        if kept is None or _state(kept[0]) != kept[1]:
            tokenizer = read(folder, weights)
            kept = known[folder] = tokenizer, _state(tokenizer)
        return _with_own_settings(kept[0])

    return read_once


def _state(tokenizer: Tokenizer) -> State:
    """What a user of a backend may change about it."""
    backend = tokenizer.backend
    size = backend.get_vocab_size(with_added_tokens=True)
    return size, backend.truncation, backend.padding, backend.encode_special_tokens


def _with_own_settings(tokenizer: Tokenizer) -> Tokenizer:
    """The same backend beside copies of all that is a mutable mapping."""
    return replace(
        tokenizer,
        config=copy.deepcopy(tokenizer.config),
        model_config=copy.deepcopy(tokenizer.model_config),
        generation_config=copy.deepcopy(tokenizer.generation_config),
        templates=dict(tokenizer.templates),
        special=dict(tokenizer.special),
    )


@dataclass(frozen=True, slots=True)
class _Copied:
    """The tokenizer of a file that tests copy, and what stood in it when it was read."""

    backend: tokenizers.Tokenizer
    added: str
    truncation: dict[str, Any] | None
    padding: dict[str, Any] | None

    def is_as_it_was_read(self) -> bool:
        """Does nobody else hold it, and has nobody added a token to it?"""
        is_free = sys.getrefcount(self.backend) == UNHELD_REFERENCES
        return is_free and _added_tokens(self.backend) == self.added

    def with_settings_of_file(self) -> tokenizers.Tokenizer:
        """The tokenizer with the truncation and padding that loading takes from it."""
        if self.truncation is not None:
            self.backend.enable_truncation(**self.truncation)
        if self.padding is not None:
            self.backend.enable_padding(**self.padding)
        return self.backend


def _again_for_copies(
    read: Callable[[Path], tokenizers.Tokenizer],
) -> Callable[[Path], tokenizers.Tokenizer]:
    known: dict[bytes, _Copied] = {}

    def read_or_use_again(folder: Path) -> tokenizers.Tokenizer:
        path = folder / "tokenizer.json"
        if root() in folder.parents or not path.is_file() or path.stat().st_size < MIN_BYTES:
            return read(folder)
        digest = hashlib.blake2b(path.read_bytes()).digest()
        kept = known.get(digest)
        # The product holds the last tokenizer that it has read; what it reads now is of another folder.
        loading._load_folder_in_state.cache_clear()
        if kept is not None and kept.is_as_it_was_read():
            return kept.with_settings_of_file()
        backend = read(folder)
        while len(known) >= MAX_COPIES:
            del known[next(iter(known))]
        known[digest] = _Copied(
            backend, _added_tokens(backend), backend.truncation, backend.padding
        )
        return backend

    return read_or_use_again


def _added_tokens(backend: tokenizers.Tokenizer) -> str:
    """All added tokens with their flags."""
    return repr(sorted(backend.get_added_tokens_decoder().items(), key=lambda item: item[0]))
