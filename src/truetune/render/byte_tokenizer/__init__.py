"""A tokenizer of bytes with ChatML turns, for rows that are judged without the tokenizer of their model."""

from __future__ import annotations

from pathlib import Path

BYTE_TOKENIZER = str(Path(__file__).parent)
"""Its folder"""
