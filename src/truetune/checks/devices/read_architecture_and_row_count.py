"""Reads the size of a run, for the rules on devices: the architecture of its model and the number
of its rows.

Both are read from files on this machine; what is not here is unknown (None), and nothing is downloaded for it. Rows are
counted without parsing them: lines of JSON Lines, the footer of a parquet file. The trade-off: a file of another kind,
or a very large one, leaves the count unknown, and the rules say less.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from truetune.cached_for_one_call import cached_for_one_call
from truetune.checks.config.evidence.facts_from_model_folder import local_model_folder
from truetune.errors import SpecError
from truetune.memory.matrices_and_parameters_from_config import Architecture, read_architecture
from truetune.parsing.read_parquet_and_arrow_within_limits import UNREADABLE, open_parquet
from truetune.settings.config import Config

# Chosen, not measured: a pass over it takes seconds, and `truetune check` should not take longer than that for a count.
# Half would leave common data sets of 1 to 2 GB uncounted; double would only be slower.
MAX_COUNTED_BYTES = 2 << 30


def find_local_architecture(config: Config) -> Architecture | None:
    """The model's architecture; None where its config.json is not on this machine, or is none of a decoder."""
    model_folder = local_model_folder(config)
    if model_folder is None or not (model_folder / "config.json").is_file():
        return None
    try:
        return _read_architecture(model_folder)
    except SpecError:
        return None


# Four rules ask for it in one check.
@cached_for_one_call
def _read_architecture(model_folder: Path) -> Architecture:
    """The architecture in a folder's config.json, read once."""
    return read_architecture(model_folder)


def count_rows_without_parsing(paths: Sequence[str]) -> int | None:
    """The number of rows of JSON Lines and parquet files, counted without parsing them; None if a
    file is of another kind, not here, or very large.
    """
    total = 0
    for name in paths:
        path = Path(name)
        if not path.is_file() or path.stat().st_size > MAX_COUNTED_BYTES:
            return None
        if path.suffix == ".jsonl":
            with path.open("rb") as file:
                total += sum(1 for line in file if line.strip())
        elif path.suffix == ".parquet":
            try:
                total += open_parquet(path).metadata.num_rows
            except UNREADABLE:
                return None
        else:
            return None
    return total if paths else None


def count_eval_rows(config: Config) -> int | None:
    """Rows of the evaluation: its own files, else what is held out of the training data."""
    held_out, spec = config.spec.training.val_size, config.spec
    if spec.eval_data:
        return count_rows_without_parsing(spec.eval_data)
    if held_out is None or held_out <= 0:
        return None
    # As in scikit-learn's train_test_split: from 1 on it is a number of rows, below it a share of them.
    if held_out >= 1:
        return int(held_out)
    rows = count_rows_without_parsing(spec.data)
    return None if rows is None else int(rows * held_out)
