"""Unpacks the large files of this start."""

from __future__ import annotations

from pathlib import Path

from bench.starts.material import unpack_large_files


def make(target: Path) -> None:
    """Put them in place."""
    unpack_large_files(target)
