"""Files that are there whole or not at all."""

from __future__ import annotations

import os
import re
import secrets
from pathlib import Path

PART = re.compile(r"\.(?P<name>.+)\.\d+\.[0-9a-f]{8}\.part")
"""The name of a file that is being written; `name` is the one that it gets in the end."""


def write(path: Path, body: bytes) -> None:
    """Write `body` to a temporary name beside `path`, bring it to the disk, then give it its name.

    The temporary file is made new: neither a file nor a link that somebody else has put there is ever opened.
    Raises OSError, which names `path`.
    """
    part = path.with_name(f".{path.name}.{os.getpid()}.{secrets.token_hex(4)}.part")
    try:
        handle = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0), 0o666)
        try:
            with open(handle, "wb") as file:
                file.write(body)
                file.flush()
                os.fsync(file.fileno())
            part.replace(path)
        finally:
            part.unlink(missing_ok=True)
    except OSError as error:
        # write() and fsync() of a full disk do not say which file it was
        raise OSError(error.errno, error.strerror or str(error), str(path)) from error


def sync(folder: Path) -> None:
    """Bring the names in a folder to the disk. Raises OSError."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
