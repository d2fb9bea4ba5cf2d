"""Follows a field of a batch, such as `inputs["labels"]` in a trainer's hook, back to what was put
into it, in the symbolic run of a script.

How it works: a batch that a trainer or loader gives to the project's code is followed back to the
collator and to the rows of the data set. A collator of the project says itself what it makes; of
the collators of libraries it is known whether they copy the ids into the labels.

The trade-off: rows that were made by another script are not seen, and then a field is only itself.
"""

from __future__ import annotations

from typing import NamedTuple

from truetune.checks.source.evidence.causal_decoder_models import MOVING_METHODS
from truetune.source.symbolic_execution.element_of_iterable import (
    LOADERS,
    representative_element_of_iterable,
)
from truetune.source.symbolic_execution.fold_constants import constant_of
from truetune.source.symbolic_execution.lists_and_dicts import item_or_slice_of_list
from truetune.source.symbolic_execution.trace_of_events import CallEvent, is_constant_none
from truetune.source.symbolic_execution.values_of_run import (
    Attribute,
    Element,
    Function,
    Instance,
    Item,
    Mapping,
    Opaque,
    Parameter,
    Result,
    Sequence,
    Value,
)

LABELS, IDS = "labels", "input_ids"
TRAINERS = ("transformers.*Trainer", "trl.*Trainer", "unsloth.*Trainer")
TRAINERS_THAT_COPY_IDS = ("trl.*SFTTrainer", "unsloth.*SFTTrainer", "unsloth.UnslothTrainer")
"""Trainers that make labels of the ids where the rows have none"""
COPYING_COLLATORS = ("transformers.*DataCollatorForLanguageModeling",)
"""Collators whose labels are a copy of the ids, unless they mask tokens of their own"""
COMPLETION_COLLATORS = ("trl.*DataCollatorFor*",)
FITTING_METHODS = ("fit", "validate", "test")
"""Methods of Lightning's trainer, which are given a module and its loaders"""
LOADER_METHODS = {"validation_step": "val_dataloader", "test_step": "test_dataloader"}
"""Steps of Lightning whose batches come from another loader than the training's, and the method that gives it"""
FIELD_METHODS = ("get", "pop")
COPYING_METHODS = MOVING_METHODS | {"copy"}
"""Methods whose result has the fields of the batch itself"""
MAX_STEPS = 12
"""Values between a batch and its rows"""


class BatchField(NamedTuple):
    """A field of a batch."""

    batch: Value
    name: str


def batch_field_read(value: Value) -> BatchField | None:
    """The field of a batch that a value was read from: `batch["labels"]`, `batch.labels`,
    `batch.pop("labels")`; None otherwise.
    """
    if isinstance(value, Item):
        key = constant_of(value.key)
        return BatchField(value.base, key) if isinstance(key, str) else None
    if isinstance(value, Attribute) and value.name in (LABELS, IDS):
        return BatchField(value.base, value.name)
    if isinstance(value, Parameter) and value.name == LABELS and trainer_of_hook(value) is not None:
        return BatchField(value, LABELS)  # what a trainer gives to `compute_loss_func`
    return _batch_field_of_call(value.call) if isinstance(value, Result) else None


def _batch_field_of_call(call: CallEvent) -> BatchField | None:
    """The field of a batch that a call reads: `batch.pop("labels")`, `batch.get("labels")`; None
    otherwise.
    """
    if call.method not in FIELD_METHODS or not call.args or call.receiver is None:
        return None
    key = constant_of(call.args[0])
    return BatchField(call.receiver, key) if isinstance(key, str) else None


