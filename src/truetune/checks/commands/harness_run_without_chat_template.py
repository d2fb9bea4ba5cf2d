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

from collections.abc import Iterator

from truetune.checks.commands.evidence.generative_tasks import GENERATIVE_TASKS
from truetune.checks.findings import Finding
from truetune.checks.read_evaluation_harness_commands import HarnessRun, find_harness_runs
from truetune.checks.rule import CommandRule
from truetune.parsing.shell_commands import CommandFile, last_option


class HarnessRunWithoutChatTemplate(CommandRule):
    code = "CMD006"
    severity = "warning"
    what = "commands that start lm_eval"

    @staticmethod
    def examined_places(file: CommandFile) -> Iterator[HarnessRun]:
        """The places that the rule looks at: the commands that start lm_eval."""
        return find_harness_runs(file)

    def findings(self) -> Iterator[Finding]:
        for run in find_harness_runs(self.subject):
            if run.asks_chat_model_without_template:
                tasks = last_option(run.options, "--tasks", "-t") or ""
                yield self.finding(
                    "lm_eval asks a chat model without its chat template: in a form that it was never trained on",
                    "add --apply_chat_template (and --fewshot_as_multiturn with few-shot examples), and measure the"
                    " base again in the same way",
                    severity="warning" if GENERATIVE_TASKS.search(tasks) else "info",
                    evidence=[
                        "without it the results say `chat_template: null`, and the scores fall below the base's"
                    ],
                    cases=[
                        self.case_of_command(
                            run.command, run.model_with_arguments_as_written or run.command.text
                        )
                    ],
                )
            elif run.puts_examples_in_one_turn:
                yield self.finding(
                    "the few-shot examples and their answers are in one user turn: the model sees"
                    " no assistant turn to go by",
                    "add --fewshot_as_multiturn, and measure the base again in the same way",
                    severity="info",
                    cases=[self.case_of_command(run.command, run.command.text)],
                )
