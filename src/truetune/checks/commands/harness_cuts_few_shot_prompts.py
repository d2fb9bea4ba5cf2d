"""An evaluation cuts the few-shot examples off its prompts.

## What it does
Compares the length limit of lm_eval's models (`max_length` of hf, `max_model_len` of vLLM) with the length that the
few-shot examples of generative tasks take at least: about 100 tokens for each of `--num_fewshot`.

## Why it is bad
lm_eval cuts prompts at their beginning. The first examples and the instruction are lost, sometimes half of an example
is left, and the scores of models with short limits are lower than those of others.

## Example
```bash
lm_eval --model hf --model_args pretrained=out/sft,max_length=512 --tasks gsm8k,bbh --num_fewshot 5 --batch_size 16
```

## Use instead
```bash
lm_eval --model hf --model_args pretrained=out/sft,max_length=8192 --tasks gsm8k,bbh --num_fewshot 5 --batch_size 16
```

## Fix safety
The scores change and can't be compared with earlier ones.

## References
- lm-evaluation-harness, lm_eval/models/huggingface.py (`tok_batch_encode(..., left_truncate_len)`)
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from truetune.checks.commands.evidence.generative_tasks import GENERATIVE_TASKS
from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.read_evaluation_harness_commands import HarnessRun, find_harness_runs
from truetune.checks.rule import CommandRule
from truetune.parsing.shell_commands import CommandFile, last_option, parse_digits

# An example of GSM8K, a question with its steps, has 150 tokens in the mean; those of BBH more.
TOKENS_OF_EXAMPLE = 100
# What the tasks leave for the answer by default (`max_gen_toks`).
TOKENS_OF_ANSWER = 256
LIMITS = ("max_length", "max_model_len")


class LimitedPrompts(NamedTuple):
    """A run with few-shot examples whose model has a length limit."""

    run: HarnessRun
    option: str
    limit: int
    shots: int


class HarnessCutsFewShotPrompts(CommandRule):
    code = "CMD255"
    fault = Fault.PROMPTS_CUT_BEFORE_ANSWERING
    symptoms = ("odd-metrics",)
    severity = "warning"
    what = "few-shot evaluations by lm_eval with a length limit"

    @staticmethod
    def examined_places(file: CommandFile) -> Iterator[LimitedPrompts]:
        """The few-shot runs on generative tasks that set a limit."""
        for run in find_harness_runs(file):
            shots = parse_digits(last_option(run.options, "--num_fewshot", "-f"))
            tasks = last_option(run.options, "--tasks", "-t") or ""
            option = next((one for one in LIMITS if run.model_argument(one)), None)
            limit = parse_digits(run.model_argument(option)) if option else None
            if shots and option and limit and GENERATIVE_TASKS.search(tasks):
                yield LimitedPrompts(run, option, limit, shots)

    def findings(self) -> Iterator[Finding]:
        for limited_prompts in self.examined_places(self.subject):
            needed = limited_prompts.shots * TOKENS_OF_EXAMPLE + TOKENS_OF_ANSWER
            if limited_prompts.limit >= needed:
                continue
            yield self.finding(
                f"{limited_prompts.option} is {limited_prompts.limit:,}, and {limited_prompts.shots} examples with"
                f" an answer take about {needed:,} tokens or more: the first examples are cut off",
                f"set {limited_prompts.option} to what the model takes (such as 8192)",
                cases=[
                    self.case_of_command(
                        limited_prompts.run.command,
                        f"{limited_prompts.option}={limited_prompts.limit}",
                    )
                ],
            )
