"""The evaluation harness puts a second BOS before prompts that the chat template begins with one.

## What it does
Finds lm_eval commands with both `--apply_chat_template` and `add_bos_token=True` for a model whose published chat
template writes BOS itself (Llama 3, Mistral, Gemma), by the model's name.

## Why it is bad
Each prompt begins with two BOS tokens, as no text in the training did. Scores of Llama 3.1 on MMLU fall by two points,
and those of Gemma by far more, without a warning.

## Example
```bash
lm_eval --model vllm --model_args pretrained=meta-llama/Llama-3.1-8B-Instruct,add_bos_token=True --tasks mmlu_llama \\
  --apply_chat_template --fewshot_as_multiturn
```

## Use instead
```bash
lm_eval --model vllm --model_args pretrained=meta-llama/Llama-3.1-8B-Instruct --tasks mmlu_llama \\
  --apply_chat_template --fewshot_as_multiturn
```

## Fix safety
The scores change and can't be compared with earlier ones.

## References
- EleutherAI/lm-evaluation-harness#2797 (67.6 with the option, 69.4 without it)
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.read_evaluation_harness_commands import HarnessRun, find_harness_runs
from truetune.checks.rule import CommandRule
from truetune.parsing.shell_commands import CommandFile

TEMPLATE_WRITES_BOS = re.compile(r"llama-?[23](?!.*distill)|mistral|mixtral|ministral|gemma", re.I)
"""In names of models whose published chat template begins with `bos_token`"""


class HarnessDoublesBos(CommandRule):
    code = "CMD242"
    fault = Fault.SPECIAL_TOKENS_DOUBLED_OR_MISPLACED
    symptoms = ("odd-metrics",)
    severity = "warning"
    what = "commands that start lm_eval with a chat template"

    @staticmethod
    def examined_places(file: CommandFile) -> Iterator[HarnessRun]:
        """The runs of lm_eval that apply the chat template."""
        return (run for run in find_harness_runs(file) if run.uses_template)

    def findings(self) -> Iterator[Finding]:
        for run in self.examined_places(self.subject):
            model = run.model_argument("pretrained") or ""
            adds = (run.model_argument("add_bos_token") or "").lower() in ("true", "1")
            if not adds or not TEMPLATE_WRITES_BOS.search(model.rpartition("/")[2]):
                continue
            yield self.finding(
                f"the chat template of {model} begins with BOS, and add_bos_token=True adds another: each prompt has"
                " two",
                "remove add_bos_token=True where --apply_chat_template is given",
                cases=[self.case_of_command(run.command, "add_bos_token=True")],
            )
