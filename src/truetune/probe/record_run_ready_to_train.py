"""Records what stands ready to be trained: batches, settings, model, tokenizer.

`observe_run` is the one way to a record: of a trainer or a loader with its model (`truetune run`,
`truetune.audit`), of a rehearsal's miniature, and of a collator alone. A loop that is watched at its forward passes
has no loader, and makes its record of the same parts (`observe_loop`).

1. The first batches are taken from the loader without moving it (`peek_batches`).
2. Facts of model, trainer, tokenizer and data become JSON (`record_without_laws`).
3. Laws are measured in the first process (`truetune.probe.laws`), and a canary is sent where it was asked for.

The trade-off: nothing here decides. A record holds more than any single rule needs, and is judged by the parent, so
that the user's process needs no rule and no settings of ours.
"""

from __future__ import annotations

import inspect
import logging
import os
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from truetune.errors import UsageError
from truetune.probe.find_function_computing_loss import (
    loss_facts_without_running_a_pass,
    loss_of_one_pass,
)
from truetune.probe.find_source_rows_of_batches import find_source_rows
from truetune.probe.laws import law_modules, law_names_of_costs, measure_laws
from truetune.probe.measuring.law_input_and_result_types import Trial
from truetune.probe.measuring.trainer_loss import TrainerLoss
from truetune.probe.peek_batches import (
    PeekedBatch,
    loader_samplers_datasets_and_collators,
    peek_batches,
)
from truetune.probe.recognise_ids_labels_and_mask import (
    LABELS,
    SHIFTED_LABELS,
    Key,
    NamedBatch,
    check_keys,
    unreadable_reasons,
    unshift_labels,
)
from truetune.probe.restore_state_changed_by_observing_run import preserve_state
from truetune.probe.run_record import NO_MODEL, Arrays, Record
from truetune.probe.run_values_to_json import to_json
from truetune.probe.training_packages_and_user_code import RECORDED_PACKAGES, is_library_module

# The facts of a model that nobody gave.
# Kinds of trainers, by a part of the name of one of their classes, in this order; all others are "sft".
PREFERENCE_KINDS = ("dpo", "kto", "orpo", "reward")


class ObservedData(NamedTuple):
    """What was seen of the data of a run."""

    peeked: list[PeekedBatch]
    """Micro-batches"""
    collate: Any
    """The collator: rows -> batch; None where it is not known"""
    dataset: Any
    """What the data loader reads; None where it is not known"""


def observe_run(
    folder: Path,
    *,
    model: Any,
    loader: Any,
    tokenizer: Any = None,
    trainer: Any = None,
    source_data: Any = None,
    loss: Any = None,
    count: int = 8,
    laws: str | Sequence[str] = (),
    canary: bool = False,
    keys: Mapping[str, Key] | None = None,
    keep: Callable[[Record], None] | None = None,
) -> Record:
    """Look at a run that is about to start.

    Args:
        folder: takes the tokenizer's files.
        model: None where there is none.
        loader: its batches are looked at, and it is not moved.
        tokenizer: of transformers, or a processor that holds one; None where there is none.
        trainer: None in a loop of the user's own.
        source_data: the data set before the trainer's own preparation, where it is known.
        loss: (model, inputs) -> loss, of a loop that names its loss.
        count: of batches.
        laws: quick, all, none or names.
        canary: send a marked row through the trainer's preparation, too?
        keys: which of the batch's tensors are the ids and labels (see `truetune.probe.recognise_ids_labels_and_mask`).
        keep: is given the record as far as it is made: with the batches, and after each law; a process may end in
            between.

    Raises what the user's own data set or collator raises, or UsageError for a law of no such name.
    """
    names, keys = law_names(laws), check_keys(keys)
    model = unwrap_model(model)
    facts = model_facts(model)
    seen = ObservedData(
        peek_batches(loader, count, keys, facts["embedding_rows"]),
        loader.collate_fn,
        loader.dataset,
    )
    # Data sets and collators may count or draw when they are read.
    with preserve_state(*loader_samplers_datasets_and_collators(loader), source_data):
        record = record_without_laws(
            folder, seen, facts, source_data=source_data, tokenizer=tokenizer, trainer=trainer
        )
    record.facts["trainer"]["own_loss"] = loss is not None or _has_user_own_loss(trainer)
    record.facts["trainer"]["loss"] = loss_facts_without_running_a_pass(trainer, model, loss)
    if keep is not None:
        keep(record)
    with preserve_state(*loader_samplers_datasets_and_collators(loader)), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        # One process measures: the others hold the same weights, and would say the same.
        if seen.peeked and names and record.facts["rank"] == 0:
            kind = record.facts["trainer"]["kind"]
            trial = trial_of(model, seen, tokenizer, trainer, loss, kind)
            if loss is None:
                by_structure = record.facts["trainer"]["loss"]
                record.facts["trainer"]["loss"] = loss_of_one_pass(trial, by_structure)
            outcomes = record.facts["laws"] = {}
            measure_laws(
                trial, names, outcomes=outcomes, keep=partial(keep, record) if keep else None
            )
        if canary:
            _send_canary(record, trainer, source_data)
    return record


