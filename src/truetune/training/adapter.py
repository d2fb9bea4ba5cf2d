"""Adapters: peft's settings for a new one, or one that training starts from."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from truetune.errors import UsageError
from truetune.spec.training import Lora, Training
from truetune.training.embeddings import token_layers
from truetune.training.recipe import Choice


def adapter_of(lora: Lora | None, model: Any = None, new: list[int] | None = None) -> Any:
    """peft's LoraConfig; None without LoRA. Of the embedding, the rows of `new` ids alone are trained and saved."""
    if lora is None:
        return None
    import peft

    given: dict[str, Any] = {name: list(value) if isinstance(value, tuple) else value
                             for name, value in lora.model_dump().items() if value != ()}  # fmt: skip
    ids = {*lora.trainable_token_indices, *(new or ())}
    whole = any(name in lora.modules_to_save for name in token_layers(model, ())) if model is not None else False
    if ids and whole:
        given.pop("trainable_token_indices", None)
    elif ids and model is not None:
        given["trainable_token_indices"] = token_layers(model, ids)
    return peft.LoraConfig(task_type="CAUSAL_LM", **given)


def going_on(model: Any, training: Training, new: list[int]) -> tuple[Any, list[Choice]]:
    """The model with the adapter that training starts from. Raises UsageError where there is none, or it lacks ids."""
    import peft

    folder = Path(str(training.adapter))
    if not (folder / "adapter_config.json").is_file():
        raise UsageError(f"training.adapter: {folder} holds no adapter_config.json; name the folder of an adapter")
    try:
        adapted = peft.PeftModel.from_pretrained(model, str(folder), is_trainable=True)
    except (RuntimeError, ValueError, KeyError, OSError) as error:
        raise UsageError(f"training.adapter: {folder} does not fit the base model: {error}") from None
    held = getattr(adapted.peft_config["default"], "trainable_token_indices", None) or []
    ids = {id for part in held.values() for id in part} if isinstance(held, dict) else set(held)
    if missing := sorted(set(new) - ids):
        raise UsageError(f"training.adapter: {folder} trains no rows for the new ids {missing}; start a new adapter")
    return adapted, [Choice("adapter", str(folder), "training goes on from it, with its own settings")]
