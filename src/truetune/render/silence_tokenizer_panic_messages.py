"""Withholds the report that the Rust code of `tokenizers` writes to file descriptor 2 where it panics.

No setting of Rust's keeps that text away, and Python's sys.stderr never sees it. So descriptor 2 leads into a temporary
file for as long as a tokenizer is loaded. That is safe only where nobody else can write or fork meanwhile: in a process
with one Python thread. Elsewhere nothing is redirected, and the text stands before the error. A crash of the process
within this moment takes what it wrote there with it; that is the price.
"""

from __future__ import annotations

import os
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager

STDERR = 2
"""The file descriptor, which Rust code writes to without asking Python"""


def is_panic(error: BaseException) -> bool:
    """Is this what Rust code raises where it panics? Its class is in no module that can be imported."""
    return type(error).__name__ == "PanicException"


@contextmanager
def panic_text_withheld() -> Iterator[None]:
    """Keep back what is written to descriptor 2; show it at the end, unless a panic is raised."""
    # Another thread could write to descriptor 2 meanwhile, and its words would be held back, or fork, and a child
    # would keep the temporary file for its stderr.
    if threading.active_count() > 1:
        yield
        return
    try:
        stderr = os.dup(STDERR)
    except OSError:  # it is closed
        yield
        return
    with os.fdopen(stderr, "wb", buffering=0) as real_stderr, tempfile.TemporaryFile() as withheld:
        if sys.stderr is not None:
            sys.stderr.flush()
        os.dup2(withheld.fileno(), STDERR)
        panicked = False
        try:
            yield
        except BaseException as error:
            panicked = is_panic(error)
            raise
        finally:
            if sys.stderr is not None:
                sys.stderr.flush()
            os.dup2(real_stderr.fileno(), STDERR)
            withheld.seek(0)
            if not panicked:
                # Warnings of a library that worked are the user's.
                real_stderr.write(withheld.read())
