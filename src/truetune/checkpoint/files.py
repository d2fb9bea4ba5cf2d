"""The weight files of a folder: which there are, which of them are read, and what is wrong with them."""

from __future__ import annotations

import stat
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from truetune.checkpoint.safetensors import BrokenFile, Tensor, read_header
from truetune.parsing.json_reader import read_json
from truetune.parsing.limits import MODEL_FILE

ADAPTER = "adapter_model.safetensors"
MODEL = "model.safetensors"
INDEX = "model.safetensors.index.json"
PICKLED = (".bin", ".pt", ".pth", ".ckpt")
"""Python's pickle runs code when it is opened, so these never are."""
WEIGHTS = ("adapter_model*", "pytorch_model*", "model*", "consolidated*")
MOST_SHARDS = 10_000


@dataclass(frozen=True, slots=True)
class Fault:
    """Something that is wrong with one file."""

    file: str
    text: str


@dataclass(frozen=True)
class Weights:
    """The tensors of a folder."""

    tensors: dict[str, Tensor]
    files: dict[str, int]
    """The safetensors files that were read, with their bytes"""
    pickled: dict[str, int]
    """Weight files that are pickles, with their bytes; not read"""
    faults: tuple[Fault, ...]
    indexed: dict[str, str]
    """Tensor -> file, by the index; empty where there is none"""


def read_weights(folder: Path, *, adapter: bool) -> Weights:
    """The headers of all files that a loader would take. What can't be read is a fault, never an exception."""
    faults: list[Fault] = []
    indexed = {} if adapter or (folder / MODEL).is_file() else _index(folder, faults)
    promised: dict[str, list[str]] = {}
    for tensor, file in indexed.items():
        promised.setdefault(file, []).append(tensor)
    tensors: dict[str, Tensor] = {}
    files: dict[str, int] = {}
    for name in _names(folder, adapter, indexed):
        path = folder / name
        if not path.is_file():
            count = len(promised.get(name, ()))
            faults.append(Fault(name, f"missing; {INDEX} says that {count:,} tensors are in it"))
            continue
        try:
            files[name] = path.stat().st_size
            header = read_header(path)
        except (BrokenFile, OSError) as error:
            faults.append(Fault(name, str(error)))
            continue
        faults += [Fault(name, text) for text in header.faults]
        twice = [tensor.name for tensor in header.tensors if tensor.name in tensors]
        if twice:
            faults.append(
                Fault(
                    name,
                    f"{len(twice):,} tensors are in an earlier file too, the first is {twice[0]}",
                )
            )
        tensors |= {tensor.name: tensor for tensor in header.tensors}
        known = {tensor.name for tensor in header.tensors}
        absent = [tensor for tensor in promised.get(name, ()) if tensor not in known]
        if absent:
            text = (
                f"{INDEX} says that {len(absent):,} tensors are in it that are not, the first is"
                f" {absent[0][:80]}"
            )
            faults.append(Fault(name, text))
    return Weights(tensors, files, _pickled(folder, adapter), tuple(faults), indexed)


def read_object(path: Path, faults: list[Fault]) -> dict[str, Any] | None:
    """A JSON object within the limits for a file of a model; None where there is none.

    Something else is a fault.
    """
    try:
        known = path.stat()
        if not stat.S_ISREG(known.st_mode):
            raise ValueError("it is no file")
        if known.st_size > MODEL_FILE.max_bytes:
            raise ValueError(f"{known.st_size:,} bytes, too long to be read")
        value = read_json(path, MODEL_FILE)
        if not isinstance(value, dict):
            raise ValueError(f"expected an object, found {type(value).__name__}")
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (ValueError, OSError) as error:
        faults.append(Fault(path.name, f"not a JSON object: {error}"))
        return None
    return value


def _names(folder: Path, adapter: bool, indexed: dict[str, str]) -> list[str]:
    """The files that a loader would take."""
    if adapter:
        return [ADAPTER] if (folder / ADAPTER).is_file() else []
    if (folder / MODEL).is_file():
        return [MODEL]
    if indexed:
        return sorted(set(indexed.values()))[:MOST_SHARDS]
    return sorted(
        path.name
        for path in folder.glob("*.safetensors")
        if not path.name.startswith("adapter_model")
    )


def _index(folder: Path, faults: list[Fault]) -> dict[str, str]:
    value = read_object(folder / INDEX, faults)
    if value is None:
        return {}
    table = value.get("weight_map")
    if not isinstance(table, dict) or not all(
        isinstance(file, str) and _plain(file) for file in table.values()
    ):
        faults.append(
            Fault(INDEX, "weight_map does not name a file of this folder for each tensor")
        )
        return {}
    return table


def _plain(file: str) -> bool:
    """The name of a file in the same folder"""
    return Path(file).name == file and file.endswith(".safetensors")


def _pickled(folder: Path, adapter: bool) -> dict[str, int]:
    pattern = WEIGHTS[:1] if adapter else WEIGHTS[1:]
    found = sorted(path for glob in pattern for path in folder.glob(glob) if path.suffix in PICKLED)
    return {path.name: path.stat().st_size for path in found if path.is_file()}
