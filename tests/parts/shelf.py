"""The cache folder: everything in it appears at once, complete, whoever lays it out first."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

from filelock import FileLock


class Missing(Exception):
    """This machine cannot lay something out; the message is the reason to skip with."""


def root() -> Path:
    """`$TRUETUNE_PARTS`, else `~/.cache/truetune-parts`."""
    return (
        Path(os.environ.get("TRUETUNE_PARTS") or Path.home() / ".cache" / "truetune-parts")
        .expanduser()
        .absolute()
    )


def lay(relative: str, fill: Callable[[Path], None]) -> Path:
    """The folder `relative` of the cache; where it is not there yet, `fill` writes it, once for all processes."""
    target = root() / relative
    if target.is_dir():
        return target
    target.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(target.parent / f".{target.name}.lock"):
        if target.is_dir():
            return target
        unfinished = Path(tempfile.mkdtemp(prefix=f".{target.name}-", dir=target.parent))
        try:
            fill(unfinished)
            unfinished.chmod(0o755)
            unfinished.rename(target)
        finally:
            shutil.rmtree(unfinished, ignore_errors=True)
    return target
