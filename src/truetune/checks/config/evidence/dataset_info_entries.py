"""The entries of LLaMA-Factory's dataset_info.json that a run names."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from truetune.checks.read_settings_in_launch_files import read_document_in_folder_or_parents
from truetune.settings.config import Config
from truetune.settings.stacks.config_draft import list_of_names
from truetune.settings.stacks.read_llama_factory_datasets import DATASET_INFO


def dataset_info_entries(config: Config) -> dict[str, Mapping[str, Any]]:
    """The entries of the training's data sets, by name; empty where dataset_info.json is not here."""
    folder = config.raw.get("dataset_dir", "data")
    entries: object = folder
    if not isinstance(folder, Mapping):
        document = read_document_in_folder_or_parents(
            Path(config.path).parent, f"{folder}/{DATASET_INFO}"
        )
        entries = document.value if document is not None else None
    if not isinstance(entries, Mapping):
        return {}
    named = {name: entries.get(name) for name in list_of_names(config.raw.get("dataset"))}
    return {name: entry for name, entry in named.items() if isinstance(entry, Mapping)}
