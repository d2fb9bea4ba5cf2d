"""Loads a saved model, or an adapter on its base, with transformers and peft, and raises an error where any weight is
missing.

Both packages load what they find and make the rest at random, with a warning at most. Answers of such a model would be
judged as the user's, so whatever is missing is an error here. Nothing is downloaded, and code in a model's folder is
not run unless the user says so.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Collection
from pathlib import Path
from typing import Any

import torch
import transformers
from safetensors import SafetensorError

from truetune.checkpoint.adapter_tensor_names import (
    BASE_LAYER,
    find_replacement_tensors,
    parse_adapter_tensor,
)
from truetune.checkpoint.find_input_embedding_and_output_head import EMBEDDING_NAMES, find_embedding
from truetune.checkpoint.load_checkpoint import Checkpoint, read_checkpoint
from truetune.errors import UsageError

SHOWN_NAMES = 3
"""Names of tensors in a message"""
MAX_ERROR_CHARACTERS = 400
"""Of another package's message that ours shows"""
EMBEDDING_MULTIPLE = 64
"""To which the rows of an embedding are rounded up: trainers pad to it, and what they saved must have room"""
LOADING_ERRORS = (
    OSError,
    ValueError,
    ImportError,
    RuntimeError,
    KeyError,
    TypeError,
    AttributeError,
    SafetensorError,
)
"""What transformers and peft raise for files that they can't read"""
MISSING_KEYS_WARNING = "missing adapter keys"
"""Words of peft's warning that weights of an adapter are not in its file"""
OWN_CODE_ERROR = "contains custom code"
"""Words of transformers' error for a model with code of its own"""


def model_class(base: Checkpoint) -> Any:
    """The class that config.json names, where transformers has it; else the one for causal language models."""
    names = base.config.get("architectures")
    name = names[0] if isinstance(names, list) and names and isinstance(names[0], str) else ""
    return getattr(transformers, name, transformers.AutoModelForCausalLM)


def adapter_vocabulary(adapter: Checkpoint) -> int | None:
    """How many tokens an adapter's embedding has; None where the base's is enough."""
    tensors = adapter.tensors
    copies = {
        parse_adapter_tensor(t).whole: t
        for name, t in tensors.items()
        if f".{BASE_LAYER}.weight" in name
    }
    # Embeddings are saved whole by `modules_to_save`, or as LoRA layers with a copy of the base weight.
    whole = {**find_replacement_tensors(tensors), **copies}
    own = next((tensor for name, tensor in whole.items() if name.endswith(EMBEDDING_NAMES)), None)
    if own is not None:
        return own.shape[0]
    # An adapter may hold single rows of new tokens, and no embedding: then its highest id tells.
    highest = max(_trainable_token_ids(adapter), default=-1)
    base_embedding = find_embedding(adapter.base.tensors) if adapter.base else None
    if base_embedding is None or highest < len(base_embedding):
        return None
    return math.ceil((highest + 1) / EMBEDDING_MULTIPLE) * EMBEDDING_MULTIPLE


def _trainable_token_ids(adapter: Checkpoint) -> list[int]:
    """Ids in `trainable_token_indices` of an adapter's config: a list, or one for each module."""
    setting = adapter.adapter_config.get("trainable_token_indices")
    lists = list(setting.values()) if isinstance(setting, dict) else [setting]
    return [id for ids in lists if isinstance(ids, list) for id in ids if type(id) is int]


