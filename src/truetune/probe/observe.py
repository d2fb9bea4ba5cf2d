"""What stands ready to be trained, as a record: batches, settings, model, tokenizer."""

from __future__ import annotations

import inspect
import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch

from truetune.probe.batches import Peeked, peek
from truetune.probe.given import given_rows
from truetune.probe.laws import Trial, measure
from truetune.probe.record import Arrays, Record

PACKAGES = ("torch", "transformers", "trl", "peft", "accelerate", "datasets", "unsloth", "axolotl", "llamafactory")
KINDS = {"dpo": "dpo", "kto": "kto", "orpo": "orpo", "reward": "reward"}


def observe(
    folder: Path,
    *,
    model: Any,
    loader: Any,
    tokenizer: Any = None,
    trainer: Any = None,
    given: Any = None,
    loss: Any = None,
    count: int = 8,
    laws: tuple[str, ...] = (),
) -> Record:
    """Look at a run that is about to start; `folder` takes the tokenizer's files.

    `given` is the data set before the trainer's own preparation, where it is known; `loss` is (model, inputs) -> loss,
    `laws` names those to be measured.
    Raises what the user's own data set or collator raises.
    """
    peeked = peek(loader, count)
    model = unwrapped(model)
    notes: list[str] = [] if peeked else ["the data set is an iterator of its own: no batch can be taken and put back"]
    rows, numbers, complete = given_rows(given, peeked, tokenizer)
    if not complete:
        notes.append("not all rows of the data were searched for those of the batches")
    record = Record(
        facts={
            "rank": getattr(getattr(trainer, "args", None), "process_index", 0),
            "world": getattr(getattr(trainer, "args", None), "world_size", 1),
            "versions": {name: getattr(sys.modules[name], "__version__", "") for name in PACKAGES
                         if name in sys.modules},
            "trainer": _trainer(trainer, loader),
            "args": _arguments(trainer),
            "model": model_facts(model),
            "tokenizer": _tokenizer(tokenizer, folder),
            "data": {"given": _table(given), "prepared": _table(loader.dataset), "numbers": numbers,
                     "used": sorted({key for batch in peeked for row in batch.rows if isinstance(row, Mapping)
                                     for key in row})},
            "batches": [{"indices": batch.indices} for batch in peeked],
            "notes": notes,
        },
        batches=[arrays(batch.inputs) for batch in peeked],
        rows=rows,
        prepared=[plain(row) if isinstance(row, Mapping) else {} for batch in peeked for row in batch.rows],
        tokenizer=folder / "tokenizer" if (folder / "tokenizer").is_dir() else None,
    )  # fmt: skip
    if peeked and laws:
        kind = record.facts["trainer"]["kind"]
        record.facts["laws"] = measure(trial_of(model, peeked, loader, tokenizer, trainer, loss, kind), laws)
    return record


def trial_of(
    model: Any, peeked: list[Peeked], loader: Any, tokenizer: Any, trainer: Any, loss: Any, kind: str
) -> Trial:
    """The batches on the model's device, and the loss as this trainer computes it."""
    device = next(model.parameters()).device
    batches = [
        {key: value.to(device) if isinstance(value, torch.Tensor) else value for key, value in batch.inputs.items()}
        for batch in peeked
    ]
    if loss is None:
        loss = trainer.compute_loss if trainer is not None else lambda model, inputs: model(**inputs).loss
    rows = [batch.rows for batch in peeked]
    return Trial(model, batches, rows, trainer, loader.collate_fn, tokenizer, loss, kind)


def unwrapped(model: Any) -> Any:
    """The model inside DDP, FSDP, DeepSpeed or a compiled module."""
    while True:
        inner = getattr(model, "_orig_mod", None) or getattr(model, "module", None)
        if not isinstance(inner, torch.nn.Module):
            return model
        model = inner


