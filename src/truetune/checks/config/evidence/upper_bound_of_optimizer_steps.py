"""Computes an upper bound of the optimizer steps that a run makes, with the arithmetic.

The rows of all training files are counted, and divided by batch, accumulation and processes. It is a bound from above:
what drops or packs rows makes a run shorter, and a file that is too large to count makes it unknown.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import IO

from truetune.checks.config.evidence.columns_and_age_of_training_files import local_data_files
from truetune.checks.config.evidence.setting_places_and_known_keys import (
    is_value_unknown,
    numbered_tables_of_list,
)
from truetune.checks.count_optimizer_steps import OptimizerSteps, count_optimizer_steps
from truetune.data.find_data_files import DataFile, open_decompressed_bytes, open_raw
from truetune.data.read_file_records import is_one_json_array, read_records
from truetune.errors import DataError
from truetune.parsing.decompress_within_limits import UNREADABLE
from truetune.parsing.read_parquet_and_arrow_within_limits import open_parquet
from truetune.settings.config import Config
from truetune.settings.stacks.find_who_reads_config_or_starts_script import (
    launched_process_count_and_command,
)

MAX_TEXT_BYTES = 2_000_000_000
"""Bytes of a JSONL file that are counted by lines."""
# Above it the product of rows and epochs is no plan of a run; the value is left to `setting-out-of-range`.
MAX_EPOCHS = 1e6
SYSTEM_PROMPT_TOKENS = 64
"""Tokens that a template adds to a row without a text in the file: the longest default system prompts have 50"""
MAX_PARSED_BYTES = 50_000_000
"""Bytes of a file that has to be parsed to be counted."""


@dataclass(frozen=True, slots=True)
class TrainingRows:
    """Training rows of the files that are available."""

    count: int
    why: str
    """How they were counted, one line"""


def max_steps_of_run(config: Config) -> OptimizerSteps | None:
    """How many optimizer steps a run makes at most; None where neither a limit nor the rows are known.

    It is an upper bound: rows that are dropped or packed make it smaller.
    """
    training = config.spec.training
    if training.max_steps is not None and training.max_steps > 0:
        why = f"max_steps: {training.max_steps:,}"
        return OptimizerSteps(training.max_steps, why, is_limit=True)
    if is_value_unknown(config, "max_steps"):
        return None
    rows = count_training_rows(config)
    return None if rows is None else _max_steps_by_rows(config, rows)


def _max_steps_by_rows(config: Config, rows: TrainingRows) -> OptimizerSteps | None:
    """The steps that the rows make at most; None where the batch or the epochs are not known."""
    training = config.spec.training
    size, epochs = training.per_device_train_batch_size, training.num_train_epochs
    if size is None or size < 1:
        return None
    if epochs is None or not 0 < epochs < MAX_EPOCHS:
        return None
    processes, command = _number_of_processes_and_command(config)
    packed = _max_sequences_after_packing(config, rows)
    counted = packed or rows
    return count_optimizer_steps(
        counted.count,
        f"{counted.why}; {processes} processes: {command}" if command else counted.why,
        batch=size,
        accumulation=max(1, training.gradient_accumulation_steps or 1),
        processes=processes,
        epochs=epochs,
        is_packed=packed is not None,
    )


def _max_sequences_after_packing(config: Config, rows: TrainingRows) -> TrainingRows | None:
    """The sequences that packing makes of the rows at most; None where it joins none for certain, or is off."""
    limit, text = config.limit, training_bytes(config)
    if not config.spec.training.packing or not limit or text is None:
        return None
    # No tokenizer makes more tokens than there are bytes, and the markers of a template are fewer than those of JSON,
    # beside a default system prompt. First fit leaves every sequence but one at least half full.
    most = 2 * (text + SYSTEM_PROMPT_TOKENS * rows.count) // limit + 1
    if most >= rows.count:
        return None
    why = f"{rows.why}, {text:,} bytes: packed into at most {most:,} sequences of {limit:,} tokens"
    return TrainingRows(most, why)


def _number_of_processes_and_command(config: Config) -> tuple[int, str]:
    """The number of processes that train, and the command that says so; the command is empty where
    the settings say it.
    """
    processes = config.spec.training.devices
    if processes != 1 or not config.path:
        return processes, ""
    # A script, or settings that an option of the launcher completes, say nothing of the processes themselves.
    return launched_process_count_and_command(Path(config.path)) or (1, "")


def count_training_rows(config: Config) -> TrainingRows | None:
    """The rows of a run with their arithmetic; None where a data set is not here, or a row may become several."""
    if _may_example_count_differ_from_rows(config) or config.spec.training.other.get("datasets"):
        return None
    files = config.spec.data or config.row_files
    if not files:
        return _rows_printed_by_notebook(config)
    total, parts = 0, []
    for name in files:
        count = count_rows(name)
        if count is None:
            return None
        used = rows_within_max_samples(config, count)
        total += used
        part = f"{Path(name).name} holds {count:,} rows"
        parts.append(f"{part}, max_samples {used:,}" if used < count else part)
    # `dataset.select(range(n))` in a script, which is seen only as a limit on all rows.
    if config.row_limit is not None and config.row_limit < total:
        total = config.row_limit
        parts.append(f"the code keeps {total:,} of them")
    held_out = _number_of_held_out_rows(config.spec.training.val_size or 0, total)
    if held_out:
        parts.append(f"{held_out:,} held out")
    return TrainingRows(total - held_out, "; ".join(parts))


def _rows_printed_by_notebook(config: Config) -> TrainingRows | None:
    """The rows that the output of a notebook prints; None where it prints none."""
    printed = config.printed_rows
    if printed is None:
        return None
    return TrainingRows(printed, f"the output prints {printed:,} rows")


def rows_within_max_samples(config: Config, count: int) -> int:
    """The rows that LLaMA-Factory takes of one data set: `max_samples` limits each, not their sum."""
    limit = config.raw.get("max_samples") if config.stack == "llama-factory" else None
    return min(count, limit) if isinstance(limit, int) and limit > 0 else count


def _may_example_count_differ_from_rows(config: Config) -> bool:
    """May one row become several examples, or is the number of rows not that of the files?"""
    training = config.spec.training
    if config.stack == "truetune" and config.spec.history != "single":
        return True
    if training.method in ("pretrain", "grpo") or config.raw.get("streaming"):
        return True
    if training.packing and training.packing_strategy in ("wrapped", "bfd_split"):
        return True
    return any(
        "completion" in str(item.get("type"))
        for _, item in numbered_tables_of_list(config, "datasets")
    )


def _number_of_held_out_rows(held: float, total: int) -> int:
    """How many of the rows are held out: a share below 1, rounded up as train_test_split does, or a number of rows."""
    if 0 < held < 1:
        return math.ceil(total * held)
    return int(held) if 1 <= held < total else 0


def count_rows(name: str) -> int | None:
    """Rows of a local file or folder; None where it is not here, or too large to count."""
    sources = local_data_files(name)
    try:
        return (
            sum(_count_rows_of_source(source, *_time_and_size(source)) for source in sources)
            if sources
            else None
        )
    except (DataError, OverflowError, *UNREADABLE):
        return None


def _time_and_size(source: DataFile) -> tuple[int, int]:
    """The time of change and the size of a file, by which a changed file is told."""
    stat = Path(str(source.path)).stat()
    return stat.st_size, stat.st_mtime_ns


@lru_cache(maxsize=64)
def _count_rows_of_source(source: DataFile, size: int, _changed: int) -> int:
    """Count the rows of a file, once for each state of it. Raises OverflowError for a file that is
    too large.
    """
    with open_raw(source.path) as raw:
        if source.kind == "parquet":
            return int(open_parquet(raw).metadata.num_rows)
        if source.kind == "jsonl" and not is_one_json_array(source.path, raw):
            if size > MAX_TEXT_BYTES:
                raise OverflowError
            return _count_lines(open_decompressed_bytes(raw, source.path))
        if size > MAX_PARSED_BYTES:
            raise OverflowError
        return sum(1 for _ in read_records(source, raw))


def _count_lines(file: IO[bytes]) -> int:
    """The lines of a file that hold something."""
    return sum(1 for line in file if not line.isspace())


def training_bytes(config: Config) -> int | None:
    """Size of the training files; None where one is not available, or is no text."""
    named = [local_data_files(name) for name in config.spec.data or config.row_files]
    if (
        not named
        or not all(named)
        or any(
            source.kind not in ("jsonl", "json", "csv") for sources in named for source in sources
        )
    ):
        return None
    try:
        return sum(_time_and_size(source)[0] for sources in named for source in sources)
    except OSError:
        return None
