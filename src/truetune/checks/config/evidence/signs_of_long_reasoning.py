"""Tells from a training's settings whether its answers begin with a long chain of thought.

The name of a published model says so (R1 distilled, QwQ, Qwen3 unless its thinking is switched off), and so does a
format that is asked for or rewarded: `<think>` in a system prompt, TRL's `think_format_reward`.
"""

from __future__ import annotations

import re

from truetune.settings.config import Config

ALWAYS_REASONS = re.compile(
    r"r1-distill|deepseek-r1|qwq|thinking|reasoning|reasoner|magistral|deepscaler|openthinker|skywork-or1|light-r1"
    r"|acereason|gpt-oss|(?:^|[-_])s1(?:\.1)?-\d"
)
"""In the last part of a name, in small letters: the models write their reasoning whatever they are asked"""
REASONS_UNLESS_SWITCHED_OFF = re.compile(
    r"(?:qwen3-\d+(?:\.\d+)?b(?:-a\d+b)?|smollm3-3b)(?:-(?:fp8|awq|bf16|4bit|8bit|bnb|unsloth|gptq|int\d|mlx))*"
)
"""The whole last part: their bases, `Instruct` releases and other people's trainings need not think"""
IS_SWITCHED_OFF = re.compile(
    r"enable_thinking[\"']?\s*[:= ]\s*[\"']?(?:false|0)\b|no_think|non-?thinking", re.I
)
LINE_OF_COMMENT = re.compile(r"^[ \t]*#(?!#)[^\n]*", re.MULTILINE)
"""Not `## Heading`, which prompts hold"""
ASKED_FORMAT = re.compile(r"<think>|\bthink_format_reward\b")


def model_that_reasons(config: Config) -> str | None:
    """The model of a run, if by its name it reasons at length before it answers; None otherwise."""
    model = config.spec.model
    if not isinstance(model, str) or IS_SWITCHED_OFF.search(_text_of_settings(config) + model):
        return None
    name = model.rstrip("/").rpartition("/")[2].lower()
    reasons = ALWAYS_REASONS.search(name) or REASONS_UNLESS_SWITCHED_OFF.fullmatch(name)
    return model if reasons else None


def format_that_asks_for_reasoning(config: Config) -> str | None:
    """The part of a run's files that asks for a chain of thought (`<think>`); None without one."""
    text = _text_of_settings(config)
    if IS_SWITCHED_OFF.search(text):
        return None
    match = ASKED_FORMAT.search(text)
    return match[0] if match is not None else None


def _text_of_settings(config: Config) -> str:
    """The text of the file without comments; of a command, which has none of its own, its settings."""
    return LINE_OF_COMMENT.sub("", config.text) or str(config.raw)
