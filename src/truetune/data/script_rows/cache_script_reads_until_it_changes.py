"""Keeps what was read of a script in memory until the script, or a file beside it, changes.

The rows of a script are asked for by many rules, and following it takes a second. The trade-off: data that lie in
another folder may change unseen, and then one process keeps the rows of before.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import lru_cache, wraps
from hashlib import blake2b
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, TypeVar

from truetune.parsing.input_limits import SETTINGS, InputLimitError
from truetune.parsing.read_files_within_limits import read_bytes_within_limit

MAX_ENTRIES = 500
"""Entries of the folder that are looked at. Chosen, not measured: listing them takes a millisecond, and a folder with
thousands holds no scripts"""
MAX_KEPT = 8
"""Results of one function. Chosen, not measured: a project has a few scripts, and rows may take some megabytes"""

Arguments = ParamSpec("Arguments")
Read = TypeVar("Read")


def kept_while_script_unchanged(
    read: Callable[Concatenate[str, Arguments], Read],
) -> Callable[Concatenate[str, Arguments], Read]:
    """Decorator that keeps the result of a function for a script, its first argument, until the
    script or its folder changes.
    """

    def read_in_state(script: str, state: str, *arguments: Any, **named: Any) -> Read:
        return read(script, *arguments, **named)

    kept: Callable[..., Read] = lru_cache(maxsize=MAX_KEPT)(read_in_state)

    @wraps(read)
    def read_if_changed(
        script: str, /, *arguments: Arguments.args, **named: Arguments.kwargs
    ) -> Read:
        return kept(script, fingerprint_of_script_and_folder(script), *arguments, **named)

    return read_if_changed


def fingerprint_of_script_and_folder(script: str) -> str:
    """A text that is another one where the script, or a file beside it, has changed; empty where it can't be read.

    The script counts by what it holds: two versions that are written within one tick of the clock, as tests and
    notebooks do, have one time of change.
    """
    state = blake2b(digest_size=16)
    path = Path(script)
    try:
        state.update(read_bytes_within_limit(path, SETTINGS))
        with os.scandir(path.parent) as entries:
            for entry, _ in zip(entries, range(MAX_ENTRIES), strict=False):
                beside = entry.stat(follow_symlinks=False)
                state.update(
                    f"{entry.name}\0{beside.st_size}\0{beside.st_mtime_ns}\0".encode(
                        "utf-8", "replace"
                    )
                )
    except (OSError, InputLimitError):
        return ""
    return state.hexdigest()
