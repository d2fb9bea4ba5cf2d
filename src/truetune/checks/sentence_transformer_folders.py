"""Reads the folder that sentence-transformers saves: its modules, its pooling, its prompts, its longest text."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from truetune.parsing.input_limits import MODEL_FILE
from truetune.parsing.parse_json_within_limits import read_json

POOLING_MODES: Mapping[str, str] = {
    "pooling_mode_cls_token": "cls",
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_max_tokens": "max",
    "pooling_mode_lasttoken": "lasttoken",
    "pooling_mode_weightedmean_tokens": "weightedmean",
    "pooling_mode_mean_sqrt_len_tokens": "mean_sqrt_len_tokens",
}
"""Switches of 1_Pooling/config.json -> what they pool; later releases name it in `pooling_mode`"""
MAX_MODULES = 20
"""Modules that are looked at; a model has two to five"""


@dataclass(frozen=True, slots=True)
class EmbeddingFolder:
    """What the files of an embedding model say."""

    folder: Path
    pooling: str
    """`cls`, `mean`, `lasttoken`, ...; empty where there is none, or several"""
    pooling_file: Path | None
    width: int | None
    """Of the embeddings that the pooling takes"""
    max_seq_length: int | None
    prompts: Mapping[str, str]
    """Prompts by name, none of them empty"""
    default_prompt: str | None
    """The name of the prompt that stands before every text"""
    missing_modules: tuple[str, ...]
    """Folders that modules.json names and that are not there"""


def read_embedding_folder(folder: Path) -> EmbeddingFolder | None:
    """The files of an embedding model; None if the folder is none."""
    modules = _read_or_none(folder / "modules.json")
    if not isinstance(modules, list):
        return None
    parts = [one for one in modules[:MAX_MODULES] if isinstance(one, dict)]
    pooling_folder = next(
        (str(one.get("path")) for one in parts if str(one.get("type")).endswith("Pooling")), None
    )
    file = None if pooling_folder is None else folder / pooling_folder / "config.json"
    pooling = {} if file is None else read_folder_object(file)
    own = read_folder_object(folder / "config_sentence_transformers.json")
    limit = read_folder_object(folder / "sentence_bert_config.json").get("max_seq_length")
    width = pooling.get("word_embedding_dimension", pooling.get("embedding_dimension"))
    default = own.get("default_prompt_name")
    return EmbeddingFolder(
        folder,
        _pooling_mode(pooling),
        file,
        width if type(width) is int else None,
        limit if type(limit) is int else None,
        _filled_texts(own.get("prompts")),
        default if isinstance(default, str) else None,
        tuple(_missing_modules(folder, parts)),
    )


def read_folder_object(file: Path) -> dict[str, Any]:
    """The JSON object in a file; empty where there is none that can be read."""
    value = _read_or_none(file)
    return value if isinstance(value, dict) else {}


def _read_or_none(file: Path) -> Any:
    """The JSON in a file; None where there is none that can be read."""
    try:
        return read_json(file, MODEL_FILE) if file.is_file() else None
    except (OSError, ValueError):
        return None


def _pooling_mode(settings: Mapping[str, Any]) -> str:
    """The one mode of pooling that is set; empty where there is none, or several."""
    named = settings.get("pooling_mode")
    if isinstance(named, str):
        return named
    modes = [mode for switch, mode in POOLING_MODES.items() if settings.get(switch) is True]
    return modes[0] if len(modes) == 1 else ""


def _filled_texts(value: Any) -> dict[str, str]:
    """The entries of an object that are texts, and not empty."""
    entries = value.items() if isinstance(value, dict) else ()
    return {name: text for name, text in entries if isinstance(text, str) and text}


def _missing_modules(folder: Path, parts: list[dict[str, Any]]) -> list[str]:
    """The folders of modules with settings of their own that are not there."""
    # A Normalize has no settings, and older releases save no folder for it.
    paths = [
        str(one["path"])
        for one in parts
        if one.get("path") and not str(one.get("type")).endswith("Normalize")
    ]
    return [path for path in paths if not (folder / path / "config.json").is_file()]
