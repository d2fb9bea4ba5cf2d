"""An evaluation cuts the answers of a model that reasons before it answers.

## What it does
Finds lm_eval commands that limit answers to fewer than 1,024 tokens (`max_gen_toks` in `--gen_kwargs` or
`--model_args`, `max_new_tokens`) for a model that by its name reasons first, such as R1 distilled, QwQ or Qwen3 (unless
`enable_thinking=False`).

## Why it is bad
The answer ends within the reasoning, and the harness finds no result in it: scores are near 0, or are those of the few
short answers.

## Example
```bash
lm_eval --model hf --model_args pretrained=deepseek-ai/DeepSeek-R1-Distill-Qwen-7B --tasks gsm8k_cot_zeroshot \\
  --apply_chat_template --batch_size 16 --gen_kwargs max_gen_toks=256
```

## Use instead
```bash
lm_eval --model hf --model_args pretrained=deepseek-ai/DeepSeek-R1-Distill-Qwen-7B --tasks gsm8k_cot_zeroshot \\
  --apply_chat_template --batch_size 16 --gen_kwargs max_gen_toks=16384
```

## Fix safety
The evaluation takes longer.

## References
- deepseek-ai/DeepSeek-R1, README, "Usage Recommendations" (answers of up to 32,768 tokens);
  EleutherAI/lm-evaluation-harness#2712
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from truetune.checks.config.evidence.signs_of_long_reasoning import (
    ALWAYS_REASONS,
    IS_SWITCHED_OFF,
    REASONS_UNLESS_SWITCHED_OFF,
)
from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.read_evaluation_harness_commands import HarnessRun, find_harness_runs
from truetune.checks.rule import CommandRule
from truetune.parsing.shell_commands import CommandFile

LIMIT = re.compile(
    r"\b(?P<name>max_gen_toks|max_new_tokens|max_tokens)[\"']?[=:]\s*(?P<tokens>\d+)"
)
# As in `generation-limit-below-answers`.
MIN_TOKENS = 1024


class HarnessCutsReasoning(CommandRule):
    code = "CMD243"
    fault = Fault.ANSWERS_CUT_AT_TOKEN_LIMIT
    symptoms = ("odd-metrics",)
    severity = "warning"
    what = "commands that start lm_eval with a model that reasons"

    @staticmethod
    def examined_places(file: CommandFile) -> Iterator[HarnessRun]:
        """The runs of lm_eval on models that reason before they answer."""
        for run in find_harness_runs(file):
            model = run.model_argument("pretrained") or run.model_argument("model") or ""
            name = model.rstrip("/").rpartition("/")[2].lower()
            reasons = ALWAYS_REASONS.search(name) or REASONS_UNLESS_SWITCHED_OFF.fullmatch(name)
            if reasons and not IS_SWITCHED_OFF.search(" ".join(run.options)):
                yield run

    def findings(self) -> Iterator[Finding]:
        for run in self.examined_places(self.subject):
            match = LIMIT.search(" ".join(run.options))
            if match is None or int(match["tokens"]) >= MIN_TOKENS:
                continue
            model = run.model_argument("pretrained") or run.model_argument("model")
            yield self.finding(
                f"{match['name']} is {int(match['tokens']):,}, and {model} reasons before it answers: answers are cut"
                " before their result",
                f"set {match['name']} to 4096 to 16384",
                cases=[self.case_of_command(run.command, match[0])],
            )