def source_of_field(field: BatchField) -> BatchField | Value:
    """What was put into a field, the field that it certainly copies, or the field itself as it was
    made.
    """
    batch: Value | None = field.batch
    for _ in range(MAX_STEPS):
        if batch is None:
            return field
        stored = _project_entry_of_batch(batch, field.name)
        if stored is not None:
            return stored
        inner = _source_batch(batch)
        if inner is None:
            break
        batch = inner
    if batch is None:
        return field
    given = _field_made_by_collator(batch, field.name)
    if given is not None:
        return given
    maker = loader_or_trainer_of_batch(batch)
    return BatchField(batch if maker is None else maker.result, field.name)


def item_of_batch_tuple(item: Item) -> Value | None:
    """The value at an index of a tuple that a library gives as batch; None where it is not known."""
    loader = loader_or_trainer_of_batch(item.base) if isinstance(item.base, Parameter) else None
    if loader is None or not isinstance(constant_of(item.key), int):
        return None
    batch = representative_element_of_iterable(loader.result)
    return item_or_slice_of_list(batch, item.key) if isinstance(batch, Sequence) else None


def _project_entry_of_batch(batch: Value, name: str) -> Value | None:
    """The value that the project put into a field of a batch; None where it put none."""
    if isinstance(batch, Mapping):
        return batch.entries.get(name)
    if not isinstance(batch, Opaque):
        return None
    entry = batch.entries.get(name)
    is_read = isinstance(entry, Item) and entry.base is batch
    return None if is_read else entry


def _source_batch(batch: Value) -> Value | None:
    """The batch whose fields another one has: moved, copied, or the rows that a collator is given;
    None otherwise.
    """
    if isinstance(batch, Mapping):
        return batch.rest
    if isinstance(batch, Result):
        call = batch.call
        return call.receiver if call.method in COPYING_METHODS else _batch_moved_or_padded_by(call)
    if isinstance(batch, Element):
        return _row_given_to_collator(batch.iterable)
    return None


def _batch_moved_or_padded_by(call: CallEvent) -> Value | None:
    """The batch that a call moves, or whose rows it pads; None otherwise."""
    if not call.args:
        return None
    if call.method == "_prepare_inputs" or call.named("*.send_to_device"):
        return call.args[0]
    given = call.args[0]
    if call.method == "pad" and isinstance(given, Mapping):
        return given  # columns, each with its rows
    return (
        representative_element_of_iterable(given)
        if call.method == "pad" or call.named("next")
        else None
    )


def _row_given_to_collator(rows: Value) -> Value | None:
    """One row of those that a loader or trainer hands to its collator."""
    if not isinstance(rows, Parameter) or rows.given_by is None:
        return None
    data = _rows_of_loader_or_trainer(rows.given_by)
    return None if data is None else representative_element_of_iterable(data)


def _rows_of_loader_or_trainer(event: CallEvent) -> Value | None:
    """The rows of a loader or trainer."""
    if event.named(*LOADERS):
        return event.argument(0, "dataset")
    if event.named(*TRAINERS):
        position = 2 if event.named("trl.*") else 3
        return event.argument(position, "train_dataset")
    return None


def _collator_of_loader_or_trainer(event: CallEvent) -> Value | None:
    """The collator of a loader or trainer."""
    if event.named(*LOADERS):
        return event.argument(6, "collate_fn")
    return event.argument(2 if event.named("transformers.*") else -1, "data_collator")


def _field_made_by_collator(batch: Value, name: str) -> BatchField | Value | None:
    """What a collator puts into a field of its batches; None where it is not known."""
    event = loader_or_trainer_of_batch(batch)
    if event is None:
        return None
    collator = _collator_of_loader_or_trainer(event)
    if isinstance(collator, Function | Instance):
        made = _returned_by_collator(event, collator)
        return None if made is None else source_of_field(BatchField(made, name))
    entry = _row_column_of(event, name)
    if name == LABELS and _labels_are_library_copied_ids(
        event, collator, has_labels=entry is not None
    ):
        return source_of_field(BatchField(batch, IDS))
    return entry


