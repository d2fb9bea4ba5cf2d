"""Loading: a saved model, or an adapter on its base, as transformers and peft read it; whole, or not at all."""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch
import transformers
from safetensors import SafetensorError

from truetune.checkpoint.adapter import LAYER, piece, saved
from truetune.checkpoint.checkpoint import Checkpoint, read_checkpoint
from truetune.checkpoint.embedding import EMBEDDINGS, embedding
from truetune.errors import UsageError

SHOWN = 3
"""Names of tensors in a message"""
REFUSED = (
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
MISSING = "missing adapter keys"
OWN_CODE = "contains custom code"


def model_class(base: Checkpoint) -> Any:
    """The class that config.json names, where transformers has it."""
    names = base.config.get("architectures")
    name = names[0] if isinstance(names, list) and names and isinstance(names[0], str) else ""
    return getattr(transformers, name, transformers.AutoModelForCausalLM)


def adapter_vocabulary(found: Checkpoint) -> int | None:
    """How many tokens an adapter's embedding has; None where the base's is enough."""
    copies = {piece(t).whole: t for name, t in found.tensors.items() if f".{LAYER}.weight" in name}
    whole = next(
        (t for name, t in {**saved(found.tensors), **copies}.items() if name.endswith(EMBEDDINGS)),
        None,
    )
    if whole is not None:
        return whole.shape[0]
    chosen = found.adapter_config.get("trainable_token_indices")
    listed = list(chosen.values()) if isinstance(chosen, dict) else [chosen]
    highest = max(
        (id for ids in listed if isinstance(ids, list) for id in ids if type(id) is int), default=-1
    )
    into = embedding(found.base.tensors) if found.base else None
    if into is None or highest < len(into):
        return None
    return -(-(highest + 1) // 64) * 64


def load_model(place: Path, *, device: str, dtype: Any, trust_remote_code: bool = False) -> Any:
    """The model in a folder or a GGUF file, ready to be asked; nothing is downloaded.

    Raises UsageError where it can't be loaded, lacks weights, or is no model that generates.
    """
    settings: dict[str, Any] = {
        "dtype": dtype,
        "trust_remote_code": trust_remote_code,
        "local_files_only": True,
    }
    kind: Any = transformers.AutoModelForCausalLM
    folder = place
    if place.is_file():
        folder, settings["gguf_file"] = place.parent, place.name
    else:
        config = (base := read_checkpoint(place)).config
        if not (trust_remote_code and "auto_map" in config):
            kind = model_class(base)
        if "quantization_config" in config:
            settings["device_map"] = device
    if device == "auto":
        settings["device_map"] = device
    try:
        model, info = kind.from_pretrained(str(folder), output_loading_info=True, **settings)
        if "device_map" not in settings:
            model = model.to(device)
    except torch.OutOfMemoryError:
        raise UsageError(
            f"{place}: does not fit in the memory of {device}; name another --device"
        ) from None
    except REFUSED as error:
        if OWN_CODE in str(error):
            raise UsageError(
                f"{place}: holds code of its own, which is not run; read it, and name it with "
                "--trust-remote-code"
            ) from None
        raise UsageError(f"{place}: the model can't be loaded: {_error_line(error)}") from None
    if lacking := sorted({*info["missing_keys"], *(key[0] for key in info["mismatched_keys"])}):
        raise UsageError(
            f"{place}: {len(lacking)} weights of {type(model).__name__} are not in its files"
            f" ({_first_names(lacking)}) and would be random; the files are of another model, or"
            " incomplete"
        )
    if not model.can_generate():
        raise UsageError(
            f"{place}: {type(model).__name__} does not generate text; expected a causal language"
            " model"
        )
    return model.eval()


def load_adapter(model: Any, adapter: Path, base: Path) -> Any:
    """The model with an adapter on it, not merged. Raises UsageError where the adapter does not fit."""
    import peft

    found = read_checkpoint(adapter, base=base)
    rows = adapter_vocabulary(found)
    if rows is not None and rows != model.get_input_embeddings().weight.shape[0]:
        model.resize_token_embeddings(rows, mean_resizing=False)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        try:
            tuned = peft.PeftModel.from_pretrained(model, str(adapter), autocast_adapter_dtype=True)
        except REFUSED as error:
            raise UsageError(
                f"{adapter}: the adapter does not fit {base}: {_error_line(error)}"
            ) from None
    if any(MISSING in str(warning.message) for warning in told):
        held = peft.get_peft_model_state_dict(tuned).keys()
        lacking = sorted(held - found.tensors.keys())
        raise UsageError(
            f"{adapter}: {len(lacking)} of the adapter's {len(held)} weights are not in its file"
            f" ({_first_names(lacking)}); it is of another model, or was saved by another version"
        )
    return tuned.eval()


def _first_names(names: Iterable[str]) -> str:
    listed = list(names)
    return ", ".join(listed[:SHOWN]) + (", ..." if len(listed) > SHOWN else "")


def _error_line(error: BaseException) -> str:
    """What it says, on one line."""
    text = " ".join(str(error).split()) or type(error).__name__
    return text if len(text) < 400 else f"{text[:400]}..."
