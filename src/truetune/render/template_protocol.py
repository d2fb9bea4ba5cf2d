"""What truetune and its template process say to each other, and the limits that both know.

A message is its length (HEADER), then its bytes: a pickled CompileRequest or RenderRequest to the process, JSON back.
"""

from __future__ import annotations

import struct
from typing import Any, NamedTuple

MAX_SECONDS = 1.0
"""Processor time that one rendering may take, and compiling a template. Published templates take 0.05 to 5 ms for a
conversation of ten turns, and 50 ms to compile at most."""
MAX_CONVERSATION_SECONDS = 60.0
"""Processor time of all renderings of one conversation: each assistant turn takes two. `inference_contract` bounds the
turns, so that a template must be slow on purpose to get here."""
MAX_MEMORY = 256 << 20
"""Address space of the process: Python and Jinja take about 40 MiB of it."""
MAX_TEXT = 1 << 24
"""The longest rendering, in characters."""
MAX_REPLY = 1 << 26
"""The longest reply, in bytes."""
REASONING_KEYS = ("reasoning_content", "thinking", "reasoning")
"""Names under which a message holds its reasoning, the one that templates read first."""
HEADER = struct.Struct("<Q")
"""The length of the message that follows."""


class PrefixRequest(NamedTuple):
    """One rendering that a request asks for: of the first messages of the conversation."""

    messages: int
    """How many of the conversation's messages, from the first"""
    generation_prompt: bool
    traced: bool
    """With provenance; else only where the text parts from that of the first rendering is told"""


class CompileRequest(NamedTuple):
    """A request to compile a template."""

    template: int
    """A number that later requests name the template by"""
    source: str


class RenderRequest(NamedTuple):
    """A request to render the first messages of a conversation by a compiled template, once or several
    times.
    """

    template: int
    messages: list[dict[str, Any]]
    tools: Any
    documents: Any
    variables: dict[str, Any]
    now: Any
    """The datetime that `strftime_now` shows"""
    renderings: list[PrefixRequest]


OUT_OF_MEMORY = 71
"""Exit code of a process whose memory is spent: what is left of it can't be trusted to hold."""
