"""A folder's double for where no overlay can be laid: folders are made, small files copied, others are links.

Programs write beside what they read: logs into the working folder, locks into a cache. In the double new files and
small old ones can be written. A large one can be read, and not written, since it is a link to what may not be written.
"""

from __future__ import annotations

import os
import shutil
from collections import deque
from contextlib import suppress

MOST = 5000
"""Entries that are made; folders beyond are links as a whole, and so can't be written to"""
ENVIRONMENT = "pyvenv.cfg"
"""What a virtual environment holds: nobody writes there"""


def double(source: str, target: str, *, copy_up_to: int = 0) -> str:
    """Make `target` a double of `source`, which need not exist; the widest folders first. Returns `target`.

    Args:
        source: The folder; hidden folders in it, and virtual environments, are links as a whole.
        target: Made by this.
        copy_up_to: Bytes up to which a file is copied.
    """
    os.makedirs(target)
    waiting = deque([(source, target)])
    made = 0
    while waiting:
        folder, copy = waiting.popleft()
        with suppress(OSError), os.scandir(folder) as entries:
            for entry in entries:
                made += 1
                place = os.path.join(copy, entry.name)
                if _is_to_be_entered(entry, target) and made < MOST:
                    os.mkdir(place)
                    waiting.append((entry.path, place))
                elif not entry.name.endswith(".lock"):
                    _give(entry, place, copy_up_to)
    return target


def _is_to_be_entered(entry: os.DirEntry[str], target: str) -> bool:
    if not entry.is_dir(follow_symlinks=False) or entry.name.startswith("."):
        return False
    return not os.path.exists(os.path.join(entry.path, ENVIRONMENT)) and not target.startswith(
        entry.path + os.sep
    )


def _give(entry: os.DirEntry[str], place: str, copy_up_to: int) -> None:
    with suppress(OSError):
        if entry.is_file(follow_symlinks=False) and entry.stat().st_size <= copy_up_to:
            shutil.copy2(entry.path, place)
        else:
            os.symlink(
                os.path.join(os.path.realpath(os.path.dirname(entry.path)), entry.name), place
            )
