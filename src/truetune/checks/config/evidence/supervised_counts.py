"""Tokens of prompts and of answers in the rows of a run, where its tokenizer is on this machine."""

from __future__ import annotations

from truetune.checks.config.evidence.prompt_shares import PromptShare, measure_prompts
from truetune.checks.config.evidence.tokenizer_at_hand import has_tokenizer
from truetune.errors import TruetuneError
from truetune.render.tokenizer import load_tokenizer
from truetune.settings.config import Config


def count_supervised(config: Config) -> PromptShare | None:
    """The tokens of the texts, without those that a template writes; None where rows or tokenizer are missing."""
    name = config.spec.tokenizer
    if name is None or not has_tokenizer(config):
        return None
    try:
        backend = load_tokenizer(name).backend
        return measure_prompts(
            config, lambda text: len(backend.encode(text, add_special_tokens=False).ids)
        )
    except (TruetuneError, OSError, ValueError):
        return None
