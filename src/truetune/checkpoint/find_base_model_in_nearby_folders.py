"""Finds the base of a saved model among the folders near it, where nothing names one that is there.

A base is known by the name that the files record, by a word of its folder (`base`, `original`), or by a published name
that the folder of the tuned model continues (`qwen2.5-0.5b` and `qwen2.5-0.5b-sft`). Its config.json must be of the
same architecture: two models that only lie side by side are not compared. Of several that fit, none is taken."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

from truetune.parsing.input_limits import SETTINGS
from truetune.parsing.parse_json_within_limits import read_json

BASE_WORD = re.compile(
    r"(?<![a-z])(base(?:[-_]?model)?|original|orig|pre-?trained|untuned|vanilla)(?![a-z])"
)
SIZE = re.compile(r"(?<![a-z0-9.])\d+(?:\.\d+)?[bm](?![a-z0-9])")
"""`0.5b`: published models have their size in their name"""
# Chosen, not measured: a folder of more models than this is a store, and no project.
MAX_FOLDERS = 60
ARCHITECTURE_KEYS = ("model_type", "hidden_size", "num_hidden_layers", "intermediate_size")


class SavedModel(NamedTuple):
    """What is known of a saved model or adapter without its base."""

    folder: Path
    recorded_base: str | None
    """The name of its base by its own files"""
    config: Mapping[str, Any]
    is_adapter: bool
    tensor_sizes: frozenset[int]
    """Lengths of the axes of its tensors: those of an adapter fit the base that it was made for"""


def find_base_beside(model: SavedModel) -> Path | None:
    """The folder beside a model that is its base; None where none is, or several may be."""
    name = model.folder.resolve().name.casefold()
    if BASE_WORD.search(name):
        return None
    candidates = {
        path: config
        for path, config in _models_beside_folder_or_parent(model.folder.resolve())
        if _is_same_architecture(model, config)
    }
    recorded = re.split(r"[/\\]|--", (model.recorded_base or "").casefold())[-1]
    for tells_base in (_is_name_recorded_as_base, _has_base_word, _is_published_name_prefix):
        base_folders = [
            path for path in candidates if tells_base(path.name.casefold(), name, recorded)
        ]
        if base_folders:
            return base_folders[0] if len(base_folders) == 1 else None
    return None


def _is_name_recorded_as_base(other: str, name: str, recorded: str) -> bool:
    """Has a folder the name that the files of the model record?"""
    return bool(recorded) and other == recorded


def _has_base_word(other: str, name: str, recorded: str) -> bool:
    """Says the name of a folder that it holds a base?"""
    return BASE_WORD.search(other) is not None


def _is_published_name_prefix(other: str, name: str, recorded: str) -> bool:
    """Is the name of a folder a published one, with which the name of the model begins?"""
    return SIZE.search(other) is not None and name.startswith(
        (f"{other}-", f"{other}_", f"{other}.")
    )


def _models_beside_folder_or_parent(folder: Path) -> Iterator[tuple[Path, Mapping[str, Any]]]:
    """The whole models beside a folder, and beside the one that it is in (`base`, `out/merged`)."""
    yield from _models_beside(folder)
    yield from _models_beside(folder.parent)


def _models_beside(folder: Path) -> Iterator[tuple[Path, Mapping[str, Any]]]:
    """The whole models beside a folder, with their config.json."""
    try:
        entries = sorted(islice(folder.parent.iterdir(), MAX_FOLDERS + 1))
    except OSError:
        return
    if len(entries) > MAX_FOLDERS:
        return
    for path in entries:
        if path == folder or path.name.startswith(".") or (path / "adapter_config.json").is_file():
            continue
        file = path / "config.json"
        try:
            config = read_json(file, SETTINGS) if file.is_file() else None
        except (OSError, ValueError):
            continue
        if isinstance(config, dict):
            yield path, config


def _is_same_architecture(model: SavedModel, config: Mapping[str, Any]) -> bool:
    """Can a config.json be that of the base of a model?"""
    if model.is_adapter:
        return config.get("hidden_size") in model.tensor_sizes
    return bool(model.config) and all(
        model.config.get(key) == config.get(key) for key in ARCHITECTURE_KEYS
    )