def record_without_laws(
    folder: Path,
    seen: ObservedData,
    model: dict[str, Any],
    *,
    source_data: Any = None,
    tokenizer: Any = None,
    trainer: Any = None,
) -> Record:
    """The record of what was seen, without any law; `model` are its facts (`model_facts`), `folder` takes the
    tokenizer's files. Where no batch can be read `lost` among its facts says why."""
    rows, numbers, complete = find_source_rows(source_data, seen.peeked, tokenizer)
    arguments = getattr(trainer, "args", None)
    record = Record(
        facts={
            # As the trainer sees itself: processes that do not know of each other are runs of their own.
            "rank": getattr(arguments, "process_index", 0),
            "world": getattr(arguments, "world_size", 1),
            "versions": _package_versions(),
            "trainer": {
                **_trainer_facts(trainer, seen.collate),
                "own_loss": _has_user_own_loss(trainer),
                "loss": loss_facts_without_running_a_pass(None, None),
            },
            "args": _training_arguments_as_json(trainer),
            "model": model,
            "tokenizer": _save_and_describe_tokenizer(tokenizer, folder),
            "data": {
                "given": _dataset_size_and_columns(source_data),
                "prepared": _dataset_size_and_columns(seen.dataset),
                "of_trainer": _dataset_size_and_columns(getattr(trainer, "train_dataset", None)),
                "numbers": numbers,
                "used": _row_columns(seen.peeked),
            },
            "batches": [{"indices": batch.indices} for batch in seen.peeked],
            "notes": list(
                _sentences_on_what_was_unseen(seen.peeked, complete, trainer, tokenizer, model)
            ),
        },
        batches=[batch_arrays(batch.inputs) for batch in seen.peeked],
        rows=rows,
        prepared=[
            to_json(row) if isinstance(row, Mapping) else {}
            for batch in seen.peeked
            for row in batch.rows
        ],
        tokenizer=folder / "tokenizer" if (folder / "tokenizer").is_dir() else None,
    )
    if unread := "; ".join(unreadable_reasons([one.named for one in seen.peeked])):
        record.facts["lost"] = unread
        record.facts["notes"].append(unread)
    return record


def _package_versions() -> dict[str, str]:
    """Releases of the training packages that the process has imported."""
    return {
        name: getattr(sys.modules[name], "__version__", "")
        for name in RECORDED_PACKAGES
        if name in sys.modules
    }


def _row_columns(peeked: Sequence[PeekedBatch]) -> list[str]:
    """Columns of the rows that the batches are made of."""
    rows = [row for batch in peeked for row in batch.rows if isinstance(row, Mapping)]
    return sorted({key for row in rows for key in row})


def _sentences_on_what_was_unseen(
    peeked: Sequence[PeekedBatch],
    complete: bool,
    trainer: Any,
    tokenizer: Any,
    model: dict[str, Any],
) -> Iterator[str]:
    """What of the run could not be seen, each in a sentence."""
    if not peeked:
        yield "the data set is an iterator of its own: no batch can be taken and put back"
    if not complete:
        yield "not all rows of the data were searched for those of the batches"
    yield from _describe_what_trainer_lacks(trainer, tokenizer)
    if model["config"].get("is_encoder_decoder", False):
        yield "tokens are not placed: the labels of an encoder-decoder are of another text"


