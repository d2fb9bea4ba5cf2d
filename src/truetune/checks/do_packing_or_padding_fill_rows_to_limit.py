"""Finds what fills rows to the length limit of a run (packing, padding), and how long the rows are
themselves.
"""

from __future__ import annotations

from typing import NamedTuple

from truetune.checks.config.evidence.columns_and_age_of_training_files import local_data_files
from truetune.checks.read_files_beside_log import length_limit_and_row_filling_of_config
from truetune.data.row_text_bytes import text_bytes_of_first_rows_and_if_all
from truetune.errors import TruetuneError
from truetune.logs.console.explain_out_of_memory_with_advice import LEAST_LIMIT, USUAL_LIMIT
from truetune.logs.facts_in_files_beside_log import FILLED_TO_LIMIT, LENGTH_LIMIT
from truetune.settings.config import Config


class FilledRows(NamedTuple):
    """Rows that are filled to the limit."""

    note: str
    """What fills them, and how long they are"""
    needed: int
    """Tokens that hold each row; the usual length where the rows are not seen"""


def find_what_fills_rows(config: Config) -> FilledRows | None:
    """What fills the rows of a run; None where nothing does."""
    settings = list(length_limit_and_row_filling_of_config(config))
    limit = next((one for one in settings if one.name == LENGTH_LIMIT), None)
    fillings = [one for one in settings if one.name == FILLED_TO_LIMIT]
    if limit is None or not fillings or not isinstance(limit.value, int):
        return None
    by = " and ".join(f"{one.text} ({one.place})" for one in fillings)
    note = (
        f"each row has {limit.value:,} tokens, however short the data's rows are: {by}"
        f" fill{'s' if len(fillings) == 1 else ''} it to {limit.key} ({limit.place})"
    )
    longest, which = _longest_row_bytes_and_source(config)
    if longest is None:
        return FilledRows(f"{note}; lower that where no row of the data is so long", USUAL_LIMIT)
    needed = max(LEAST_LIMIT, 1 << max(longest - 1, 0).bit_length())
    return FilledRows(f"{note}; {which} {longest:,} bytes of text", needed)


def _longest_row_bytes_and_source(config: Config) -> tuple[int | None, str]:
    """Bytes of the longest row, and of which rows; None where no row can be read."""
    if not config.spec.data:
        return None, ""
    try:
        files = [one for name in config.spec.data for one in local_data_files(name)]
        sizes, is_whole = text_bytes_of_first_rows_and_if_all(files)
    except (TruetuneError, OSError, ValueError):
        return None, ""
    if not sizes:
        return None, ""
    which = (
        "the longest row has" if is_whole else f"the longest of the first {len(sizes):,} rows has"
    )
    return max(sizes), which
