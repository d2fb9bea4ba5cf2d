"""Record: what one process of a run handed over to be judged.

It crosses from the user's environment to ours as files: `record.json` (facts, rows), `batches.npz` (arrays) and a
folder of the tokenizer; rollouts as `truetune.probe.rollout_step` writes them. The trade-off of JSON over pickled
classes: `facts` are untyped here, but the two environments may hold different releases, and what the user's process
wrote can't run code in ours.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from truetune.parsing.input_limits import RESULT
from truetune.parsing.parse_json_within_limits import parse_json
from truetune.probe.rollout_step import RolloutStep, read_rollout_files

NO_MODEL: Mapping[str, Any] = {
    "class": "", "type": None, "config": {}, "generation_config": None, "attention": None, "dtype": "",
    "embedding_rows": None, "output_rows": None, "parameters": 0, "trainable": 0,
    "trainable_in_matrices": 0, "trainable_names": [],
    "adapter": None, "accepts": [], "training": True, "dropout": 0.0, "trained_dtypes": [], "quantized": False,
}  # fmt: skip
"""The facts of a record on a model where there is none"""
Arrays = dict[str, NDArray[Any]]
"""A micro-batch as the collator made it: key -> array, as a rule (rows, tokens)"""


@dataclass
class Record:
    """What one process saw. `facts` holds JSON alone.

    - rank, world: of this process
    - versions: package -> version
    - trainer: {class, bases, kind (sft, dpo, kto, orpo, reward, loop), collator,
      own_loss (is it the user's own code?), loss (which function computes it: `computed_loss.LossFacts`)}
    - args: the training arguments
    - model: {class, type, config, generation_config, attention, dtype, embedding_rows, output_rows, parameters,
      trainable, trainable_in_matrices (of these weights, those in tensors of two dimensions or more), trainable_names,
      adapter, accepts (names of forward's arguments), training (is it in train() mode?), dropout (the highest of its
      modules), trained_dtypes, quantized}; empty where there is no model
    - tokenizer: {class, padding_side, pad, bos, eos, name}, or null
    - data: {given: {rows, columns} before the trainer's preparation or null, prepared: {rows, columns}, numbers (of
      `rows`), used (columns that reach the collator)}
    - batches: {indices (rows of the prepared data) or null} of each micro-batch
    - laws: name -> outcome, see `truetune.probe.laws.measure_laws`
    - canary: see `truetune.probe.trace_canary_row_through_trainer.trace_canary`
    - recitation: see `truetune.checks.recitation.recitation_record.Recitation`; of a rehearsal alone
    - mutation: see `truetune.probe.faults_put_into_memorised_batch.measure_row_mutants`; of a rehearsal with faults
      alone
    - notes: sentences on what could not be looked at, and why
    - lost: why the rest of the audit is missing, where it is
    - rollouts_follow: why no batch can be read, where a record of the first rollouts comes later
    """

    facts: dict[str, Any]
    batches: list[Arrays] = field(default_factory=list)
    rows: list[dict[str, Any]] = field(default_factory=list)
    """Given rows from which the batches may come, as JSON; `facts["data"]["numbers"]` are their numbers (0-based)"""
    prepared: list[dict[str, Any]] = field(default_factory=list)
    """The rows of the batches as the collator was given them, in order, as JSON; batch after batch"""
    tokenizer: Path | None = None
    """A folder that `save_pretrained` wrote"""
    rollouts: tuple[RolloutStep, ...] = ()
    """Of a trainer that samples its answers; a record with rollouts holds nothing else"""


def write_record_files(record: Record, folder: Path) -> None:
    """Write a record whose tokenizer, if any, is already at `folder / "tokenizer"`; record.json comes last.

    Of a record that was written before, only record.json is written again: its batches are the same.
    """
    folder.mkdir(parents=True, exist_ok=True)
    if not (folder / "record.json").exists():
        arrays = {
            f"{i}/{key}": array
            for i, batch in enumerate(record.batches)
            for key, array in batch.items()
        }
        with open(folder / "batches.npz", "wb") as file:
            np.savez(file, **arrays)  # type: ignore[arg-type]
    text = json.dumps({"facts": record.facts, "rows": record.rows, "prepared": record.prepared})
    temporary = folder / "record.json.tmp"
    with open(temporary, "w", encoding="utf-8", errors="surrogatepass") as out:
        out.write(text)
        out.flush()
        os.fsync(out.fileno())
    os.replace(temporary, folder / "record.json")


def read_record(folder: Path) -> Record:
    """Read the record in a folder. Raises OSError or ValueError where it holds no whole record."""
    content = parse_json(
        (folder / "record.json").read_text(encoding="utf-8", errors="surrogatepass"), RESULT
    )
    batches: dict[int, Arrays] = {}
    with np.load(folder / "batches.npz", allow_pickle=False) as arrays:
        for name in arrays.files:
            number, _, key = name.partition("/")
            batches.setdefault(int(number), {})[key] = arrays[name]
    tokenizer = folder / "tokenizer"
    rollouts = read_rollout_files(folder)
    return Record(
        content["facts"],
        [
            batches.get(i, {}) for i in range(len(content["facts"]["batches"]))
        ],  # one without a tensor has no array
        content["rows"],
        content["prepared"],
        tokenizer if tokenizer.is_dir() else None,
        rollouts,
    )
