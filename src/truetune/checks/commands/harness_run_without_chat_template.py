"""The evaluation harness asks a chat model without its chat template.

## What it does
Reads the commands that start lm_eval in shell scripts, job files, Dockerfiles and notebooks, and its own results
(`results*.json` with `chat_template`: null): a model whose name says chat or
instruct (or an adapter on one), loaded by the harness itself, and no `--apply_chat_template`. A warning where a task
lets the model write its answer (gsm8k, ifeval, bbh, math, code), a note where it only compares given answers; a note
too where the template is applied, and few-shot examples (`--num_fewshot`) are not turns of their own.

## Why it is bad
The harness writes plain prompts by default. A model that was tuned on chats is then asked in a form that it never saw:
it scores far below its base, while in a chat it answers well. The results say `chat_template: null`.

## Example
```bash
lm_eval --model vllm --model_args pretrained=out/llama-3.1-8b-instruct-sft,dtype=bfloat16 --tasks gsm8k,ifeval
```

## Use instead
```bash
lm_eval --model vllm --model_args pretrained=out/llama-3.1-8b-instruct-sft,dtype=bfloat16 --tasks gsm8k,ifeval \\
  --apply_chat_template --fewshot_as_multiturn
```

## Fix safety
The figures change, and can't be compared with those made without the template: measure the base again as well.

## References
- EleutherAI/lm-evaluation-harness#2316, EleutherAI/lm-evaluation-harness#1841
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from truetune.checks.findings import Finding
from truetune.checks.rule import CommandRule
from truetune.parsing.harness_results import TEMPLATE_NOT_RECORDED
from truetune.parsing.shell_commands import (
    CommandFile,
    ShellCommand,
    last_option,
    parse_whole_number,
)

CHAT = re.compile(r"instruct|[-_/]chat|[-_]it\b", re.I)
"""What names of chat models hold"""
LOADS_ITSELF = ("hf", "huggingface", "hf-multimodal", "hf-auto", "vllm", "vllm-vlm", "sglang", "")
"""Backends that load the model; a server of chats writes the template by itself. `hf` is the default"""
WRITES = re.compile(
    r"gsm8k|ifeval|gsm_plus|mgsm|math|aime|bbh|humaneval|mbpp|drop|squad|triviaqa|nq_open|gpqa\w*cot|mmlu_pro"
    r"|generative|longbench|ruler|alpaca|mt_bench|leaderboard\b|_cot\b|_gen\b|coqa|truthfulqa_gen"
)
"""Tasks in which the model writes its answer"""


class HarnessRun(NamedTuple):
    """A command that starts lm_eval."""

    command: ShellCommand
    options: tuple[str, ...]
    saved_from: Mapping[str, str]
    """As in CommandFile"""

    @property
    def model(self) -> str:
        """What is loaded, with its arguments: `pretrained=...,peft=...`"""
        return last_option(self.options, "--model_args", "-a") or ""

    def argument(self, name: str) -> str | None:
        """One of the model's arguments; None where it is not given."""
        for part in self.model.replace(" ", ",").split(","):
            key, equals, value = part.partition("=")
            if equals and key.strip("'\"") == name:
                return value.strip("'\"")
        return None

    @property
    def is_without_template(self) -> bool:
        """Does the harness load a chat model, and write its prompts without a template?"""
        return not self.has_template and self.says_template and self.loads_a_chat_model

    @property
    def says_template(self) -> bool:
        """Is it known whether the run asks by a template? Results of some releases do not record it."""
        return TEMPLATE_NOT_RECORDED not in self.options

    @property
    def has_template(self) -> bool:
        """Does the run ask by the chat template?"""
        return last_option(self.options, "--apply_chat_template") is not None

    @property
    def joins_its_examples(self) -> bool:
        """Do the few-shot examples of a chat model, with their answers, stand in one user turn?"""
        shots = parse_whole_number(last_option(self.options, "--num_fewshot", "-f"))
        is_split = last_option(self.options, "--fewshot_as_multiturn") is not None
        return self.has_template and bool(shots) and not is_split and self.loads_a_chat_model

    @property
    def loads_a_chat_model(self) -> bool:
        """Does the harness itself load a model whose name, or that of its base, is one of a chat model?"""
        if (last_option(self.options, "--model", "-m") or "") not in LOADS_ITSELF:
            return False
        names = re.findall(r"(?:pretrained|peft|tokenizer)=['\"]?([^,'\"\s]+)", self.model)
        return any(CHAT.search(f"{name} {self.saved_from.get(name, '')}") for name in names)


class HarnessRunWithoutChatTemplate(CommandRule):
    code = "CMD006"
    severity = "warning"
    what = "commands that start lm_eval"

    @staticmethod
    def places(file: CommandFile) -> Iterator[HarnessRun]:
        return harness_runs(file)

    def findings(self) -> Iterator[Finding]:
        for run in harness_runs(self.subject):
            if run.is_without_template:
                tasks = last_option(run.options, "--tasks", "-t") or ""
                yield self.finding(
                    "lm_eval asks a chat model without its chat template: in a form that it was never trained on",
                    "add --apply_chat_template (and --fewshot_as_multiturn with few-shot examples), and measure the"
                    " base again in the same way",
                    severity="warning" if WRITES.search(tasks) else "info",
                    evidence=[
                        "without it the results say `chat_template: null`, and the scores fall below the base's"
                    ],
                    cases=[self.case(run.command, run.model or run.command.text)],
                )
            elif run.joins_its_examples:
                yield self.finding(
                    "the few-shot examples and their answers stand in one user turn: the model sees"
                    " no assistant turn to go by",
                    "add --fewshot_as_multiturn, and measure the base again in the same way",
                    severity="info",
                    cases=[self.case(run.command, run.command.text)],
                )


def harness_runs(file: CommandFile) -> Iterator[HarnessRun]:
    """`lm_eval ...`, `lm-eval run ...`, `python -m lm_eval`, `accelerate launch -m lm_eval`."""
    for command in file.commands:
        for words in (("lm_eval",), ("lm-eval",), ("-m", "lm_eval")):
            options = command.behind(*words)
            if options is not None and last_option(options, "--tasks", "-t") is not None:
                yield HarnessRun(command, options, file.saved_from)
                break
