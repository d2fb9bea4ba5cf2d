"""TRL is given no max_length, and rows are cut at 1,024 tokens.

## What it does
Finds supervised fine-tuning by TRL without `max_length` where the rows are not available to be counted; where they are,
`rows-longer-than-default-max-length` counts them. Rows that are left as they are (`skip_prepare_dataset`) are not cut,
and of a file that a script with settings of its own reads, it is not known which length that script gives.

## Why it is bad
TRL cuts longer rows at 1,024 tokens without a word: answers end in mid-sentence, without their stop token.

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
Safe: `max_length: 1024` says what happens today; `truetune check DATA -t TOKENIZER` counts what a limit cuts.

## References
- huggingface/trl#2400, unslothai/unsloth#3019, oumi-ai/oumi#70
"""

from __future__ import annotations

from collections.abc import Iterator

from truetune.checks.config.evidence.settings_read_by_another_program import keeps_stack_defaults
from truetune.checks.findings import Case, Finding
from truetune.checks.rule import ConfigRule


class MaxLengthLeftToTrlDefault(ConfigRule):
    code = "CFG042"
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
                "no max_length is set: TRL cuts rows at its default of 1,024 tokens, without a"
                " word",
                "set max_length to what the rows need",
                cases=[Case("max_length: 1024 by default", file=config.path)],
            )
