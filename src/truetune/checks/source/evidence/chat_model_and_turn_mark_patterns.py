"""Tells chat models by their names, and chat templates by the marks of their turns."""

from __future__ import annotations

import re

CHAT_MODEL_NAME = re.compile(r"instruct|[-_]chat\b|[-_]it\b", re.I)


TURN_MARKS = re.compile(
    r"<\|?(im_start|start_header_id|start_of_turn|user|system|assistant|endoftext|begin)|\[/?INST\]|"
    r"###|(USER|Human|User|Assistant|ASSISTANT|Question|Instruction|Q|A)\s*:",
    re.I,
)
"""What templates and prompts of one's own write around turns"""
