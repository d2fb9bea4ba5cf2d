"""Finding a tokenizer folder, and reading the small files in it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from truetune.errors import TokenizerError
from truetune.parsing.json_reader import read_json as read_json_file
from truetune.parsing.limits import MODEL_FILE
from truetune.spec.near import near_path

TOKENIZER_FILES = (
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "chat_template.jinja",
    "chat_template.json",
    "vocab.json",
    "vocab.txt",
    "merges.txt",
    "tokenizer.model",
    "spiece.model",
)
MODEL_FILES = ("config.json", "generation_config.json")


def files_of(folder: Path, weights: Path) -> list[Path]:
    """The files that say what a tokenizer does, in order; `weights` is the folder of config.json."""
    named = [
        *(folder / name for name in TOKENIZER_FILES),
        *(weights / name for name in MODEL_FILES),
    ]
    return [path for path in named if path.is_file()] + sorted(
        (folder / "additional_chat_templates").glob("*.jinja")
    )


def locate(name: str) -> Path:
    """The folder that a path, a path to tokenizer.json, or the name of a model in the local hub cache means.

    Raises TokenizerError where there is none. The network is never asked.
    """
    path = Path(name).expanduser()
    if path.is_file():
        if path.name == "tokenizer.json":
            return path.parent
        raise TokenizerError(f"{name} is a file; a tokenizer is a folder with a tokenizer.json")
    if path.is_dir():
        return path
    cached = _find_in_hub_cache(name)
    if cached is not None:
        return cached
    hint = near_path(path) or _download_hint(name)
    raise TokenizerError(
        f"{name}: no such folder, and no model of that name in the local hub cache{hint}"
    )


def _find_in_hub_cache(name: str) -> Path | None:
    home = Path(os.environ.get("HF_HOME", "~/.cache/huggingface"))
    hub = Path(os.environ.get("HF_HUB_CACHE", home / "hub")).expanduser()
    model = hub / f"models--{name.replace('/', '--')}"
    main = model / "refs" / "main"
    if main.is_file() and (snapshot := model / "snapshots" / main.read_text().strip()).is_dir():
        return snapshot
    return max(
        (model / "snapshots").glob("*/"), key=lambda folder: folder.stat().st_mtime, default=None
    )


def read_json(path: Path) -> dict[str, Any] | None:
    """A JSON object; None where there is no file. Raises TokenizerError where it holds something else."""
    try:
        value = read_json_file(path, MODEL_FILE)
    except FileNotFoundError:
        return None
    except (ValueError, OSError) as error:
        raise TokenizerError(f"{path}: not JSON: {error}") from None
    if not isinstance(value, dict):
        raise TokenizerError(f"{path}: expected a JSON object, found {type(value).__name__}")
    return value


def read_templates(folder: Path, config: dict[str, Any]) -> dict[str, str]:
    """The chat templates by name. As in transformers, files of their own replace all that tokenizer_config.json has."""
    files = {
        path.stem: path for path in sorted((folder / "additional_chat_templates").glob("*.jinja"))
    }
    if (folder / "chat_template.jinja").is_file():
        files = {"default": folder / "chat_template.jinja", **files}
    if files:
        return {name: _read_text(path) for name, path in files.items()}
    inside = config.get("chat_template")
    if inside is None:
        inside = (read_json(folder / "chat_template.json") or {}).get("chat_template")
    try:
        found = {e["name"]: e["template"] for e in inside} if isinstance(inside, list) else inside
    except (KeyError, TypeError):
        found = {"default": None}
    found = {"default": found} if isinstance(found, str) else found or {}
    if not isinstance(found, dict) or not all(
        isinstance(part, str) for pair in found.items() for part in pair
    ):
        raise TokenizerError(
            f"{folder}: chat_template: expected a text, or a list of objects with name and template"
        )
    return found


def _read_text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise TokenizerError(f"{path}: not UTF-8 at byte {error.start}; save it as UTF-8") from None


def _download_hint(name: str) -> str:
    """How a model of the hub gets into the cache; its weights are not needed."""
    owner, slash, model = name.partition("/")
    named = (
        slash
        and owner
        and model
        and not {":", "\\", " "} & set(name)
        and "/" not in model
        and owner[0] not in ".~"
    )
    named = named and not Path(owner).exists()
    return (
        f"; fetch its small files: hf download {name} --include '*.json' '*.jinja' '*.txt'"
        " '*.model'"
        if named
        else ""
    )
