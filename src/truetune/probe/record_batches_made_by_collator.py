"""Records the batches that a collator makes of given rows: for live objects, where no run exists yet.

The rows stand in for a data set, and each batch holds `size` of them in order. The trade-off: without a trainer there
is no loss, so no law is measured.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch.utils.data import DataLoader

from truetune.probe.record_run_ready_to_train import observe_run, tokenizer_facts
from truetune.probe.run_record import Record


def observe_collator(
    folder: Path,
    rows: Sequence[Any],
    source_data: Sequence[Any],
    *,
    tokenizer: Any,
    collator: Any,
    model: Any,
    size: int,
) -> Record:
    """A record of all rows in batches of `size`; without a collator each row of ids is a batch of its own.

    Args:
        folder: what the record may write into; the tokenizer is in it.
        rows: what the collator is given.
        source_data: the rows before any preparation, by which tokens are recognised.
        tokenizer: of transformers, or a processor that holds one.
        collator: makes a batch of a list of rows; None for rows of ids.
        model: None where there is none.
        size: rows in one batch.

    Raises what the collator raises.
    """
    collate = _single_row_as_batch if collator is None else collator
    loader: Any = DataLoader(list(rows), batch_size=size, collate_fn=collate)  # type: ignore[arg-type]
    record = observe_run(
        folder, model=model, loader=loader, source_data=source_data, count=len(rows)
    )
    # Not given to `observe_run`: it would save the tokenizer again, which takes a second for a large vocabulary.
    record.facts["tokenizer"] = tokenizer_facts(getattr(tokenizer, "tokenizer", tokenizer))
    return record


def _single_row_as_batch(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The only row as a batch of one line, without its columns of texts."""
    (row,) = rows
    return {
        key: torch.as_tensor(value)[None]
        for key, value in row.items()
        if not _holds_other_than_numbers(value)
    }


def _holds_other_than_numbers(value: Any) -> bool:
    """Is it, or does it hold, what is no number?"""
    if isinstance(value, list | tuple):
        return any(_holds_other_than_numbers(item) for item in value[:1])
    return not (isinstance(value, int | float) or hasattr(value, "dtype"))
