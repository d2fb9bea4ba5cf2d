"""Keeps what a function read of files until the next call of truetune, since files may change between two calls.

Rules ask for the same folder many times in one check, so what is read of it is kept. A notebook or a server calls again
after its user has edited a file: each call of the public API begins with `clear_one_call_caches`, and judges the files
as they are now. Functions whose cache is keyed by a file's time of change too need neither.

The trade-off: two calls that run at the same time in threads empty each other's caches, and read a file once more.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, wraps
from typing import ParamSpec, TypeVar

# Folders and tokenizers of one check; more than a project has. What is dropped is read again.
MAX_KEPT_RESULTS = 64

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")

_CLEARERS: list[Callable[[], None]] = []


def cached_for_one_call(function: Callable[Arguments, Result]) -> Callable[Arguments, Result]:
    """Keep the results of a function until `clear_one_call_caches`; its arguments must be hashable."""
    kept = lru_cache(maxsize=MAX_KEPT_RESULTS)(function)
    _CLEARERS.append(kept.cache_clear)

    @wraps(function)
    def read_or_kept(*args: Arguments.args, **named: Arguments.kwargs) -> Result:
        return kept(*args, **named)  # type: ignore[arg-type]

    return read_or_kept


def clear_one_call_caches() -> None:
    """Empty the caches of all functions with `cached_for_one_call`; called at the begin of each public call."""
    for clear in _CLEARERS:
        clear()
