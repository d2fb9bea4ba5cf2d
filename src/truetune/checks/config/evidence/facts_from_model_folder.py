"""What is known about the model of a run from its folder: config.json and the headers of its weights.

Only headers and samples are read, so that a model of any size takes a moment. A missing shard makes the shapes
unknown: a module that is not found could stand in it.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from truetune.errors import TokenizerError
from truetune.parsing.input_limits import MODEL_FILE, TENSOR_HEADER
from truetune.parsing.parse_json_within_limits import parse_json
from truetune.parsing.parse_json_within_limits import read_json as read_json_file
from truetune.render.find_tokenizer_folder import find_tokenizer_folder, read_json
from truetune.settings.config import Config

DTYPES = {"F32": "<f4", "F16": "<f2", "BF16": "<u2"}
# Chosen, not measured: all linear layers of a model with 100 layers are about 700 tensors.
MAX_TENSORS = 1_000
MIN_WEIGHTS = 1_000
"""Values that a statement on the weights needs"""


def local_model_folder(config: Config) -> Path | None:
    """The folder of the model; None where it is not on this machine."""
    for name in (config.spec.model, config.spec.tokenizer):
        if name:
            try:
                return find_tokenizer_folder(name)
            except (TokenizerError, OSError, ValueError):
                continue
    return None


def model_config(config: Config) -> dict[str, Any]:
    """config.json of the model; empty where it is not available."""
    where = local_model_folder(config)
    try:
        return (read_json(where / "config.json") or {}) if where else {}
    except TokenizerError:
        return {}


def stored_dtype(config: Config) -> str | None:
    """The dtype that the checkpoint's weights are stored in, by config.json: `bfloat16`; None where
    it is not named.
    """
    config_json = model_config(config)
    for part in (config_json, config_json.get("text_config")):
        if isinstance(part, dict) and isinstance(
            dtype := part.get("dtype") or part.get("torch_dtype"), str
        ):
            return dtype
    return None


def tensor_shapes(config: Config) -> Mapping[str, tuple[int, ...]]:
    """Shape of each tensor by its name; empty where there are no safetensors here, or a shard is missing."""
    where = local_model_folder(config)
    if where is None:
        return {}
    files = sorted(where.glob("*.safetensors"))
    index = where / "model.safetensors.index.json"
    try:
        if index.is_file():
            named = {str(name) for name in read_json_file(index, MODEL_FILE)["weight_map"].values()}
            if not named <= {path.name for path in files}:
                return {}
        return {
            name: shape
            for path in files
            for name, shape in _tensor_shapes_of_file(path, path.stat().st_mtime_ns).items()
        }
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return {}


@lru_cache(maxsize=64)
def _tensor_shapes_of_file(path: Path, _changed: int) -> Mapping[str, tuple[int, ...]]:
    """The shape of each tensor by its name; a file that changed is read again."""
    with path.open("rb") as file:
        header = _read_safetensors_header(file)[0]
    return {name: tuple(entry["shape"]) for name, entry in header.items() if name != "__metadata__"}


def _read_safetensors_header(file: IO[bytes]) -> tuple[dict[str, Any], int]:
    """Read the header of a safetensors file, and its length. Raises ValueError, and OSError as
    reading does.
    """
    length = int.from_bytes(file.read(8), "little")
    if length > TENSOR_HEADER.max_bytes:
        raise ValueError(f"a header of {length:,} bytes")
    header = parse_json(file.read(length), TENSOR_HEADER)
    if not isinstance(header, dict):
        raise ValueError("the header is no JSON object")
    return header, length


def linear_module_shapes(config: Config) -> Mapping[str, tuple[int, ...]]:
    """Modules that hold a weight matrix, by name, with its shape: what LoRA can be put on."""
    return {
        name.removesuffix(".weight"): shape
        for name, shape in tensor_shapes(config).items()
        if name.endswith(".weight") and len(shape) == 2
    }


def sample_linear_weights(config: Config) -> NDArray[np.float32] | None:
    """Some thousand weights of each linear layer of the first file, zeros left out; None where there are none here."""
    where = local_model_folder(config)
    path = next(iter(sorted(where.glob("*.safetensors"))), None) if where else None
    if path is None:
        return None
    try:
        with path.open("rb") as file:
            header, length = _read_safetensors_header(file)
            parts = [
                _sample_tensor(path, 8 + length, entry)
                for name, entry in list(header.items())[:MAX_TENSORS]
                if name.endswith(".weight")
                and len(entry["shape"]) == 2
                and entry["dtype"] in DTYPES
            ]
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None
    values = np.concatenate(parts) if parts else np.zeros(0, np.float32)
    values = values[np.isfinite(values) & (values != 0)]
    return values if values.size >= MIN_WEIGHTS else None


def _sample_tensor(path: Path, start: int, entry: Any) -> NDArray[np.float32]:
    """Some weights of one tensor, from its place in the file."""
    count = int(np.prod(entry["shape"]))
    stored = np.memmap(
        path,
        DTYPES[entry["dtype"]],
        mode="r",
        offset=start + entry["data_offsets"][0],
        shape=(count,),
    )
    values = np.asarray(stored[:: max(1, count // 2_000)])
    if entry["dtype"] == "BF16":
        return (values.astype(np.uint32) << 16).view(np.float32)
    return values.astype(np.float32)


def is_head_tied(config: Config) -> bool | None:
    """Does the head share the embedding's weights? None where it cannot be told."""
    there = tensor_shapes(config)
    if any(name.endswith("embed_tokens.weight") for name in there):
        return not any(name.endswith("lm_head.weight") for name in there)
    config_json = model_config(config)
    part = config_json.get("text_config")
    for one in (config_json, part if isinstance(part, dict) else {}):
        if isinstance(one.get("tie_word_embeddings"), bool):
            return bool(one["tie_word_embeddings"])
    return None
