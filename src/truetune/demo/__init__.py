"""The demo: a support chat with planted faults, a corrected copy, and the proof that one of them matters."""

from __future__ import annotations

from pathlib import Path

_HERE = Path(__file__).parent
DATA = _HERE / "data" / "support-chat.jsonl"
BROKEN = _HERE / "data" / "support-chat-broken.jsonl"
TOKENIZER = _HERE / "tokenizer"
# Above every sound row, so that only the planted ones are cut.
MAX_LENGTH = 512
"""The longest row in tokens that the demo would train on."""