def _send_canary(record: Record, trainer: Any, source_data: Any) -> None:
    """Send a marked row through the trainer's preparation, and record what became of it."""
    from truetune.probe.trace_canary_row_through_trainer import trace_canary

    outcome = trace_canary(trainer, source_data)
    record.facts["canary"] = outcome
    if outcome["note"]:
        record.facts["notes"].append(f"canary: {outcome['note']}")


def _describe_what_trainer_lacks(trainer: Any, tokenizer: Any) -> Iterator[str]:
    """What the trainer was not told: the tokenizer, or that it is one of several processes."""
    if tokenizer is None:
        yield (
            "there is no tokenizer, so no token is recognised: give the Trainer"
            " processing_class=tokenizer"
        )
    launched = os.environ.get("WORLD_SIZE", "1")
    if (
        trainer is not None
        and launched.isdigit()
        and int(launched) > 1
        and trainer.args.world_size == 1
    ):
        yield (
            f"{launched} processes were launched (WORLD_SIZE), and this trainer takes itself for"
            " the only one: each trains a model of its own on all rows; on a CPU, give it"
            " use_cpu=True"
        )


def law_names(laws: str | Sequence[str]) -> tuple[str, ...]:
    """Names of the laws to measure. Raises UsageError where there is none of such a name."""
    known = law_modules()
    sets = {"none": (), "quick": law_names_of_costs("quick"), "all": tuple(known)}
    names = sets.get(laws, (laws,)) if isinstance(laws, str) else tuple(laws)
    if unknown := set(names) - set(known):
        raise UsageError(
            f"laws: {', '.join(sorted(unknown))}: expected none, quick, all or of"
            f" {', '.join(known)}"
        )
    return names


def trial_of(
    model: Any, seen: ObservedData, tokenizer: Any, trainer: Any, loss: Any, kind: str
) -> Trial:
    """Make the trial of a run: its batches on the model's device, and the loss as this trainer computes
    it.
    """
    device = next(model.parameters()).device
    batches = [
        {
            key: value.to(device) if isinstance(value, torch.Tensor) else value
            for key, value in batch.inputs.items()
        }
        for batch in seen.peeked
    ]
    layout = seen.peeked[0].named if seen.peeked else None
    if loss is not None:
        loss = _loss_for_batch_layout(loss, layout)
    elif trainer is not None:
        own = (
            [layout.inputs_in_layout_of_user_batch(batch) for batch in batches]
            if layout is not None
            else batches
        )
        loss = _loss_for_batch_layout(TrainerLoss(trainer, own), layout)
    else:
        loss = _model_loss
    rows = [batch.rows for batch in seen.peeked]
    return Trial(model, batches, rows, trainer, seen.collate, tokenizer, loss, kind)


def _model_loss(model: Any, inputs: Mapping[str, Any]) -> Any:
    """The loss that the model itself computes, for a loop that names none."""
    return model(**inputs).loss


def _loss_for_batch_layout(loss: Any, layout: NamedBatch | None) -> Any:
    """The loss as it is called with batches that are laid out as the run's are."""
    if layout is None or not (layout.names or layout.sequence):
        return loss
    return lambda model, inputs: loss(model, layout.inputs_in_layout_of_user_batch(inputs))


def unwrap_model(model: Any) -> Any:
    """The model inside DDP, FSDP, DeepSpeed or a compiled module."""
    while True:
        # Compiled modules have `_orig_mod`; DDP, FSDP and DeepSpeed have `module`.
        inner = getattr(model, "_orig_mod", None) or getattr(model, "module", None)
        if not isinstance(inner, torch.nn.Module):
            return model
        model = inner


def batch_arrays(batch: Mapping[str, Any]) -> Arrays:
    """The arrays of a batch: its tensors as numpy arrays."""
    arrays: Arrays = {}
    for key, value in batch.items():
        if isinstance(value, torch.Tensor):
            tensor = value.detach().cpu()
            # Rules know labels in place, as transformers has them.
            if key == SHIFTED_LABELS:
                key, tensor = LABELS, unshift_labels(tensor)
            arrays[key] = (tensor.float() if tensor.is_floating_point() else tensor).numpy()
        elif isinstance(value, list) and value and all(isinstance(v, int | float) for v in value):
            arrays[key] = np.asarray(value)
    return arrays


