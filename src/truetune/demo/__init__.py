"""The demo: a small data set with planted faults beside its mended twin, and the proof by training."""

from __future__ import annotations

from pathlib import Path

_HERE = Path(__file__).parent
DATA = _HERE / "data" / "support-chat.jsonl"
BROKEN = _HERE / "data" / "support-chat-broken.jsonl"
TOKENIZER = _HERE / "tokenizer"
MAX_LENGTH = 512
"""Longest example of the demo's runs, in tokens."""
