"""What the rules on devices ask about the model, the rows and the settings of a stack."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path

from truetune.checks.config.model import folder
from truetune.errors import SpecError
from truetune.memory.architecture import Architecture, read_architecture
from truetune.parsing.columnar_reader import UNREADABLE, open_parquet
from truetune.spec.config import Config

LARGEST = 2 << 30
"""Bytes of files whose rows are counted"""


def architecture(config: Config) -> Architecture | None:
    """The model's architecture; None where its config.json is not on this machine, or is none of a decoder."""
    where = folder(config)
    if where is None or not (where / "config.json").is_file():
        return None
    try:
        return _read(where)
    except SpecError:
        return None


@lru_cache(maxsize=8)
def _read(where: Path) -> Architecture:
    return read_architecture(where)


def count(paths: Sequence[str]) -> int | None:
    """Rows of JSON Lines and parquet files; None where a file is of another kind, not here, or very large."""
    total = 0
    for name in paths:
        path = Path(name)
        if not path.is_file() or path.stat().st_size > LARGEST:
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


def eval_rows(config: Config) -> int | None:
    """Rows of the evaluation: its own files, else what is held out of the training data."""
    held, spec = config.spec.training.val_size, config.spec
    if spec.eval_data:
        return count(spec.eval_data)
    if held is None or held <= 0:
        return None
    if held >= 1:
        return int(held)
    rows = count(spec.data)
    return None if rows is None else int(rows * held)