def model_facts(model: Any) -> dict[str, Any]:
    """What the model is, and which of its parameters are trained; without a model all of it is empty."""
    if model is None:
        return dict(NO_MODEL)
    config = getattr(model, "config", None)
    generation = getattr(model, "generation_config", None)
    adapters = getattr(model, "peft_config", None)
    inner = model.get_base_model() if hasattr(model, "get_base_model") else model
    return {
        "class": _qualified_name(type(inner)),
        "type": getattr(config, "model_type", None),
        "config": to_json(config.to_dict()) if config is not None else {},
        "generation_config": to_json(generation.to_dict()) if generation is not None else None,
        "attention": getattr(config, "_attn_implementation", None),
        "dtype": _dtype_name(next(model.parameters(), None)),
        "embedding_rows": _matrix_rows(_call_method_if_there(model, "get_input_embeddings")),
        "output_rows": _matrix_rows(_call_method_if_there(model, "get_output_embeddings")),
        "parameters": sum(
            _parameter_size_before_sharding(parameter) for parameter in model.parameters()
        ),
        **_facts_of_trained_weights(model),
        "adapter": _adapter_settings(adapters) if adapters else None,
        "accepts": list(inspect.signature(inner.forward).parameters),
        "training": bool(model.training),
        "dropout": _largest_dropout(model),
        "trained_dtypes": sorted({_dtype_name(p) for p in model.parameters() if p.requires_grad}),
        "quantized": (
            bool(getattr(config, "quantization_config", None))
            or bool(getattr(inner, "is_quantized", False))
        ),
    }


def _call_method_if_there(model: Any, name: str) -> Any:
    """What a method without arguments returns; None where the model has none of this name."""
    return getattr(model, name)() if hasattr(model, name) else None


def _dtype_name(parameter: Any) -> str:
    """The name of a parameter's dtype, `bfloat16`; empty for None, of a model without parameters."""
    return "" if parameter is None else str(parameter.dtype).removeprefix("torch.")


def _facts_of_trained_weights(model: Any) -> dict[str, Any]:
    """How many weights are trained, and the names of their tensors."""
    trained = {name: p for name, p in model.named_parameters() if p.requires_grad}
    return {
        "trainable": sum(
            _parameter_size_before_sharding(parameter) for parameter in trained.values()
        ),
        "trainable_in_matrices": sum(
            _parameter_size_before_sharding(parameter)
            for parameter in trained.values()
            if len(_parameter_shape_before_sharding(parameter)) > 1
        ),
        "trainable_names": list(trained),
    }


def _adapter_settings(adapters: Any) -> dict[str, Any]:
    """The settings of PEFT's adapters by their name."""
    return {name: to_json(settings.to_dict()) for name, settings in adapters.items()}


def _largest_dropout(model: Any) -> float:
    """The largest probability of the model's dropout layers; 0 where it has none."""
    rates = (float(m.p) for m in model.modules() if isinstance(m, torch.nn.Dropout))
    return max(rates, default=0.0)


def _matrix_rows(layer: Any) -> int | None:
    """The rows of a layer's whole matrix, also where DeepSpeed has cut it up; None where it is flat (FSDP)
    or there is none.
    """
    weight = getattr(layer, "weight", None)
    shape: Any = getattr(weight, "ds_shape", getattr(weight, "shape", ()))
    return int(shape[0]) if len(shape) == 2 else None


def _parameter_size_before_sharding(parameter: Any) -> int:
    """The number of weights of a parameter, also where DeepSpeed has shared them out."""
    return int(getattr(parameter, "ds_numel", parameter.numel()))


def _parameter_shape_before_sharding(parameter: Any) -> tuple[int, ...]:
    """The shape of a parameter, also where DeepSpeed has cut it up."""
    return tuple(getattr(parameter, "ds_shape", parameter.shape))