def _labels_are_library_copied_ids(
    event: CallEvent, collator: Value | None, *, has_labels: bool
) -> bool:
    """Are the labels of a batch a copy of its ids that the library makes?"""
    if isinstance(collator, Result) and _is_collator_copying_ids(collator.call):
        return True
    is_of_library = collator is None or is_constant_none(collator) or isinstance(collator, Result)
    return is_of_library and not has_labels and event.named(*TRAINERS_THAT_COPY_IDS)


def _is_collator_copying_ids(collator: CallEvent) -> bool:
    """Does a collator of a library give a copy of the ids as labels?"""
    if collator.named(*COPYING_COLLATORS):
        return constant_of(collator.argument(1, "mlm")) is False
    return collator.named(*COMPLETION_COLLATORS)


def _row_column_of(event: CallEvent, name: str) -> BatchField | Value | None:
    """The column of the rows that a loader or trainer gets; None where it is not known."""
    data = _rows_of_loader_or_trainer(event)
    row = None if data is None else representative_element_of_iterable(data)
    if row is None:
        return None
    source = source_of_field(BatchField(row, name))
    return None if isinstance(source, BatchField) else source


def _returned_by_collator(event: CallEvent, collator: Function | Instance) -> Value | None:
    """What a collator of the project gives back."""
    for function, returned in reversed(event.returned_by_callbacks):
        if isinstance(collator, Function):
            if function.definition is collator.definition:
                return returned
        elif function.receiver is collator and function.name == "__call__":
            return returned
    return None


def loader_or_trainer_of_batch(batch: Value) -> CallEvent | None:
    """The loader or trainer that a batch comes from, or that stands for its batches; None where it
    is not known.
    """
    if isinstance(batch, Result):
        return batch.call if batch.call.named(*LOADERS, *TRAINERS) else None
    if isinstance(batch, Parameter):
        trainer = trainer_of_hook(batch)
        if trainer is not None:
            return trainer if batch.name != "model" else None
        return _loader_of_lightning_method(batch)
    if isinstance(batch, Element):
        return _loader_inside_wrappers(batch.iterable)
    return None


def trainer_of_hook(parameter: Parameter) -> CallEvent | None:
    """The construction of the trainer whose method, or function for a loss, has this parameter."""
    receiver = parameter.function.receiver
    if isinstance(receiver, Instance) and receiver.construction is not None:
        return receiver.construction if receiver.construction.named(*TRAINERS) else None
    given_by = parameter.given_by
    return given_by if given_by is not None and given_by.named(*TRAINERS) else None


def _loader_of_lightning_method(parameter: Parameter) -> CallEvent | None:
    """The loader whose batches Lightning gives to a method of a module."""
    fit = parameter.given_by
    if fit is None or fit.method not in FITTING_METHODS:
        return None
    step = parameter.function.name
    if fit.method != "fit":
        given = fit.argument(1, "dataloaders")
    elif step == "validation_step":
        given = fit.argument(2, "val_dataloaders")
    else:
        given = fit.argument(1, "train_dataloaders")
    # A data module stands where the loaders would, or under its own name.
    if given is None or isinstance(given, Instance):
        given = _returned_by_dataloader_hook(fit, LOADER_METHODS.get(step, "train_dataloader"))
    return None if given is None else _loader_inside_wrappers(given)


def _returned_by_dataloader_hook(fit: CallEvent, method: str) -> Value | None:
    """What a method of the project gives that Lightning calls by itself."""
    returned = [value for function, value in fit.returned_by_hooks if function.name == method]
    return returned[-1] if returned else None


def _loader_inside_wrappers(value: Value) -> CallEvent | None:
    """The call that made a loader, through what prepares or shows its progress."""
    for _ in range(MAX_STEPS):
        if not isinstance(value, Result):
            break
        call = value.call
        if call.named(*LOADERS):
            return call
        if not call.args or not (
            call.named("tqdm.*", "enumerate", "iter") or call.method == "prepare"
        ):
            break
        value = call.args[0]
    return None
