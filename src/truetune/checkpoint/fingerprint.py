"""A fingerprint of a base model, kept beside an adapter: digests of samples of its tensors.

adapter_config.json holds a name only. Two bases of one name and one shape (another revision, instruct and base, another
quantization) take the same adapter without a word.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from truetune.checkpoint.checkpoint import Checkpoint
from truetune.checkpoint.safetensors import Tensor

FILE = "base_fingerprint.json"
FORMAT = 1
TENSORS = 64
PLACES = 4
STRETCH = 1 << 14
"""Bytes at each place"""


def fingerprint(base: Checkpoint) -> dict[str, Any]:
    """Digests of up to 64 tensors, spread evenly over the names."""
    names = sorted(name for name, tensor in base.tensors.items() if tensor.whole and tensor.size)
    chosen = names[:: max(1, len(names) // TENSORS)][:TENSORS]
    tensors = {
        name: [
            base.tensors[name].dtype,
            list(base.tensors[name].shape),
            _digest(base.tensors[name]),
        ]
        for name in chosen
    }
    return {"format": FORMAT, "tensors": tensors}


def record_base(adapter: Path, base: Checkpoint) -> Path:
    """Write the fingerprint of the base beside an adapter. Raises OSError."""
    path = adapter / FILE
    path.write_text(json.dumps(fingerprint(base), indent=1), encoding="utf-8")
    return path


def differences(record: Mapping[str, Any], base: Checkpoint) -> tuple[list[str], int]:
    """What differs between a recorded fingerprint and a base, one text for each tensor, and how many were compared."""
    tensors = record.get("tensors") if record.get("format") == FORMAT else None
    found: list[str] = []
    entries = list(tensors.items())[:TENSORS] if isinstance(tensors, dict) else []
    for name, entry in entries:
        tensor = base.tensors.get(name)
        if tensor is None:
            found.append(f"{name} is not in this base")
        elif not isinstance(entry, list) or entry[:2] != [tensor.dtype, list(tensor.shape)]:
            found.append(f"{name} is {tensor.dtype} {list(tensor.shape)} in this base")
        elif entry[2:] != [_digest(tensor)]:
            found.append(f"{name} has other values in this base")
    return found, len(entries)


def _digest(tensor: Tensor) -> str:
    """blake2b over stretches that are spread evenly; empty where the file is cut off"""
    digest = hashlib.blake2b(digest_size=16)
    if not tensor.whole:
        return ""
    with tensor.file.open("rb") as file:
        for i in range(PLACES):
            file.seek(tensor.start + max(0, tensor.size - STRETCH) * i // (PLACES - 1))
            digest.update(file.read(min(STRETCH, tensor.size)))
    return digest.hexdigest()
