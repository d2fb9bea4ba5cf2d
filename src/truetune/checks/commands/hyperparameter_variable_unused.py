"""A script sets a hyperparameter as a variable, and its training never gets it.

## What it does
Finds shell scripts that train and set a variable named like a hyperparameter (`LEARNING_RATE=5e-6`, `LORA_R=64`,
`EPOCHS=3`) that no line uses and that is not exported, while other variables of the script are used.

## Why it is bad
Changing the number at the top of the script changes nothing: the training takes its default.

## Example
```bash
MODEL=Qwen/Qwen2.5-7B
LEARNING_RATE=5e-6
accelerate launch sft.py --model_name_or_path $MODEL --dataset_name trl-lib/Capybara --output_dir out/qwen
```

## Use instead
```bash
MODEL=Qwen/Qwen2.5-7B
LEARNING_RATE=5e-6
accelerate launch sft.py --model_name_or_path $MODEL --learning_rate $LEARNING_RATE --dataset_name trl-lib/Capybara \\
  --output_dir out/qwen
```

## Fix safety
The training gets the value for the first time.

## References
- the Bash manual, "Shell Parameters"; ShellCheck SC2034
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.rule import CommandRule
from truetune.parsing.shell_commands import SCRIPT_SUFFIXES, CommandFile

HYPERPARAMETER = re.compile(
    r"(?:LR|LEARNING_?RATE|ACTOR_LR|LORA_?(?:R|RANK|ALPHA|DROPOUT)|EPOCHS?|NUM_(?:TRAIN_)?EPOCHS|TOTAL_EPOCHS|MAX_STEPS"
    r"|(?:MAX_)?SEQ_?LEN(?:GTH)?|MAX_(?:SEQ_)?LENGTH|CUTOFF_LEN|WARMUP(?:_RATIO|_STEPS)?|WEIGHT_DECAY|BETA|KL_?COEF"
    r"|(?:GRAD(?:IENT)?_?ACC\w*)|(?:PER_DEVICE_|MICRO_|GLOBAL_)?(?:TRAIN_)?BATCH_?SIZE|NUM_GENERATIONS|TEMPERATURE)",
    re.I,
)
"""Names of variables that are hyperparameters of a training, in any case"""
ASSIGNMENT = re.compile(
    r"(?m)^(?P<name>[A-Za-z_]\w*)=(?P<value>[\"']?[\d.][\w.+-]*[\"']?)[ \t]*(?:#.*)?$"
)
TRAINS = re.compile(
    r"\b(?:torchrun|accelerate\s+launch|deepspeed|python3?\s+(?:-\w\s+)*\S*(?:train|sft|dpo|grpo|tune)\S*\.py|trl\s+\w+"
    r"|swift\s+(?:sft|pt|rlhf)|llamafactory-cli\s+train|verl\.trainer|openrlhf\.cli|pretrain_\w+\.py)"
)
READS_OTHERWISE = re.compile(
    r"(?m)^\s*(?:source|\.)\s|set\s+-a|export\s+-p|envsubst|eval\s|declare|\$\{!|env\b|<<"
)
"""Ways by which variables reach a program that is not written out"""


class SetVariable(NamedTuple):
    """A hyperparameter that a script sets as a variable."""

    name: str
    value: str
    line: int


class HyperparameterVariableUnused(CommandRule):
    code = "CMD256"
    fault = Fault.SETTINGS_NOT_USED
    symptoms = ("nothing-is-learned",)
    severity = "error"
    what = "hyperparameters that a script sets as variables"

    @staticmethod
    def examined_places(file: CommandFile) -> Iterator[SetVariable]:
        """The variables named like hyperparameters in a script that trains."""
        is_script = file.path.endswith(tuple(SCRIPT_SUFFIXES))
        if not is_script or not TRAINS.search(file.text) or READS_OTHERWISE.search(file.text):
            return
        for match in ASSIGNMENT.finditer(file.text):
            if HYPERPARAMETER.fullmatch(match["name"]):
                line = file.text.count("\n", 0, match.start()) + 1
                yield SetVariable(match["name"], match["value"], line)

    def findings(self) -> Iterator[Finding]:
        text = self.subject.text
        variables = list(self.examined_places(self.subject))
        for variable in variables:
            used = re.search(rf"\$\{{?[#!]?{variable.name}\b|\b{variable.name}\b(?!=)", text)
            exported = re.search(rf"(?m)^\s*export\s[^\n]*\b{variable.name}\b", text)
            # A script that uses no variable at all is a file of settings, which another one reads.
            if used or exported or not re.search(r"\$\{?[A-Za-z_]", text):
                continue
            yield self.finding(
                f"{variable.name} is set to {variable.value}, and no line uses it: the training takes its default",
                f"give the training ${variable.name}, or remove the line",
                cases=[self.case_at(variable.line, f"{variable.name}={variable.value}")],
            )
