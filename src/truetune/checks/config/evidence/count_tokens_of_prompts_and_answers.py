"""Counts the tokens of prompts and of answers in the rows of a run, where its tokenizer is on this machine."""

from __future__ import annotations

from truetune.checks.config.evidence.is_tokenizer_on_this_machine import has_local_tokenizer
from truetune.checks.config.evidence.prompt_share_of_learned_text import (
    PromptShare,
    measure_prompts_by,
)
from truetune.errors import TruetuneError
from truetune.render.tokenizer import load_tokenizer
from truetune.settings.config import Config


def count_prompt_and_answer_tokens(config: Config) -> PromptShare | None:
    """The tokens of the texts, without those that a template writes; None where rows or tokenizer are missing."""
    name = config.spec.tokenizer
    if name is None or not has_local_tokenizer(config):
        return None
    try:
        backend = load_tokenizer(name).backend
        return measure_prompts_by(
            config, lambda text: len(backend.encode(text, add_special_tokens=False).ids)
        )
    except (TruetuneError, OSError, ValueError):
        return None
