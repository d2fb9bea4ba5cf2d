"""Writes files so that they are there whole or not at all."""

from __future__ import annotations

import os
import re
import secrets
from pathlib import Path

# It begins with a dot, so that globs and `ls` pass it over; a run that was killed leaves one
# behind, and the next command knows by this pattern that it is nobody's data.
PARTIAL_NAME = re.compile(r"\.(?P<name>.+)\.\d+\.[0-9a-f]{8}\.part")
"""The name of a file that is being written; `name` is the one that it gets in the end."""


def write_atomically(path: Path, body: bytes) -> None:
    """Write `body` to a temporary name beside `path`, bring it to the disk, then give it its name.

    The temporary file is made new: neither a file nor a link that somebody else has put there is ever opened.
    Raises OSError, which names `path`.
    """
    # Beside the target and not in /tmp: a rename is atomic inside one file system alone.
    part = path.with_name(f".{path.name}.{os.getpid()}.{secrets.token_hex(4)}.part")
    try:
        handle = os.open(
            # O_EXCL fails where the name is taken, a dangling link included; a plain open would
            # follow it. O_BINARY: without it Windows turns each line feed into two bytes.
            part,
            os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0),
            0o666,
        )
        try:
            with open(handle, "wb") as file:
                file.write(body)
                file.flush()
                # Before the rename: ext4 may else write the new name first, and a power cut leaves
                # an empty file.
                os.fsync(file.fileno())
            part.replace(path)
        finally:
            part.unlink(missing_ok=True)
    except OSError as error:
        # write() and fsync() of a full disk do not say which file it was
        raise OSError(error.errno, error.strerror or str(error), str(path)) from error


def sync_folder_to_disk(folder: Path) -> None:
    """Flush the names in a folder to the disk. Raises OSError."""
    # A rename is a change of the folder; it survives a power cut only once the folder itself is
    # synced.
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


class PartialFile:
    """A file that is being written under a temporary name beside its own; nobody sees it before it is whole.

    As a context it is gone at the end, but where it was published.
    """

    def __init__(self, path: Path) -> None:
        """Raises OSError, which names `path`."""
        self.path = path
        self._part = path.with_name(f".{path.name}.{os.getpid()}.{secrets.token_hex(4)}.part")
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0)
        try:
            # Not in a `with`: the file outlives this function, and `__exit__` closes it.
            self.file = open(os.open(self._part, flags, 0o666), "wb")  # noqa: SIM115
        except OSError as error:
            raise OSError(error.errno, error.strerror or str(error), str(path)) from error

    def __enter__(self) -> PartialFile:
        """The file itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Remove the temporary name; where it was published, nothing has that name any more."""
        self.file.close()
        self._part.unlink(missing_ok=True)

    def finish(self) -> None:
        """Flush all that was written to the disk. Raises OSError."""
        self.file.flush()
        os.fsync(self.file.fileno())
        self.file.close()

    def publish(self) -> None:
        """Give the file its real name; a file that had it is replaced. Raises OSError."""
        self._part.replace(self.path)

    def temporary_path(self) -> Path:
        """The path of the file until it is moved into place."""
        return self._part
