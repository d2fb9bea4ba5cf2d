"""Finding a tokenizer folder, and reading the small files in it.

Names are looked up as transformers does (a folder, a tokenizer.json, the local hub cache), and chat templates in its
order, so that truetune judges the template that training will use. The trade-off: the hub itself is never asked. A
model that is not in the cache is an error with the command that fetches it, where transformers would download it.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from truetune.errors import TokenizerError
from truetune.parsing.input_limits import MODEL_FILE
from truetune.parsing.parse_json_within_limits import read_json as read_json_file
from truetune.settings.suggest_spelling import did_you_mean_path

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
VOCABULARY_PATTERNS = (
    "tokenizer*.json",
    "vocab*",
    "*.model",
    "*.tiktoken",
    "*.spm",
    "tekken.json",
    "tokenization_*.py",
)
"""What one file of a folder with a tokenizer looks like: a vocabulary, or code or settings that make one"""
MODEL_FILES = ("config.json", "generation_config.json")


def tokenizer_and_model_files(folder: Path, weights: Path) -> list[Path]:
    """The files that say what a tokenizer does, in order; `weights` is the folder of config.json."""
    named = [
        *(folder / name for name in TOKENIZER_FILES),
        *(weights / name for name in MODEL_FILES),
    ]
    return [path for path in named if path.is_file()] + sorted(
        (folder / "additional_chat_templates").glob("*.jinja")
    )


def lacks_tokenizer(folder: Path) -> bool:
    """Has a folder no file of a tokenizer? Of a config.json alone transformers makes an empty one, with no word."""
    try:
        return not any(next(folder.glob(one), None) for one in VOCABULARY_PATTERNS)
    except OSError:
        return False


def find_tokenizer_folder(name: str) -> Path:
    """The folder that a path, a path to tokenizer.json, or the name of a model in the local hub cache means.

    Raises TokenizerError where there is none. The network is never asked.
    """
    # A path first, as in transformers: a folder `owner/model` here wins over a model of that name.
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
    hint = did_you_mean_path(path) or _download_hint(name)
    raise TokenizerError(
        f"{name}: no such folder, and no model of that name in the local hub cache{hint}"
    )


def _find_in_hub_cache(name: str) -> Path | None:
    """The snapshot of a model in the local hub cache; None where it is not there."""
    home = Path(os.environ.get("HF_HOME", "~/.cache/huggingface"))
    hub = Path(os.environ.get("HF_HUB_CACHE", home / "hub")).expanduser()
    model = hub / f"models--{name.replace('/', '--')}"
    main = model / "refs" / "main"
    if main.is_file():
        snapshot = model / "snapshots" / main.read_text().strip()
        if snapshot.is_dir():
            return snapshot
    # Fetched by a revision, there is no ref of main: the snapshot that came last is the best guess.
    snapshots = (model / "snapshots").glob("*/")
    return max(snapshots, key=lambda folder: folder.stat().st_mtime, default=None)


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
    # chat_template.json is the form that processors of vision models are saved in.
    inside = config.get("chat_template")
    if inside is None:
        inside = (read_json(folder / "chat_template.json") or {}).get("chat_template")
    templates = _templates_in(inside)
    if templates is None:
        raise TokenizerError(
            f"{folder}: chat_template: expected a text, or a list of objects with name and template"
        )
    return templates


def read_default_templates_by_file(folder: Path, config: dict[str, Any]) -> dict[str, str]:
    """The default chat template of each file that holds one, in the order in which transformers looks.

    Args:
        folder: of the tokenizer.
        config: its tokenizer_config.json.

    Raises:
        TokenizerError: a file is not UTF-8, or no JSON.
    """
    jinja = folder / "chat_template.jinja"
    found = {jinja.name: {"default": _read_text(jinja)}} if jinja.is_file() else {}
    found["tokenizer_config.json"] = _templates_in(config.get("chat_template")) or {}
    of_processor = read_json(folder / "chat_template.json") or {}
    found["chat_template.json"] = _templates_in(of_processor.get("chat_template")) or {}
    return {file: named["default"] for file, named in found.items() if "default" in named}


def _templates_in(value: Any) -> dict[str, str] | None:
    """The templates by name that a key `chat_template` holds; None where it is of no form that is known.

    A text is the template `default`; a list of {"name", "template"} is what transformers wrote for models with several.
    """
    if isinstance(value, str):
        return {"default": value}
    if not value:
        return {}
    if isinstance(value, list):
        try:
            value = {entry["name"]: entry["template"] for entry in value}
        except (KeyError, TypeError):
            return None
    if not isinstance(value, dict):
        return None
    are_texts = all(isinstance(k, str) and isinstance(v, str) for k, v in value.items())
    return value if are_texts else None


def _read_text(path: Path) -> str:
    """A file as UTF-8. Raises TokenizerError where it is not."""
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise TokenizerError(f"{path}: not UTF-8 at byte {error.start}; save it as UTF-8") from None


def _download_hint(name: str) -> str:
    """How a model of the hub gets into the cache; its weights are not needed."""
    if not _looks_like_hub_name(name):
        return ""
    return (
        f"; fetch its small files: hf download {name} --include '*.json' '*.jinja' '*.txt'"
        " '*.model'"
    )


def _looks_like_hub_name(name: str) -> bool:
    """Is it `owner/model`, and no path: not relative, not of Windows, not below a folder that is here?"""
    owner, _, model = name.partition("/")
    if not owner or not model or "/" in model:
        return False
    if {":", "\\", " "} & set(name) or owner[0] in ".~":
        return False
    return not Path(owner).exists()
