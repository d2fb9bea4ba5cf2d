"""Makes a new adapter by peft's settings, or loads the one that training starts from.

A new adapter is added by the trainer's builder, since TRL wants to add its own; one to resume from is loaded here. Of
the embedding only the rows of new tokens are trained: the whole layer would be most of an adapter's size.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from truetune.errors import UsageError
from truetune.settings.training_settings import Lora, Training
from truetune.training.enlarge_embeddings import rows_for_trainable_token_indices
from truetune.training.training_recipe import Choice


def make_lora_config(lora: Lora | None, model: Any, new: Iterable[int] = ()) -> Any:
    """peft's LoraConfig for the settings; None without LoRA. Of the embedding, the rows of `new`
    ids alone are trained and saved.
    """
    if lora is None:
        return None
    import peft

    settings: dict[str, Any] = {
        name: list(value) if isinstance(value, tuple) else value
        for name, value in lora.model_dump().items()
        # An empty tuple is our "not set"; peft takes an empty list for "no layers at all".
        if value != ()
    }
    layers = rows_for_trainable_token_indices(model, {*lora.trainable_token_indices, *new})
    # A layer in modules_to_save is trained whole, and peft refuses to train single rows of it too.
    rows = {name: ids for name, ids in layers.items() if ids and name not in lora.modules_to_save}
    settings["trainable_token_indices"] = rows or None
    return peft.LoraConfig(task_type="CAUSAL_LM", **settings)


def add_adapter(model: Any, config: Any) -> Any:
    """The model with a new adapter; itself where `config` is None. Raises UsageError where it does not fit."""
    if config is None:
        return model
    import peft

    try:
        return peft.get_peft_model(model, config)
    except ValueError as error:
        raise UsageError(f"training.lora does not fit this model: {error}") from None


def load_starting_adapter(
    model: Any, training: Training, new: list[int]
) -> tuple[Any, list[Choice]]:
    """The model with the adapter that training starts from. Raises UsageError where there is none, or it lacks ids."""
    import peft

    folder = Path(str(training.adapter))
    if not (folder / "adapter_config.json").is_file():
        raise UsageError(
            f"training.adapter: {folder} holds no adapter_config.json; name the folder of an"
            " adapter"
        )
    try:
        adapted = peft.PeftModel.from_pretrained(model, str(folder), is_trainable=True)
    except (RuntimeError, ValueError, KeyError, OSError) as error:
        raise UsageError(
            f"training.adapter: {folder} does not fit the base model: {error}"
        ) from None
    # peft writes a list for one layer and a dictionary for several.
    trained_rows = getattr(adapted.peft_config["default"], "trainable_token_indices", None) or []
    ids = (
        {id for part in trained_rows.values() for id in part}
        if isinstance(trained_rows, dict)
        else set(trained_rows)
    )
    # Rows of new tokens that nobody trains stay near the mean of the others for good: the run would
    # look right and never emit these tokens.
    missing = sorted(set(new) - ids)
    if missing:
        raise UsageError(
            f"training.adapter: {folder} trains no rows for the new ids {missing}; start a new"
            " adapter"
        )
    return adapted, [
        Choice("adapter", str(folder), "training continues from it, with its own settings")
    ]
