"""Two runs of the evaluation harness that are meant for two models load the same one.

## What it does
Reads lm_eval commands in shell scripts, job files and Dockerfiles. It compares two runs in one file by the model that
they load (`pretrained`, `peft`, `delta`, `revision`, its dtype) and by all other options. It fires if only the name of
the results or the tokenizer differs.

## Why it is bad
Base and tuned model get identical scores, and training seems to have had no effect. Only `peft=FOLDER` loads a LoRA
adapter: its folder as `tokenizer=` changes no weight.

## Example
```bash
lm_eval -b 8 --model hf --model_args pretrained=org/base-8b --tasks mmlu --output_path results/base
lm_eval -b 8 --model hf --model_args pretrained=org/base-8b,tokenizer=out/lora --tasks mmlu --output_path results/tuned
```

## Use instead
```bash
lm_eval -b 8 --model hf --model_args pretrained=org/base-8b --tasks mmlu --output_path results/base
lm_eval -b 8 --model hf --model_args pretrained=org/base-8b,peft=out/lora --tasks mmlu --output_path results/tuned
```

## Fix safety
The scores of the second run change.

## References
- EleutherAI/lm-evaluation-harness, docs/model_guide.md and `HFLM(peft=...)`
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator

from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.read_evaluation_harness_commands import HarnessRun, find_harness_runs
from truetune.checks.rule import CommandRule
from truetune.parsing.shell_commands import CommandFile

NO_WEIGHTS = frozenset(("tokenizer", "batch_size", "trust_remote_code", "parallelize"))
"""Arguments of a model that say nothing of its weights"""
OF_RESULTS = ("--output_path", "-o", "--wandb_args", "--hf_hub_log_args", "--model_args", "-a")
"""Options that name where results go; those of the model are compared by themselves"""


class HarnessRunsAskOneModel(CommandRule):
    code = "CMD007"
    fault = Fault.WRONG_MODEL_EVALUATED
    severity = "warning"
    what = "commands that start lm_eval"

    @staticmethod
    def examined_places(file: CommandFile) -> Iterator[HarnessRun]:
        """The places that the rule looks at: the commands that start lm_eval."""
        return find_harness_runs(file)

    def findings(self) -> Iterator[Finding]:
        for first, second in itertools.combinations(find_harness_runs(self.subject), 2):
            model = _weight_arguments(first)
            is_known = bool(model) and "$" not in first.command.text + second.command.text
            writes_apart = first.options != second.options
            if is_known and writes_apart and _load_same_weights_alike(first, second):
                yield self.finding(
                    (
                        "two runs of lm_eval load the same model, so their scores are equal:"
                        f" {','.join(sorted(model))}"
                    ),
                    "name the tuned model in one of them: add peft=FOLDER for an adapter, or set pretrained=FOLDER"
                    " for merged weights",
                    cases=[
                        self.case_of_command(
                            one.command, one.model_with_arguments_as_written or one.command.text
                        )
                        for one in (first, second)
                    ],
                )


def _load_same_weights_alike(first: HarnessRun, second: HarnessRun) -> bool:
    """Do two runs load the same weights, and differ in nothing that changes a score?"""
    same_weights = _weight_arguments(first) == _weight_arguments(second)
    return same_weights and _words_without_model_and_results(
        first
    ) == _words_without_model_and_results(second)


def _weight_arguments(run: HarnessRun) -> frozenset[str]:
    """The arguments that say which weights are loaded."""
    parts = run.model_with_arguments_as_written.split(",")
    return frozenset(
        part for part in parts if part and part.partition("=")[0].strip() not in NO_WEIGHTS
    )


def _words_without_model_and_results(run: HarnessRun) -> tuple[str, ...]:
    """The words of a command without those that name the model and the results."""
    kept: list[str] = []
    is_skipped = False
    for word in run.options:
        if word.startswith("-"):
            name = word.partition("=")[0]
            is_skipped = name.replace("_", "-") in {one.replace("_", "-") for one in OF_RESULTS}
        if not is_skipped:
            kept.append(word)
    return tuple(sorted(kept))
