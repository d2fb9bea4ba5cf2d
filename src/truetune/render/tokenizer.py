"""The facts about a tokenizer folder, read without transformers."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import tokenizers


class Special(NamedTuple):
    """A token with its id."""

    token: str
    id: int


class Stop(NamedTuple):
    """A token that ends a turn, and who says so."""

    token: str
    id: int
    origins: tuple[str, ...]
    """tokenizer (eos_token), generation_config, config, template"""


@dataclass(frozen=True)
class Tokenizer:
    """A tokenizer folder."""

    folder: Path
    backend: tokenizers.Tokenizer
    config: dict[str, Any]
    """tokenizer_config.json"""
    model_config: dict[str, Any]
    """config.json; empty where there is none"""
    generation_config: dict[str, Any] | None
    """generation_config.json; None where there is none"""
    templates: dict[str, str]
    """By name; the only one of a folder is `default`."""
    special: dict[str, Special]
    """bos, eos, pad, unk: those that are set."""
    adds_bos: bool
    """Does a plain encode write BOS?"""
    adds_eos: bool
    padding_side: str
    control: frozenset[int]
    """Ids of the added tokens that are special."""
    vocabulary: int
    """Highest id in use, plus one."""
    embedding_rows: int | None
    """Of the weights, else of config.json; None where neither is at hand."""