def _trainer_facts(trainer: Any, collator: Any) -> dict[str, Any]:
    """Classes, kind and collator of a run; of a loop without a trainer no class. The kind is told by class names, so
    that a trainer of the user's own is of the kind of what it inherits from."""
    collator = getattr(collator, "data_collator", collator)
    bases = (
        [_qualified_name(base) for base in type(trainer).__mro__[:-1]]
        if trainer is not None
        else []
    )
    names = " ".join(base.rpartition(".")[2].lower() for base in bases)
    kind = (
        "loop"
        if trainer is None
        else next((kind for kind in PREFERENCE_KINDS if kind in names), "sft")
    )
    name = (
        None
        if collator is None
        else _qualified_name(collator if inspect.isfunction(collator) else type(collator))
    )
    # sentence-transformers hands its trainer the loss as a module.
    loss = getattr(trainer, "loss", None)
    return {
        "class": bases[0] if bases else None,
        "bases": bases,
        "kind": kind,
        "collator": name,
        "loss_module": _qualified_name(type(loss)) if isinstance(loss, torch.nn.Module) else None,
    }


def _has_user_own_loss(trainer: Any) -> bool:
    """Does the user's own code compute the loss?"""
    if trainer is None:
        return False
    home = str(getattr(type(trainer).compute_loss, "__module__", ""))
    return getattr(trainer, "compute_loss_func", None) is not None or not is_library_module(home)


def _training_arguments_as_json(trainer: Any) -> dict[str, Any]:
    """The trainer's training arguments as JSON; empty without a trainer."""
    return to_json(trainer.args.to_dict()) if trainer is not None else {}


def _save_and_describe_tokenizer(tokenizer: Any, folder: Path) -> dict[str, Any] | None:
    """Save the tokenizer into the folder and describe it; None where it can't be written."""
    written = save_tokenizer(tokenizer, folder)
    return None if written is None else tokenizer_facts(written)


def tokenizer_facts(tokenizer: Any) -> dict[str, Any]:
    """What a record holds of a tokenizer of transformers."""
    return {
        "class": _qualified_name(type(tokenizer)),
        "padding_side": tokenizer.padding_side,
        "pad": tokenizer.pad_token_id,
        "bos": tokenizer.bos_token_id,
        "eos": tokenizer.eos_token_id,
        "name": tokenizer.name_or_path,
    }


def save_tokenizer(tokenizer: Any, folder: Path) -> Any:
    """Write the tokenizer (of a processor: the one inside) into `folder / "tokenizer"`, and return it.

    None where it is none of transformers' and can't be written.
    """
    tokenizer = getattr(tokenizer, "tokenizer", tokenizer)
    if tokenizer is None or not hasattr(tokenizer, "save_pretrained"):
        return None
    with _without_log(), _plain_init_arguments(tokenizer):
        tokenizer.save_pretrained(str(folder / "tokenizer"))
    return tokenizer


@contextmanager
def _plain_init_arguments(tokenizer: Any) -> Iterator[None]:
    """Inside, the tokenizer's own arguments are those that JSON can hold.

    Scripts give a tokenizer the arguments of its model (TRL's example of online DPO: `dtype`, a torch.dtype). It keeps
    them, and can't be saved with them. That ends their run when it saves; ours must not be lost by it.
    """
    kept = getattr(tokenizer, "init_kwargs", None)
    if not isinstance(kept, dict):
        kept = {}
    odd = [name for name, value in kept.items() if isinstance(value, torch.dtype | torch.device)]
    if not odd:
        yield
        return
    tokenizer.init_kwargs = {name: value for name, value in kept.items() if name not in odd}
    try:
        yield
    finally:
        tokenizer.init_kwargs = kept


@contextmanager
def _without_log() -> Iterator[None]:
    """Inside, nothing is logged by transformers: the run's log does not speak of files of ours."""
    # The whole hierarchy at once: the level of a single logger may be set again by the call.
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        yield
    finally:
        logging.disable(before)


def _dataset_size_and_columns(dataset: Any) -> dict[str, Any] | None:
    """Rows and columns of a data set, each None where it does not say; None without a data set."""
    if dataset is None:
        return None
    columns = getattr(dataset, "column_names", None)
    if not isinstance(columns, list) and isinstance(dataset, list | tuple) and dataset:
        columns = list(dataset[0]) if isinstance(dataset[0], Mapping) else None
    return {
        "rows": len(dataset) if hasattr(dataset, "__len__") else None,
        "columns": list(columns) if isinstance(columns, list) else None,
    }


def _qualified_name(kind: Any) -> str:
    """The qualified name of a class, with its module."""
    return f"{kind.__module__}.{kind.__qualname__}"
