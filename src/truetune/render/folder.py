"""Finding a tokenizer folder, and reading the small files in it."""

from __future__ import annotations

import difflib
import json
import os
from pathlib import Path
from typing import Any

from truetune.errors import TokenizerError


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
    cached = _cached(name)
    if cached is not None:
        return cached
    siblings = [p.name for p in path.parent.iterdir()] if path.parent.is_dir() else []
    near = difflib.get_close_matches(path.name, siblings, n=1)
    hint = f"; did you mean {path.parent / near[0]}?" if near else ""
    raise TokenizerError(f"{name}: no such folder, and no model of that name in the local hub cache{hint}")


def _cached(name: str) -> Path | None:
    home = Path(os.environ.get("HF_HOME", Path.home() / ".cache" / "huggingface"))
    hub = Path(os.environ.get("HF_HUB_CACHE", home / "hub"))
    model = hub / f"models--{name.replace('/', '--')}"
    main = model / "refs" / "main"
    if main.is_file() and (snapshot := model / "snapshots" / main.read_text().strip()).is_dir():
        return snapshot
    if not (model / "snapshots").is_dir():
        return None
    return max((model / "snapshots").iterdir(), key=lambda folder: folder.stat().st_mtime, default=None)


def read_json(path: Path) -> dict[str, Any] | None:
    """A JSON object; None where there is no file. Raises TokenizerError where it holds something else."""
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except (ValueError, OSError) as error:
        raise TokenizerError(f"{path}: not JSON: {error}") from None
    if not isinstance(value, dict):
        raise TokenizerError(f"{path}: expected a JSON object, found {type(value).__name__}")
    return value


def read_templates(folder: Path, config: dict[str, Any]) -> dict[str, str]:
    """The chat templates by name. A file of its own wins over tokenizer_config.json, as in transformers."""
    found: dict[str, str] = {}
    inside = config.get("chat_template")
    if isinstance(inside, str):
        found["default"] = inside
    elif isinstance(inside, list):
        found.update({str(entry["name"]): str(entry["template"]) for entry in inside if isinstance(entry, dict)})
    elif isinstance(inside, dict):
        found.update({str(name): str(template) for name, template in inside.items()})
    processor = read_json(folder / "chat_template.json") or {}
    if isinstance(processor.get("chat_template"), str):
        found["default"] = processor["chat_template"]
    if (folder / "chat_template.jinja").is_file():
        found["default"] = _text(folder / "chat_template.jinja")
    for path in sorted((folder / "additional_chat_templates").glob("*.jinja")):
        found[path.stem] = _text(path)
    return found


def _text(path: Path) -> str:
    try:
        return path.read_bytes().decode("utf-8")
    except UnicodeDecodeError as error:
        raise TokenizerError(f"{path}: not UTF-8 at byte {error.start}; save it as UTF-8") from None