def load_model(path: Path, *, device: str, dtype: Any, trust_remote_code: bool = False) -> Any:
    """The model in a folder or a GGUF file, in evaluation mode; nothing is downloaded.

    Args:
        path: a folder, or a GGUF file.
        device: of torch; `auto` spreads the model.
        dtype: of torch, by name; `auto` as it is stored.
        trust_remote_code: run code in the model's folder.

    Raises:
        UsageError: where it can't be loaded, lacks weights, or is no model that generates.
    """
    settings: dict[str, Any] = {
        "dtype": dtype,
        "trust_remote_code": trust_remote_code,
        "local_files_only": True,
    }
    # For GGUF files, and for code of the model's own; of others it is the class that config.json names, below.
    kind: Any = transformers.AutoModelForCausalLM
    folder = path
    if path.is_file():
        folder, settings["gguf_file"] = path.parent, path.name
    else:
        checkpoint = read_checkpoint(path)
        if not (trust_remote_code and "auto_map" in checkpoint.config):
            kind = model_class(checkpoint)
        # Quantized weights can't be moved afterwards: they are loaded where they stay.
        if "quantization_config" in checkpoint.config:
            settings["device_map"] = device
    if device == "auto":
        settings["device_map"] = device
    try:
        model, info = kind.from_pretrained(str(folder), output_loading_info=True, **settings)
        # device_map moves the model itself; moving it again raises.
        if "device_map" not in settings:
            model = model.to(device)
    except torch.OutOfMemoryError:
        raise UsageError(
            f"{path}: does not fit in the memory of {device}; name another --device"
        ) from None
    except LOADING_ERRORS as error:
        if OWN_CODE_ERROR in str(error):
            raise UsageError(
                f"{path}: holds code of its own, which is not run; read it, and name it with "
                "--trust-remote-code"
            ) from None
        raise UsageError(
            f"{path}: the model can't be loaded: {_error_on_one_line(error)}"
        ) from None
    _refuse_missing_weights(path, model, info)
    return model.eval()


def _refuse_missing_weights(path: Path, model: Any, info: dict[str, Any]) -> None:
    """Raises UsageError where weights are missing, or the model does not generate. `info` is transformers' report."""
    # Weights of another shape are drawn at random too, where transformers is told to continue.
    mismatched = [key[0] for key in info["mismatched_keys"]]
    lacking = sorted({*info["missing_keys"], *mismatched})
    if lacking:
        raise UsageError(
            f"{path}: {len(lacking)} weights of {type(model).__name__} are not in its files"
            f" ({_first_names_in_line(lacking)}) and would be random; the files are of another model, or"
            " incomplete"
        )
    if not model.can_generate():
        raise UsageError(
            f"{path}: {type(model).__name__} does not generate text; expected a causal language"
            " model"
        )


def load_adapter(model: Any, adapter: Path, base: Path) -> Any:
    """Put an adapter on its base, not merged.

    Args:
        model: the base, loaded; its embedding is resized where the adapter's has other rows.
        adapter: its folder.
        base: the folder of the base.

    Raises:
        UsageError: where the adapter does not fit, or its file lacks weights.
    """
    import peft

    checkpoint = read_checkpoint(adapter, base=base)
    rows = adapter_vocabulary(checkpoint)
    if rows is not None and rows != model.get_input_embeddings().weight.shape[0]:
        # Without mean_resizing, which draws new rows from the mean of the old ones: the adapter brings its own.
        model.resize_token_embeddings(rows, mean_resizing=False)
    # peft only warns of weights that it does not find.
    with warnings.catch_warnings(record=True) as messages:
        warnings.simplefilter("always")
        try:
            tuned = peft.PeftModel.from_pretrained(model, str(adapter), autocast_adapter_dtype=True)
        except LOADING_ERRORS as error:
            raise UsageError(
                f"{adapter}: the adapter does not fit {base}: {_error_on_one_line(error)}"
            ) from None
    # By the words of the warning: peft gives no other sign.
    if any(MISSING_KEYS_WARNING in str(message.message) for message in messages):
        # By its own names of weights: those in the file are the same.
        expected = peft.get_peft_model_state_dict(tuned).keys()
        lacking = sorted(expected - checkpoint.tensors.keys())
        raise UsageError(
            f"{adapter}: {len(lacking)} of the adapter's {len(expected)} weights are not in its"
            f" file ({_first_names_in_line(lacking)}); it is of another model, or was saved by another"
            " version"
        )
    return tuned.eval()


def _first_names_in_line(names: Collection[str]) -> str:
    """The first of some names on one line, with dots for the others."""
    shown = ", ".join(list(names)[:SHOWN_NAMES])
    return shown + (", ..." if len(names) > SHOWN_NAMES else "")


def _error_on_one_line(error: BaseException) -> str:
    """What an error says, on one line; else its class."""
    text = " ".join(str(error).split()) or type(error).__name__
    return text if len(text) < MAX_ERROR_CHARACTERS else f"{text[:MAX_ERROR_CHARACTERS]}..."
