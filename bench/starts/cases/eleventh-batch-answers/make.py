"""Puts Qwen's tokenizer into the merged model's folder, and unpacks large files."""

from __future__ import annotations

from pathlib import Path

from bench.starts.material import unpack_large_files
from tests.parts.lay_out import tokenizer_folder


def make(target: Path) -> None:
    """Put them in place."""
    unpack_large_files(target)
    vocabulary = tokenizer_folder("qwen2.5-base") / "tokenizer.json"
    (target / "merged" / "tokenizer.json").symlink_to(vocabulary)
