"""The evaluation loss is the same whatever the evaluation batch size."""

from __future__ import annotations

from typing import Any

import torch
from torch.utils.data import IterableDataset

from truetune.probe.laws import Cost
from truetune.probe.measuring.law_input_and_result_types import Measured, Trial, Untested

COST: Cost = "quick"
# Chosen, not measured: one or two batches of the usual sizes.
MAX_ROWS = 8
# Of the loss: a mean of batch means over rows of alike losses stays below. docs/laws.md has 9e-5 for a correct run on
# eight architectures, and 0.13 for the fault.
TOLERANCE = 0.05


def measure_law(trial: Trial) -> Measured:
    """The loss of a handful of evaluation rows, one by one and in batches of the size that the run evaluates with,
    averaged as the trainer does: the mean over batches, each weighed by its rows."""
    # One by one is the loss of each row; in batches, rows of many tokens outweigh the others where the loss is a mean
    # over tokens.
    rows, collate, size = _evaluation_rows_collator_and_batch_size(trial)
    alone = [_evaluation_loss(trial, collate, [row]) for row in rows]
    groups = [rows[i : i + size] for i in range(0, len(rows), size)]
    together = [_evaluation_loss(trial, collate, group) for group in groups]
    one = _weighted_mean_without_nan(alone, [1] * len(rows))
    many = _weighted_mean_without_nan(together, [len(group) for group in groups])
    counts = [_count_labels_in_loss(collate([row])) for row in rows]
    evidence = {
        "batches of 1": one,
        f"batches of {size}": many,
        "size": size,
        "rows": len(rows),
        "labels": counts,
    }
    if sum(counts):
        evidence["over tokens"] = _weighted_mean_without_nan(alone, counts)
    return Measured(
        abs(many - one) / max(abs(one), 1e-12),
        TOLERANCE,
        "relative difference of the loss",
        evidence,
    )


def _evaluation_rows_collator_and_batch_size(trial: Trial) -> tuple[list[Any], Any, int]:
    """Evaluation rows as the trainer prepares them, its collator, and its batch size."""
    trainer = trial.trainer
    data = getattr(trainer, "eval_dataset", None)
    if isinstance(data, dict):
        data = next(iter(data.values()), None)
    if data is None or not hasattr(trainer, "prediction_step"):
        raise Untested("the run does not evaluate")
    if isinstance(data, IterableDataset) or not hasattr(data, "__getitem__"):
        raise Untested("the evaluation data is a stream")
    if getattr(trainer.args, "world_size", 1) > 1:
        raise Untested("several processes would have to evaluate together")
    prepared = getattr(trainer.accelerator, "_dataloaders", [])
    before = len(prepared)
    try:
        loader = trainer.get_eval_dataloader(data)
    finally:
        # accelerate keeps each loader that it has prepared, and would save the state of this one with a checkpoint.
        del prepared[before:]
    size = min(trainer.args.per_device_eval_batch_size, MAX_ROWS)
    count = min(len(loader.dataset), MAX_ROWS)
    if size < 2 or count < 2:
        raise Untested("the evaluation batch is one row")
    return [loader.dataset[i] for i in range(count)], loader.collate_fn, size


def _evaluation_loss(trial: Trial, collate: Any, rows: list[Any]) -> float:
    """The loss of one batch of these rows, by the trainer's own `prediction_step`."""
    trial.model.eval()
    with torch.no_grad():
        loss = trial.trainer.prediction_step(trial.model, collate(rows), True)[0]
    if loss is None:
        raise Untested("the trainer computes no loss when it evaluates")
    return float(loss.mean())


def _weighted_mean_without_nan(values: list[float], weights: list[int]) -> float:
    """Rows without a label have no loss (nan), and no part in it, as the trainer's log has it."""
    kept = [
        (value, weight) for value, weight in zip(values, weights, strict=True) if value == value
    ]
    return sum(value * weight for value, weight in kept) / max(sum(weight for _, weight in kept), 1)


def _count_labels_in_loss(batch: Any) -> int:
    """Labels of a batch that are in the loss: the first token of a line is predicted by none."""
    labels = batch.get("labels") if hasattr(batch, "get") else None
    return int((labels[..., 1:] != -100).sum()) if isinstance(labels, torch.Tensor) else 0
