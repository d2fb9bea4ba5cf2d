"""Names of calls that read rows, and of methods that take many."""

from __future__ import annotations

TAKES_ROWS = ("head", "take", "select", "sample", "islice")
"""What takes the first rows, by the last name of the call"""


READERS = frozenset(
    ("open", "load_dataset", "load_from_disk", "read_text", "read_csv", "read_json", "read_parquet")
)
"""What reads a file or a data set, by the last name of the call"""
