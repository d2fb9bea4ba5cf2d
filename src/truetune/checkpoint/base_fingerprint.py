"""Makes a fingerprint of a base model, to be kept beside an adapter: digests of samples of its
tensors.

adapter_config.json holds a name only. Two bases of one name and one shape (another revision, instruct and base, another
quantization) take the same adapter without a word.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from truetune.checkpoint.load_checkpoint import Checkpoint
from truetune.checkpoint.read_and_check_safetensors_header import StoredTensor

FINGERPRINT_FILE = "base_fingerprint.json"
# Raise it where the digests change: a record of another format is compared with nothing.
FINGERPRINT_FORMAT = 1
# Chosen, not measured: 4 MiB are read in all; a fine-tune changes nearly all matrices, so that any few show it.
MAX_TENSORS = 64
PLACES_PER_TENSOR = 4
"""Places of a tensor that are read: its first and last bytes, and two between"""
STRETCH_BYTES = 1 << 14
"""Bytes at each place"""


def fingerprint_base(base: Checkpoint) -> dict[str, Any]:
    """The fingerprint of a base: digests of up to 64 tensors, spread evenly over the names."""
    names = sorted(name for name, tensor in base.tensors.items() if tensor.whole and tensor.size)
    # Spread over the sorted names, so that all layers are among them.
    chosen = names[:: max(1, len(names) // MAX_TENSORS)][:MAX_TENSORS]
    tensors = {
        name: [
            base.tensors[name].dtype,
            list(base.tensors[name].shape),
            _digest_tensor_samples(base.tensors[name]),
        ]
        for name in chosen
    }
    return {"format": FINGERPRINT_FORMAT, "tensors": tensors}


def write_base_fingerprint(adapter: Path, base: Checkpoint) -> Path:
    """Write the fingerprint of the base beside an adapter. Raises OSError."""
    path = adapter / FINGERPRINT_FILE
    path.write_text(json.dumps(fingerprint_base(base), indent=1), encoding="utf-8")
    return path


def base_differences_and_compared_count(
    record: Mapping[str, Any], base: Checkpoint
) -> tuple[list[str], int]:
    """(how a base differs from a recorded fingerprint, one text for each tensor; how many were
    compared).
    """
    tensors = record.get("tensors") if record.get("format") == FINGERPRINT_FORMAT else None
    texts: list[str] = []
    entries = list(tensors.items())[:MAX_TENSORS] if isinstance(tensors, dict) else []
    for name, entry in entries:
        tensor = base.tensors.get(name)
        if tensor is None:
            texts.append(f"{name} is not in this base")
        elif not isinstance(entry, list) or entry[:2] != [tensor.dtype, list(tensor.shape)]:
            texts.append(f"{name} is {tensor.dtype} {list(tensor.shape)} in this base")
        elif entry[2:] != [_digest_tensor_samples(tensor)]:
            texts.append(f"{name} has other values in this base")
    return texts, len(entries)


def _digest_tensor_samples(tensor: StoredTensor) -> str:
    """The digest (blake2b) of stretches of a tensor that are spread evenly; empty where the file is
    cut off.
    """
    digest = hashlib.blake2b(digest_size=16)
    # A file that is cut off has no last stretch; it is a fault of its own.
    if not tensor.whole:
        return ""
    with tensor.file.open("rb") as file:
        for i in range(PLACES_PER_TENSOR):
            file.seek(
                tensor.start + max(0, tensor.size - STRETCH_BYTES) * i // (PLACES_PER_TENSOR - 1)
            )
            digest.update(file.read(min(STRETCH_BYTES, tensor.size)))
    return digest.hexdigest()
