"""Reads the YAML of `mergekit-yaml`, which merges weights and trains nothing."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from truetune.settings.config import Config
from truetune.settings.located_document import LocatedDocument
from truetune.settings.stacks.config_draft import draft_of_document

MERGEKIT_RELEASE = "0.1"
MERGEKIT_KEYS = frozenset((
    "merge_method", "models", "slices", "modules", "base_model", "dtype", "out_dtype", "tokenizer_source", "tokenizer",
    "chat_template", "parameters", "name",
))  # fmt: skip
"""Of its MergeConfiguration; `name` stands between the documents of a `mergekit-multi`"""


def mergekit_keys() -> frozenset[str]:
    """The keys at the top of mergekit's files."""
    return MERGEKIT_KEYS


def is_mergekit(value: Mapping[Any, Any]) -> bool:
    """Are these settings of a merge: a method, and lists of what is merged?"""
    return isinstance(value.get("merge_method"), str) and any(
        isinstance(value.get(key), (list, Mapping)) for key in ("models", "slices", "modules")
    )


def read_mergekit_config(document: LocatedDocument) -> Config:
    """The settings of a merge. Raises SpecError."""
    draft = draft_of_document(document, "mergekit", MERGEKIT_RELEASE, {})
    return draft.make_config({*MERGEKIT_KEYS, *draft.values}, None, ())
