"""Severity and remedy of prompts that a server builds otherwise than the training; two rules share
them.

Two rules judge the same prompts by different means (ids or answers, and lengths); what a difference means and what to
do is the same for both.
"""

from __future__ import annotations

from collections.abc import Sequence

from truetune.generation.server_observations import PromptComparison
from truetune.settings.run_spec import Severity

PROMPT_REMEDY = (
    "start the server with the chat template, system prompt and BOS setting saved with the model: `truetune"
    " serve-check MODEL --print vllm` (or sglang, llama.cpp, ollama) prints the command"
)


def severity_of_other_prompts(
    others: Sequence[PromptComparison], compared: Sequence[PromptComparison]
) -> Severity:
    """The severity of prompts that differ: an error, but a warning where only prompts with tools
    differ and no row of the data has tools.

    Args:
        others: prompts that differ.
        compared: all that were compared, those of the data among them.
    """
    trains_tools = any(prompt.of_data and prompt.tools for prompt in compared)
    only_with_tools = all(prompt.tools for prompt in others)
    return "warning" if only_with_tools and not trains_tools else "error"
