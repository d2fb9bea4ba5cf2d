"""Reads which weight files a folder has, which of them a loader takes, and what is wrong with them.

What can't be read is a fault, never an exception: a broken checkpoint is what a check is for. Pickles are never opened.
"""

from __future__ import annotations

import stat
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from truetune.checkpoint.read_and_check_safetensors_header import (
    BrokenFile,
    SafetensorsHeader,
    StoredTensor,
    read_safetensors_header,
)
from truetune.parsing.input_limits import MODEL_FILE
from truetune.parsing.parse_json_within_limits import read_json

ADAPTER_FILE = "adapter_model.safetensors"
SINGLE_MODEL_FILE = "model.safetensors"
INDEX_FILE = "model.safetensors.index.json"
PICKLE_SUFFIXES = (".bin", ".pt", ".pth", ".ckpt")
"""Python's pickle runs code when it is opened, so these never are."""
WEIGHT_PATTERNS = ("adapter_model*", "pytorch_model*", "model*", "consolidated*")
# Chosen, not measured: the largest models have some hundred; an index of millions would keep us opening files.
MAX_SHARDS = 10_000


@dataclass(frozen=True, slots=True)
class FileFault:
    """Something that is wrong with one file."""

    file: str
    text: str


@dataclass(frozen=True)
class WeightFiles:
    """The tensors of all weight files in a folder, and what is wrong with the files."""

    tensors: dict[str, StoredTensor]
    files: dict[str, int]
    """The safetensors files that were read, with their bytes"""
    pickled: dict[str, int]
    """Weight files that are pickles, with their bytes; not read"""
    faults: tuple[FileFault, ...]
    indexed: dict[str, str]
    """Tensor -> file, by the index; empty where there is none"""


def read_weight_headers(folder: Path, *, adapter: bool) -> WeightFiles:
    """The headers of all files that a loader would take. What can't be read is a fault, never an exception."""
    faults: list[FileFault] = []
    indexed = (
        {} if adapter or (folder / SINGLE_MODEL_FILE).is_file() else _read_index(folder, faults)
    )
    promised = _group_by_file(indexed)
    tensors: dict[str, StoredTensor] = {}
    files: dict[str, int] = {}
    for name in _list_loaded_files(folder, adapter, indexed):
        path = folder / name
        if not path.is_file():
            count = len(promised.get(name, ()))
            faults.append(
                FileFault(name, f"missing; {INDEX_FILE} says that {count:,} tensors are in it")
            )
            continue
        try:
            files[name] = path.stat().st_size
            header = read_safetensors_header(path)
        except (BrokenFile, OSError) as error:
            faults.append(FileFault(name, str(error)))
            continue
        faults += [FileFault(name, text) for text in header.faults]
        twice = [tensor.name for tensor in header.tensors if tensor.name in tensors]
        if twice:
            faults.append(
                FileFault(
                    name,
                    f"{len(twice):,} tensors are in an earlier file too, the first is {twice[0]}",
                )
            )
        tensors |= {tensor.name: tensor for tensor in header.tensors}
        faults += _find_absent_tensors(name, header, promised.get(name, []))
        faults += _find_unnamed_tensors(name, header, indexed)
    return WeightFiles(tensors, files, _find_pickles(folder, adapter), tuple(faults), indexed)


def _group_by_file(indexed: dict[str, str]) -> dict[str, list[str]]:
    """File -> the tensors that the index says are in it."""
    promised: dict[str, list[str]] = {}
    for tensor, file in indexed.items():
        promised.setdefault(file, []).append(tensor)
    return promised


def _find_absent_tensors(
    file: str, header: SafetensorsHeader, promised: list[str]
) -> list[FileFault]:
    """A fault where a file lacks tensors that the index promises: loaders leave those at random, with a warning."""
    present = {tensor.name for tensor in header.tensors}
    absent = [tensor for tensor in promised if tensor not in present]
    if not absent:
        return []
    text = (
        f"{INDEX_FILE} says that {len(absent):,} tensors are in it that are not, the first is"
        f" {absent[0][:80]}"
    )
    return [FileFault(file, text)]


def _find_unnamed_tensors(
    file: str, header: SafetensorsHeader, indexed: dict[str, str]
) -> list[FileFault]:
    """A fault where a file has tensors that the index does not name: loaders that go by it leave them at random."""
    unnamed = [tensor.name for tensor in header.tensors if tensor.name not in indexed]
    if not indexed or not unnamed:
        return []
    text = (
        f"{len(unnamed):,} tensors are in it that {INDEX_FILE} does not name, so loaders that go by it take them as"
        f" missing; the first is {unnamed[0][:80]}"
    )
    return [FileFault(file, text)]


def read_json_object(path: Path, faults: list[FileFault]) -> dict[str, Any] | None:
    """A JSON object from a file, within the limits for a file of a model; None where there is none.

    Something else in the file is a fault, and is added to `faults`.
    """
    try:
        status = path.stat()
        # A pipe or device of that name would keep us reading for ever.
        if not stat.S_ISREG(status.st_mode):
            raise ValueError("it is no file")
        if status.st_size > MODEL_FILE.max_bytes:
            raise ValueError(f"{status.st_size:,} bytes, too long to be read")
        value = read_json(path, MODEL_FILE)
        if not isinstance(value, dict):
            raise ValueError(f"expected an object, found {type(value).__name__}")
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (ValueError, OSError) as error:
        faults.append(FileFault(path.name, f"not a JSON object: {error}"))
        return None
    return value


def _list_loaded_files(folder: Path, adapter: bool, indexed: dict[str, str]) -> list[str]:
    """The files that a loader would take."""
    if adapter:
        return [ADAPTER_FILE] if (folder / ADAPTER_FILE).is_file() else []
    # In the order of transformers' loader: the single file, then the index. Without either, all that is there.
    if (folder / SINGLE_MODEL_FILE).is_file():
        return [SINGLE_MODEL_FILE]
    if indexed:
        return sorted(set(indexed.values()))[:MAX_SHARDS]
    return sorted(
        path.name
        for path in folder.glob("*.safetensors")
        if not path.name.startswith("adapter_model")
    )


def _read_index(folder: Path, faults: list[FileFault]) -> dict[str, str]:
    """Tensor -> file, by the index; empty, with a fault, where it names a file elsewhere."""
    value = read_json_object(folder / INDEX_FILE, faults)
    if value is None:
        return {}
    table = value.get("weight_map")
    if not isinstance(table, dict) or not all(
        isinstance(file, str) and _is_plain_file_name(file) for file in table.values()
    ):
        faults.append(
            FileFault(INDEX_FILE, "weight_map does not name a file of this folder for each tensor")
        )
        return {}
    return table


def _is_plain_file_name(file: str) -> bool:
    """Does a name mean a file in the same folder?"""
    return Path(file).name == file and file.endswith(".safetensors")


def _find_pickles(folder: Path, adapter: bool) -> dict[str, int]:
    """Name -> bytes of the weight files that are pickles."""
    pattern = WEIGHT_PATTERNS[:1] if adapter else WEIGHT_PATTERNS[1:]
    paths = sorted(
        path for glob in pattern for path in folder.glob(glob) if path.suffix in PICKLE_SUFFIXES
    )
    return {path.name: path.stat().st_size for path in paths if path.is_file()}
