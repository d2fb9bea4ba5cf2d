"""max_length is not set, so TRL truncates rows at 1,024 tokens.

## What it does
Finds supervised fine-tuning with TRL without `max_length` if the rows are not available; if they are,
`rows-longer-than-default-max-length` counts the truncated ones. It does not fire with `skip_prepare_dataset`, which
truncates nothing, or if a script reads the file and may set the length itself.

## Why it is bad
TRL silently truncates longer rows at 1,024 tokens: answers end in mid-sentence, without their stop token.

## Example
```yaml
config:
  model_name_or_path: some/model
  dataset_name: some/rows
  learning_rate: 2.0e-4
  packing: false
  completion_only_loss: false
```

## Use instead
```yaml
config:
  model_name_or_path: some/model
  dataset_name: some/rows
  learning_rate: 2.0e-4
  packing: false
  completion_only_loss: false
  max_length: 4096
```

## Fix safety
Safe: `max_length: 1024` keeps today's behaviour. `truetune check DATA -t TOKENIZER` counts what a limit truncates.

## References
- huggingface/trl#2400, unslothai/unsloth#3019, oumi-ai/oumi#70
"""

from __future__ import annotations

from collections.abc import Iterator

from truetune.checks.config.evidence.settings_read_by_another_program import keeps_stack_defaults
from truetune.checks.faults import Fault
from truetune.checks.findings import Case, Finding
from truetune.checks.rule import ConfigRule


class MaxLengthLeftToTrlDefault(ConfigRule):
    code = "CFG042"
    fault = Fault.TRAINING_ROWS_CUT
    symptoms = ("loss-does-not-fall", "nothing-is-learned", "dpo-without-effect")
    severity = "warning"
    stability = "stable"
    since = "0.1.0"
    methods = ("sft",)
    moot_where = ("rows-longer-than-default-max-length", "rows-surely-cut")
    stacks = ("trl",)
    reads = ("max_length", "training.packing")

    def findings(self) -> Iterator[Finding]:
        config = self.subject
        old = any(renamed.now == "max_length" for renamed in config.renamed)
        if (
            config.stack != "trl"
            or config.spec.training.method != "sft"
            or config.limit != 1024
            or old
        ):
            return
        if config.spec.training.skip_prepare_dataset or not keeps_stack_defaults(config):
            return
        if (
            "max_length" not in config.places
            and not config.spec.data
            and not config.spec.training.packing
        ):
            yield self.finding(
                "max_length is not set: TRL silently truncates rows at its default of 1,024 tokens",
                (
                    "set max_length to the length of your longest rows (truetune check DATA -t TOKENIZER counts"
                    " what a limit truncates)"
                ),
                cases=[Case("max_length: 1024 by default", file=config.path)],
            )
