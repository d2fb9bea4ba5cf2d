"""Reading the project's own sources, for tests that look at all of them."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def without_collections() -> Iterator[None]:
    """Collect no garbage in this block: for reading many syntax trees, one after the other.

    The trees of all sources are two million objects without a circle. Collections visited them again and again, which
    took three times as long as the parsing. Trees that are kept cost as much at each later collection: keep what was
    found in them.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