def arrays(batch: Mapping[str, Any]) -> Arrays:
    """The tensors of a batch as arrays."""
    made: Arrays = {}
    for key, value in batch.items():
        if isinstance(value, torch.Tensor):
            tensor = value.detach().cpu()
            made[key] = (tensor.float() if tensor.is_floating_point() else tensor).numpy()
        elif isinstance(value, list) and value and all(isinstance(v, int | float) for v in value):
            made[key] = np.asarray(value)
    return made


def model_facts(model: Any) -> dict[str, Any]:
    """What the model is, and which of its parameters are trained."""
    config = getattr(model, "config", None)
    into = model.get_input_embeddings() if hasattr(model, "get_input_embeddings") else None
    out = model.get_output_embeddings() if hasattr(model, "get_output_embeddings") else None
    generation = getattr(model, "generation_config", None)
    adapters = getattr(model, "peft_config", None)
    named = list(model.named_parameters())
    inner = model.get_base_model() if hasattr(model, "get_base_model") else model
    return {
        "class": _name(type(inner)),
        "type": getattr(config, "model_type", None),
        "config": plain(config.to_dict()) if config is not None else {},
        "generation_config": plain(generation.to_dict()) if generation is not None else None,
        "attention": getattr(config, "_attn_implementation", None),
        "dtype": str(next(iter(p.dtype for _, p in named), "")).removeprefix("torch."),
        "embedding_rows": into.weight.shape[0] if into is not None and hasattr(into, "weight") else None,
        "output_rows": out.weight.shape[0] if out is not None and hasattr(out, "weight") else None,
        "parameters": sum(p.numel() for _, p in named),
        "trainable": sum(p.numel() for _, p in named if p.requires_grad),
        "trainable_names": [name for name, p in named if p.requires_grad],
        "adapter": {name: plain(value.to_dict()) for name, value in adapters.items()} if adapters else None,
        "accepts": list(inspect.signature(inner.forward).parameters),
    }


def _trainer(trainer: Any, loader: Any) -> dict[str, Any]:
    collator = loader.collate_fn
    collator = getattr(collator, "data_collator", collator)
    bases = [_name(base) for base in type(trainer).__mro__[:-1]] if trainer is not None else []
    names = " ".join(base.rpartition(".")[2].lower() for base in bases)
    kind = "loop" if trainer is None else next((k for word, k in KINDS.items() if word in names), "sft")
    name = _name(collator) if inspect.isfunction(collator) else _name(type(collator))
    return {"class": bases[0] if bases else None, "bases": bases, "kind": kind, "collator": name}


def _arguments(trainer: Any) -> dict[str, Any]:
    return plain(trainer.args.to_dict()) if trainer is not None else {}


def _tokenizer(tokenizer: Any, folder: Path) -> dict[str, Any] | None:
    tokenizer = getattr(tokenizer, "tokenizer", tokenizer)
    if tokenizer is None or not hasattr(tokenizer, "save_pretrained"):
        return None
    tokenizer.save_pretrained(str(folder / "tokenizer"))
    return {
        "class": _name(type(tokenizer)),
        "padding_side": tokenizer.padding_side,
        "pad": tokenizer.pad_token_id,
        "bos": tokenizer.bos_token_id,
        "eos": tokenizer.eos_token_id,
        "name": tokenizer.name_or_path,
    }


def _table(dataset: Any) -> dict[str, Any] | None:
    if dataset is None:
        return None
    columns = getattr(dataset, "column_names", None)
    return {"rows": len(dataset) if hasattr(dataset, "__len__") else None,
            "columns": list(columns) if isinstance(columns, list) else None}  # fmt: skip


def _name(kind: Any) -> str:
    return f"{kind.__module__}.{kind.__qualname__}"


def plain(value: Any) -> Any:
    """JSON of a value: tensors and arrays as lists, what is no JSON by its `str`."""
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, torch.Tensor | np.ndarray):
        return value.tolist()
    if isinstance(value, np.generic):
        return value.item()
    return json.loads(json.dumps(value, default=str))
