"""Writes a copy of an adapter with the names of tensors that an engine looks for: `truetune export ADAPTER --for vllm`.

The values are the same, byte for byte; only the beginning of the names changes. The copy is read back, and the table of
the engine's loader must say that all of it is served, before the folder gets its name. The trade-off: one beginning is
exchanged for another, which is what classes and releases of transformers differ in; whatever else an engine lacks takes
a merge.
"""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any

from truetune.checkpoint.adapter_tensor_names import PEFT_PREFIX
from truetune.checkpoint.load_checkpoint import Checkpoint, read_checkpoint
from truetune.checkpoint.read_and_check_safetensors_header import StoredTensor
from truetune.data.guard_output_folder import Input
from truetune.errors import UsageError
from truetune.serving.predict_adapter_service import predict_loading_or_raise
from truetune.training.atomic_folder import write_folder_atomically

ADAPTER_FILE = "adapter_model.safetensors"
CONFIG_FILE = "adapter_config.json"
HEADER_ALIGNMENT = 8
"""Bytes of the length of a safetensors header, and of what its values are aligned to"""
MERGE_IT = "merge it (truetune merge) and serve the merged model"


@dataclass(frozen=True)
class RenamedAdapter:
    """A copy of an adapter under other names."""

    folder: Path
    old: str
    """How the names began, behind `base_model.model.`"""
    new: str
    tensors: int


def rename_adapter_for_engine(
    adapter: str | PathLike[str],
    out: str | PathLike[str],
    engine: str,
    release: str,
    *,
    base: str | PathLike[str] | None = None,
) -> RenamedAdapter:
    """Write a copy of an adapter that the engine serves.

    Args:
        adapter: its folder, which is only read.
        out: a new folder.
        engine: `vllm`, ...
        release: of the engine.
        base: folder of the base, of which config.json is read; else adapter_config.json names it.

    Raises:
        UsageError: no rename is needed, none helps, the engine is not known, or the folder already exists.
    """
    checkpoint = read_checkpoint(adapter, base=base)
    loading = predict_loading_or_raise(checkpoint, engine, release)
    if loading.with_effect("served"):
        raise UsageError(
            f"{adapter}: {loading.engine_name} takes its names as they are: there is nothing to rename"
        )
    if not (checkpoint.folder / ADAPTER_FILE).is_file():
        raise UsageError(f"{adapter}: expected its tensors in {ADAPTER_FILE}; save it with peft")
    names = loading.serving_names
    if names is None or loading.is_refused_whatever_rank:
        raise UsageError(
            f"{adapter}: no rename makes {loading.engine_name} serve it; nothing was written: {MERGE_IT}"
        )
    inputs = [Input("the adapter", checkpoint.folder)]
    inputs += [Input("the base model", checkpoint.base.folder)] if checkpoint.base else []
    folder = Path(out)
    with write_folder_atomically(folder, size=checkpoint.total_tensor_bytes, inputs=inputs) as part:
        _write_renamed(checkpoint, part, *names)
        copy = read_checkpoint(part, base=checkpoint.base.folder if checkpoint.base else None)
        again = predict_loading_or_raise(copy, engine, release)
        is_served = len(again.with_effect("served")) == len(checkpoint.tensors)
        if not is_served or not _have_same_bytes(checkpoint, copy):
            raise UsageError(
                f"{folder}: the copy is not as it should be; nothing was left: {MERGE_IT}"
            )
    return RenamedAdapter(folder, *names, len(checkpoint.tensors))


def _write_renamed(adapter: Checkpoint, folder: Path, old: str, new: str) -> None:
    """Write the tensors under their new names, one after the other, and the settings as they are."""
    before = PEFT_PREFIX + old
    tensors = sorted(adapter.tensors.values(), key=lambda tensor: tensor.start)
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    end = 0
    for tensor in tensors:
        name = PEFT_PREFIX + new + tensor.name.removeprefix(before)
        offsets = [end, end + tensor.size]
        header[name] = {"dtype": tensor.dtype, "shape": list(tensor.shape), "data_offsets": offsets}
        end += tensor.size
    text = json.dumps(header, separators=(",", ":")).encode("utf-8")
    # Readers that map the file into memory want the values at multiples of 8 bytes.
    text += b" " * (-len(text) % HEADER_ALIGNMENT)
    with (folder / ADAPTER_FILE).open("wb") as file:
        file.write(len(text).to_bytes(HEADER_ALIGNMENT, "little") + text)
        for tensor in tensors:
            file.write(_read_bytes(tensor))
    shutil.copyfile(adapter.folder / CONFIG_FILE, folder / CONFIG_FILE)


def _have_same_bytes(adapter: Checkpoint, copy: Checkpoint) -> bool:
    """Are the values of a copy, in their order in the file, those of the adapter?"""
    one, other = (
        sorted(checkpoint.tensors.values(), key=lambda tensor: tensor.start)
        for checkpoint in (adapter, copy)
    )
    return len(one) == len(other) and all(
        (a.dtype, a.shape) == (b.dtype, b.shape) and _read_bytes(a) == _read_bytes(b)
        for a, b in zip(one, other, strict=True)
    )


def _read_bytes(tensor: StoredTensor) -> bytes:
    """The bytes of a tensor, as they lie in its file."""
    with tensor.file.open("rb") as file:
        file.seek(tensor.start)
        return file.read(tensor.size)
