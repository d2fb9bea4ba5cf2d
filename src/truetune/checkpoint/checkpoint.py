"""Checkpoint: the files of one saved model or adapter."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from truetune.checkpoint.compare import Moved, moved
from truetune.checkpoint.files import Fault, Weights, read_object, read_weights
from truetune.checkpoint.run_record import read_run
from truetune.checkpoint.safetensors import Tensor
from truetune.checkpoint.tokens import NewTokens, new_tokens
from truetune.checkpoint.values import BUDGET, Values, scan
from truetune.errors import UsageError
from truetune.spec.near import near_path

if TYPE_CHECKING:
    from truetune.checkpoint.movement import Manifest

Kind = Literal["model", "adapter"]
ADAPTER_FILES = ("adapter_config.json", "adapter_model.safetensors", "adapter_model.bin")
MODEL_FILES = ("config.json", "model.safetensors.index.json")
RECORD = "manifest.json"
LONGEST_NAME = 4096
"""Longer ones name no folder."""


@dataclass(frozen=True)
class Checkpoint:
    """A folder of weights. JSON files that are not there are empty."""

    folder: Path
    kind: Kind
    weights: Weights
    config: Mapping[str, Any]
    adapter_config: Mapping[str, Any]
    generation_config: Mapping[str, Any]
    tokenizer_config: Mapping[str, Any]
    trainer_state: Mapping[str, Any]
    record: Mapping[str, Any]
    """What truetune wrote on the data that were trained on: manifest.json, of this folder or the one above, or the part
    `data` of run.json"""
    faults: tuple[Fault, ...]
    """Of all files"""
    base: Checkpoint | None = None
    base_name: str | None = None
    """As the caller or adapter_config.json names it"""
    budget: int = BUDGET
    """Bytes of values that are read; beyond them, tensors are sampled"""
    adapter: Checkpoint | None = None
    """What was merged into the base to make this model, where that is known"""

    @property
    def tensors(self) -> dict[str, Tensor]:
        return self.weights.tensors

    @cached_property
    def run(self) -> dict[str, Any]:
        """What `truetune train` wrote on the run: run.json, of this folder or, for a checkpoint, of the one above"""
        return read_run(self.folder)

    @cached_property
    def values(self) -> dict[str, Values]:
        """What is in each floating-point tensor. Reads the files, up to `budget`."""
        return scan(self.tensors.values(), budget=self.budget)

    @cached_property
    def moved(self) -> dict[str, Moved]:
        """How far each tensor that the base has too is from the base's; empty without a base"""
        return moved(self.tensors, self.base.tensors) if self.base is not None else {}

    @cached_property
    def manifest(self) -> Manifest:
        """All values against the base's, and where the adapter is known, against what it should have made of them"""
        from truetune.checkpoint.movement import manifest

        return manifest(self, self.adapter)

    @cached_property
    def new_tokens(self) -> NewTokens | None:
        """The tokens that the base does not have; None where a tokenizer or the base is not there"""
        return new_tokens(self.folder, self.base.folder) if self.base is not None else None

    @property
    def has_weights(self) -> bool:
        """Is there a file of weights, or one that an index promises?"""
        return bool(self.weights.files or self.weights.pickled or self.weights.indexed)

    @property
    def size(self) -> int:
        """Bytes of all tensors"""
        return sum(tensor.size for tensor in self.tensors.values())

    @property
    def sampled(self) -> float:
        """The share of the bytes that `values` looks at"""
        return min(1.0, self.budget / max(1, self.size))

    def has(self, name: str) -> bool:
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
    budget: int = BUDGET,
) -> Checkpoint:
    """Read the headers and small files of a folder, and of its base where that is at hand.

    `base` is a folder or the name of a model of the local hub cache; else adapter_config.json names it. Raises
    UsageError where there is no checkpoint, or no base of the given name.
    """
    found = _read(_folder(folder), budget)
    given = os.fspath(base) if base is not None else None
    name = given or _base_of(found)
    place = located(name, found.folder) if name else None
    if given and place is None:
        raise UsageError(
            f"{given}: no such folder, and no model of that name in the local hub"
            f" cache{near_path(given)}"
        )
    if place is None or place.resolve() == found.folder.resolve():
        return replace(found, base_name=name)
    if not is_checkpoint(place):
        if given:
            raise UsageError(
                f"{given}: holds no model; the base is a folder with config.json and safetensors"
                " files"
            )
        return replace(found, base_name=name)
    return replace(found, base=_read(place, budget), base_name=name)


def located(name: str, beside: Path) -> Path | None:
    """The folder that a path or a name of the local hub cache means. The network is never asked."""
    path = Path(os.path.expanduser(name))
    for place in (path, beside / path, beside.parent / path):
        if os.path.isdir(place):
            return place
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
        (model / "snapshots").glob("*/"), key=lambda place: place.stat().st_mtime, default=None
    )


def _base_of(found: Checkpoint) -> str | None:
    source = found.adapter_config.get("base_model_name_or_path") or found.config.get(
        "_name_or_path"
    )
    return source if isinstance(source, str) and 0 < len(source) < LONGEST_NAME else None


def _folder(name: str | os.PathLike[str]) -> Path:
    folder = Path(os.path.expanduser(name))
    if not folder.is_dir():
        raise UsageError(
            f"{folder}: no such folder; name the folder of a saved model or"
            f" adapter{near_path(folder)}"
        )
    if not is_checkpoint(folder):
        raise UsageError(f"{folder}: holds no config.json, adapter_config.json or safetensors file")
    return folder


def _read(folder: Path, budget: int) -> Checkpoint:
    faults: list[Fault] = []
    kind: Kind = "adapter" if any((folder / name).is_file() for name in ADAPTER_FILES) else "model"
    weights = read_weights(folder, adapter=kind == "adapter")

    def part(name: str) -> dict[str, Any]:
        return read_object(folder / name, faults) or {}

    return Checkpoint(
        folder=folder,
        kind=kind,
        weights=weights,
        config=part("config.json"),
        adapter_config=part("adapter_config.json"),
        generation_config=part("generation_config.json"),
        tokenizer_config=part("tokenizer_config.json"),
        trainer_state=part("trainer_state.json"),
        record=_record(folder),
        faults=(*weights.faults, *faults),
        budget=budget,
    )


def _record(folder: Path) -> dict[str, Any]:
    for place in (folder, folder.resolve().parent):
        found = read_object(place / RECORD, [])
        if found is not None and isinstance(found.get("inputs"), dict):
            return found
    data = read_run(folder).get("data")
    return data if isinstance(data, dict) and isinstance(data.get("inputs"), dict) else {}
