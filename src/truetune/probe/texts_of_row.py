"""The texts that a row of a data set holds.

Apart from the search for rows, which needs torch: rules read rows as well, where torch is not installed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any


def texts_in(value: Any) -> Iterator[str]:
    """Yield all texts of a row, however deep they stand in it."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from texts_in(item)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from texts_in(item)
