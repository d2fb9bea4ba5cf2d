"""Reads the JSON settings in a folder that a script loads a model from."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from truetune.parsing.input_limits import MODEL_FILE
from truetune.parsing.parse_json_within_limits import read_json


def read_folder_settings(file: Path) -> dict[str, Any]:
    """The settings in a file; empty where there are none that can be read.

    The path comes from a text of a script, which may be no path at all: too long, or with a null
    byte.
    """
    try:
        settings = read_json(file, MODEL_FILE) if file.is_file() else None
    except (OSError, ValueError):
        return {}
    return settings if isinstance(settings, dict) else {}


def is_model_folder(folder: Path) -> bool:
    """Does a folder hold a model's config.json?"""
    try:
        return (folder / "config.json").is_file()
    except (OSError, ValueError):
        return False
