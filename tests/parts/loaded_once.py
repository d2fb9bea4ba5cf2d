"""Tokenizers of the parts are read once in a process of the tests, and not by every test that names their folder.

Reading one takes up to 1.7 s (Gemma's file has 33 MB), and thousands of tests name one. A folder of the parts never
changes once it is laid out, so what was read stays true; other folders are read each time. All 29 take 1.1 GB.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from tests.parts.shelf import root
from truetune.render import tokenizer as loading
from truetune.render.tokenizer import Tokenizer

State = tuple[int, object, object, bool]


def keep_tokenizers_of_parts() -> None:
    """Have `truetune.render.tokenizer.load_tokenizer` read each folder of the parts once."""
    vars(loading)["_load_folder"] = _once(loading._load_folder)


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
