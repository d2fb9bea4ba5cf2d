"""Makes a copy of a folder by links, where no overlay can be laid: folders are made, small files
copied, others are links.

Programs write beside what they read: logs into the working folder, locks into a cache. In the double new files and
small old ones can be written. A large one can be read, and not written, since it is a link to what may not be written.
"""

from __future__ import annotations

import os
import shutil
from collections import deque
from contextlib import suppress

# Chosen, not measured: made in well under a second; a working folder with more holds data sets, which nobody edits.
MAX_LINKED_ENTRIES = 5000
"""Entries that are made; folders beyond are links as a whole, and so can't be written to"""
ENVIRONMENT_MARKER = "pyvenv.cfg"
"""What a virtual environment holds: nobody writes there"""


def copy_tree_by_links(source: str, target: str, *, copy_up_to: int = 0) -> str:
    """Make `target` a copy of `source` by links; `source` need not exist. Returns `target`.

    Args:
        source: The folder; hidden folders in it, and virtual environments, are links as a whole.
        target: Made by this.
        copy_up_to: Bytes up to which a file is copied.
    """
    os.makedirs(target)
    # Breadth first, so that the limit cuts the depths and not half of the top.
    waiting = deque([(source, target)])
    entry_count = 0
    while waiting:
        folder, copy = waiting.popleft()
        with suppress(OSError), os.scandir(folder) as entries:
            for entry in entries:
                entry_count += 1
                place = os.path.join(copy, entry.name)
                if _is_folder_copied_by_entries(entry, target) and entry_count < MAX_LINKED_ENTRIES:
                    os.mkdir(place)
                    waiting.append((entry.path, place))
                # A lock that is linked would be taken by a process outside: the program must make its own.
                elif not entry.name.endswith(".lock"):
                    _link_or_copy(entry, place, copy_up_to)
    return target


def _is_folder_copied_by_entries(entry: os.DirEntry[str], target: str) -> bool:
    """Is this a folder whose entries are made one by one? Not the one that holds the copy itself."""
    if not entry.is_dir(follow_symlinks=False) or entry.name.startswith("."):
        return False
    return not os.path.exists(
        os.path.join(entry.path, ENVIRONMENT_MARKER)
    ) and not target.startswith(entry.path + os.sep)


def _link_or_copy(entry: os.DirEntry[str], place: str, copy_up_to: int) -> None:
    """Make one entry of the copy, a link or a copied file; none where it can't be read, as the
    program could not either.
    """
    with suppress(OSError):
        if entry.is_file(follow_symlinks=False) and entry.stat().st_size <= copy_up_to:
            shutil.copy2(entry.path, place)
        else:
            os.symlink(
                os.path.join(os.path.realpath(os.path.dirname(entry.path)), entry.name), place
            )
