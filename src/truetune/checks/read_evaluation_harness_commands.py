"""Reads the commands that start an evaluation harness, and what they give it: model and arguments,
template, tasks.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from truetune.parsing.lm_eval_results_as_command import TEMPLATE_NOT_RECORDED
from truetune.parsing.shell_commands import (
    CommandFile,
    ShellCommand,
    last_option,
    parse_digits,
)

CHAT = re.compile(r"instruct|[-_/]chat|[-_]it\b", re.I)
"""What names of chat models hold"""
LOADS_ITSELF = ("hf", "huggingface", "hf-multimodal", "hf-auto", "vllm", "vllm-vlm", "sglang", "")
"""Backends that load the model; a server of chats writes the template by itself. `hf` is the default"""
LM_EVAL = (("lm_eval",), ("lm-eval",), ("-m", "lm_eval"))
"""`lm_eval ...`, `lm-eval run ...`, `python -m lm_eval`, `accelerate launch -m lm_eval`"""


class HarnessRun(NamedTuple):
    """A command that starts lm_eval."""

    command: ShellCommand
    options: tuple[str, ...]
    saved_from: Mapping[str, str]
    """As in CommandFile"""

    @property
    def model_with_arguments_as_written(self) -> str:
        """The model that is loaded, with its arguments as written: `pretrained=...,peft=...`."""
        return last_option(self.options, "--model_args", "-a") or ""

    def model_argument(self, name: str) -> str | None:
        """The value of one of the model's arguments; None if it is not given."""
        for part in self.model_with_arguments_as_written.replace(" ", ",").split(","):
            key, equals, value = part.partition("=")
            if equals and key.strip("'\"") == name:
                return value.strip("'\"")
        return None

    @property
    def asks_chat_model_without_template(self) -> bool:
        """Does the harness load a chat model, and write its prompts without a template?"""
        return not self.uses_template and self.is_template_known and self.loads_a_chat_model

    @property
    def is_template_known(self) -> bool:
        """Is it known whether the run asks by a template? Results of some releases do not record it."""
        return TEMPLATE_NOT_RECORDED not in self.options

    @property
    def uses_template(self) -> bool:
        """Does the run apply the chat template to its prompts?"""
        return last_option(self.options, "--apply_chat_template") is not None

    @property
    def puts_examples_in_one_turn(self) -> bool:
        """Do the few-shot examples of a chat model, with their answers, stand in one user turn?"""
        shots = parse_digits(last_option(self.options, "--num_fewshot", "-f"))
        is_split = last_option(self.options, "--fewshot_as_multiturn") is not None
        return self.uses_template and bool(shots) and not is_split and self.loads_a_chat_model

    @property
    def loads_a_chat_model(self) -> bool:
        """Does the harness itself load a model whose name, or that of its base, is one of a chat model?"""
        if (last_option(self.options, "--model", "-m") or "") not in LOADS_ITSELF:
            return False
        names = re.findall(
            r"(?:pretrained|peft|tokenizer)=['\"]?([^,'\"\s]+)",
            self.model_with_arguments_as_written,
        )
        return any(CHAT.search(f"{name} {self.saved_from.get(name, '')}") for name in names)


def find_harness_runs(
    file: CommandFile, starts: Iterable[tuple[str, ...]] = LM_EVAL
) -> Iterator[HarnessRun]:
    """The commands that start a harness with a task.

    Args:
        file: Of commands.
        starts: The words that start it.
    """
    for command in file.commands:
        for words in starts:
            options = command.words_following(*words)
            if options is not None and last_option(options, "--tasks", "-t") is not None:
                yield HarnessRun(command, options, file.saved_from)
                break
