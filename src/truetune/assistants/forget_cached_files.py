"""Forgets what functions keep of files, so that a server that lives for hours judges the files as they are now.

A command ends before the files that it has read can change, so many functions keep what they read by its path alone.
An assistant edits a file and calls the server again in the same process. So every call begins with empty caches. The
trade-off: what depends on an argument and on no file is computed again too, about 0.2 s of each call (measured by
bench.assistants); caches of functions without arguments depend on no file, and stay.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterator
from functools import _lru_cache_wrapper
from typing import Any


def forget_cached_files() -> None:
    """Clear the caches of all functions of truetune that take an argument."""
    for function in _cached_functions_with_arguments():
        function.cache_clear()


def _cached_functions_with_arguments() -> Iterator[_lru_cache_wrapper[Any]]:
    """Functions with `functools.cache` or `lru_cache` in the modules of truetune that are loaded."""
    # A copy: another thread may import a module meanwhile.
    for name, module in list(sys.modules.items()):
        if not name.startswith("truetune."):
            continue
        for member in list(vars(module).values()):
            if isinstance(member, _lru_cache_wrapper) and inspect.signature(member).parameters:
                yield member
