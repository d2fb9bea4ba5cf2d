"""Puts the tokenizer of the model in place, and unpacks the large files."""

from __future__ import annotations

from pathlib import Path

from bench.starts.material import link_tokenizer, unpack_large_files


def make(target: Path) -> None:
    """Put them in place."""
    unpack_large_files(target)
    link_tokenizer("qwen2.5-instruct", target / "models/Qwen2.5-7B-Instruct")
