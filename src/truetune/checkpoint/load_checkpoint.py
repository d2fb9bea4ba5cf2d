"""Loads one saved model or adapter: headers and small files at once, values when they are asked
for.

The base of an adapter is looked for beside it and in the local hub cache, never on the network. The trade-off: parts
that read gigabytes are cached properties, so a rule that needs none of them costs nothing.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from truetune.checkpoint.compare_tensor_samples import SampledChange, compare_sampled_tensors
from truetune.checkpoint.find_base_model_in_nearby_folders import SavedModel, find_base_beside
from truetune.checkpoint.read_and_check_safetensors_header import StoredTensor
from truetune.checkpoint.read_run_and_check_checkpoints import read_run
from truetune.checkpoint.read_weight_files_and_faults import (
    FileFault,
    WeightFiles,
    read_json_object,
    read_weight_headers,
)
from truetune.checkpoint.scan_tensors_for_nan_zeros_and_constants import (
    MAX_SCANNED_BYTES,
    TensorValues,
    scan_tensor_values,
)
from truetune.checkpoint.tokens_added_beyond_base import NewTokens, find_new_tokens
from truetune.errors import UsageError
from truetune.settings.suggest_spelling import did_you_mean_path

if TYPE_CHECKING:
    from truetune.checkpoint.weight_diff import MovementManifest

Kind = Literal["model", "adapter"]
ADAPTER_FILES = ("adapter_config.json", "adapter_model.safetensors", "adapter_model.bin")
MODEL_FILES = ("config.json", "model.safetensors.index.json")
MANIFEST_FILE = "manifest.json"
# PATH_MAX of Linux: the system refuses a longer path.
MAX_NAME_CHARS = 4096
"""Longer ones name no folder."""


@dataclass(frozen=True)
class Checkpoint:
    """A saved model or adapter: the folder of its weights and small files. JSON files that are not
    there are empty.
    """

    folder: Path
    kind: Kind
    weights: WeightFiles
    config: Mapping[str, Any]
    adapter_config: Mapping[str, Any]
    generation_config: Mapping[str, Any]
    tokenizer_config: Mapping[str, Any]
    trainer_state: Mapping[str, Any]
    record: Mapping[str, Any]
    """What truetune wrote on the data that were trained on: manifest.json, of this folder or the one above, or the part
    `data` of run.json"""
    faults: tuple[FileFault, ...]
    """Of all files"""
    base: Checkpoint | None = None
    base_name: str | None = None
    """As the caller or adapter_config.json names it"""
    is_base_found_beside: bool = False
    """Is the base a folder near it that nothing names, known by its own name?"""
    budget: int = MAX_SCANNED_BYTES
    """Bytes of values that are read; beyond them, tensors are sampled"""
    adapter: Checkpoint | None = None
    """What was merged into the base to make this model, where that is known"""

    @property
    def tensors(self) -> dict[str, StoredTensor]:
        """The tensors by name, with where each is stored."""
        return self.weights.tensors

    @cached_property
    def run_record(self) -> dict[str, Any]:
        """run.json of `truetune train`, of this folder or, for a checkpoint, of the one above."""
        return read_run(self.folder)

    @cached_property
    def nan_inf_and_constant_counts(self) -> dict[str, TensorValues]:
        """Counts of NaN, infinity, zeros and constants in each floating-point tensor. Reads the
        files, up to `budget`.
        """
        return scan_tensor_values(self.tensors.values(), budget=self.budget)

    @cached_property
    def sampled_changes_from_base(self) -> dict[str, SampledChange]:
        """How far each tensor that the base has too is from the base's, by samples; empty without a
        base.
        """
        return (
            compare_sampled_tensors(self.tensors, self.base.tensors)
            if self.base is not None
            else {}
        )

    @cached_property
    def full_comparison_with_base(self) -> MovementManifest:
        """The comparison of all values with the base's, and where the adapter is known, with what
        it should have made of them.
        """
        from truetune.checkpoint.weight_diff import compare_weights

        return compare_weights(self, self.adapter)

    @cached_property
    def new_tokens(self) -> NewTokens | None:
        """The tokens that the base does not have; None where a tokenizer or the base is not there."""
        return find_new_tokens(self.folder, self.base.folder) if self.base is not None else None

    @property
    def has_weights(self) -> bool:
        """Is there a file of weights, or one that an index promises?"""
        return bool(self.weights.files or self.weights.pickled or self.weights.indexed)

    @property
    def total_tensor_bytes(self) -> int:
        """The bytes of all tensors."""
        return sum(tensor.size for tensor in self.tensors.values())

    @property
    def scanned_share_of_bytes(self) -> float:
        """The share of the bytes that `values` reads."""
        return min(1.0, self.budget / max(1, self.total_tensor_bytes))

    def has_file(self, name: str) -> bool:
        """Is there a file of this name in the folder?"""
        return (self.folder / name).is_file()


def is_checkpoint(folder: Path) -> bool:
    """Does a folder hold a saved model or adapter?"""
    return any((folder / name).is_file() for name in (*ADAPTER_FILES, *MODEL_FILES)) or any(
        folder.glob("*.safetensors")
    )


def read_checkpoint(
    folder: str | os.PathLike[str],
    *,
    base: str | os.PathLike[str] | None = None,
    budget: int = MAX_SCANNED_BYTES,
) -> Checkpoint:
    """Read the headers and small files of a folder, and of its base where that is available.

    `base` is a folder or the name of a model of the local hub cache; else adapter_config.json names it, or a folder
    beside it is its base by its name (`find_base_beside`). Raises
    UsageError where there is no checkpoint, or no base of the given name.
    """
    checkpoint = _read_headers_and_configs(_require_checkpoint_folder(folder), budget)
    base_path = os.fspath(base) if base is not None else None
    name = base_path or _recorded_base_name(checkpoint)
    candidate = find_model_folder(name, checkpoint.folder) if name else None
    # A base that the caller names must be there; one that adapter_config.json names may be on another machine.
    if base_path and candidate is None:
        raise UsageError(
            f"{base_path}: no such folder, and no model of that name in the local hub"
            f" cache{did_you_mean_path(base_path)}"
        )
    if candidate is None:
        candidate = find_base_beside(_facts_to_find_base_folder(checkpoint, name))
        name = name if candidate is None else str(candidate)
        checkpoint = replace(checkpoint, is_base_found_beside=candidate is not None)
    if candidate is None or candidate.resolve() == checkpoint.folder.resolve():
        return replace(checkpoint, base_name=name)
    if not is_checkpoint(candidate):
        if base_path:
            raise UsageError(
                f"{base_path}: holds no model; the base is a folder with config.json and safetensors"
                " files"
            )
        return replace(checkpoint, base_name=name)
    return replace(checkpoint, base=_read_headers_and_configs(candidate, budget), base_name=name)


def _facts_to_find_base_folder(checkpoint: Checkpoint, recorded_base: str | None) -> SavedModel:
    """What tells which of the folders beside a checkpoint is its base."""
    return SavedModel(
        checkpoint.folder,
        recorded_base,
        checkpoint.config,
        checkpoint.kind == "adapter",
        frozenset(size for tensor in checkpoint.tensors.values() for size in tensor.shape),
    )


def find_model_folder(name: str, beside: Path) -> Path | None:
    """The folder that a path or a name of the local hub cache means. The network is never asked."""
    path = Path(os.path.expanduser(name))
    for candidate in (path, beside / path, beside.parent / path):
        if os.path.isdir(candidate):
            return candidate
    # The hub's own layout: models--ORG--NAME/snapshots/REVISION, with the revision of `main` in refs/main.
    home = Path(os.environ.get("HF_HOME", "~/.cache/huggingface"))
    hub = Path(os.environ.get("HF_HUB_CACHE", home / "hub")).expanduser()
    model = hub / f"models--{name.replace('/', '--')}"
    main = model / "refs" / "main"
    if (
        os.path.isfile(main)
        and (snapshot := model / "snapshots" / main.read_text().strip()).is_dir()
    ):
        return snapshot
    if not os.path.isdir(model):
        return None
    return max(
        (model / "snapshots").glob("*/"),
        key=lambda candidate: candidate.stat().st_mtime,
        default=None,
    )


def _recorded_base_name(checkpoint: Checkpoint) -> str | None:
    """The name of the base that the config files record; None where they record none."""
    source = checkpoint.adapter_config.get("base_model_name_or_path") or checkpoint.config.get(
        "_name_or_path"
    )
    return source if isinstance(source, str) and 0 < len(source) < MAX_NAME_CHARS else None


def _require_checkpoint_folder(name: str | os.PathLike[str]) -> Path:
    """The folder of a saved model or adapter. Raises UsageError where there is none of that name."""
    folder = Path(os.path.expanduser(name))
    if not folder.is_dir():
        raise UsageError(
            f"{folder}: no such folder; name the folder of a saved model or"
            f" adapter{did_you_mean_path(folder)}"
        )
    if not is_checkpoint(folder):
        raise UsageError(f"{folder}: holds no config.json, adapter_config.json or safetensors file")
    return folder


def _read_headers_and_configs(folder: Path, budget: int) -> Checkpoint:
    """The checkpoint of a folder without its base: the headers of its weights, and its small files."""
    faults: list[FileFault] = []
    # A folder with both holds an adapter that was saved beside its model's config.json.
    kind: Kind = "adapter" if any((folder / name).is_file() for name in ADAPTER_FILES) else "model"
    weights = read_weight_headers(folder, adapter=kind == "adapter")

    def part(name: str) -> dict[str, Any]:
        return read_json_object(folder / name, faults) or {}

    return Checkpoint(
        folder=folder,
        kind=kind,
        weights=weights,
        config=part("config.json"),
        adapter_config=part("adapter_config.json"),
        generation_config=part("generation_config.json"),
        tokenizer_config=part("tokenizer_config.json"),
        trainer_state=part("trainer_state.json"),
        record=_read_data_record(folder),
        faults=(*weights.faults, *faults),
        budget=budget,
    )


def _read_data_record(folder: Path) -> dict[str, Any]:
    """The record of the data that a model was trained on, which `truetune` left in or above its
    folder; empty where there is none.
    """
    for candidate in (folder, folder.resolve().parent):
        checkpoint = read_json_object(candidate / MANIFEST_FILE, [])
        if checkpoint is not None and isinstance(checkpoint.get("inputs"), dict):
            return checkpoint
    data = read_run(folder).get("data")
    return data if isinstance(data, dict) and isinstance(data.get("inputs"), dict) else {}
