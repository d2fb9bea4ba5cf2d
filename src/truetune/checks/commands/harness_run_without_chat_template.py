"""The evaluation harness prompts a chat model without its chat template.

## What it does
Reads lm_eval commands in shell scripts, job files, Dockerfiles and notebooks, and lm_eval's own results
(`results*.json` with `chat_template`: null). It looks for a model whose name says chat or instruct (or an adapter on
one), loaded by the harness itself, without `--apply_chat_template`. It is a warning if a task generates answers (gsm8k,
ifeval, bbh, math, code), and info if it only compares given answers. It is also info if the template is applied but
few-shot examples (`--num_fewshot`) are not separate turns.

## Why it is bad
By default the harness writes plain prompts. A model that was tuned on chats then gets a format that it never saw: it
scores far below its base, although it answers well in a chat. The results say `chat_template: null`.

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
The scores change and can't be compared with those without the template: evaluate the base again in the same way.

## References
- EleutherAI/lm-evaluation-harness#2316, EleutherAI/lm-evaluation-harness#1841
"""

from __future__ import annotations

from collections.abc import Iterator

from truetune.checks.commands.evidence.generative_tasks import GENERATIVE_TASKS
from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.read_evaluation_harness_commands import HarnessRun, find_harness_runs
from truetune.checks.rule import CommandRule
from truetune.parsing.shell_commands import CommandFile, last_option


class HarnessRunWithoutChatTemplate(CommandRule):
    code = "CMD006"
    fault = Fault.CHAT_MODEL_ASKED_WITHOUT_TEMPLATE
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
                    (
                        "lm_eval prompts a chat model without its chat template, in a format that it was never"
                        " trained on: the scores are too low"
                    ),
                    "add --apply_chat_template (and --fewshot_as_multiturn with few-shot examples), and evaluate the"
                    " base again in the same way",
                    severity="warning" if GENERATIVE_TASKS.search(tasks) else "info",
                    evidence=[
                        (
                            "without it, the results say `chat_template: null`, and the scores fall below those of"
                            " the base"
                        )
                    ],
                    cases=[
                        self.case_of_command(
                            run.command, run.model_with_arguments_as_written or run.command.text
                        )
                    ],
                )
            elif run.puts_examples_in_one_turn:
                yield self.finding(
                    "the few-shot examples and their answers are all in one user turn: the model sees no assistant"
                    " turn as an example",
                    "add --fewshot_as_multiturn, and evaluate the base again in the same way",
                    severity="info",
                    cases=[self.case_of_command(run.command, run.command.text)],
                )
