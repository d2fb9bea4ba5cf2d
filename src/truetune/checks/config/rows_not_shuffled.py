"""The rows are not shuffled.

## What it does
Finds `disable_shuffling` (LLaMA-Factory), `curriculum_sampling` (Axolotl) and `train_sampling_strategy: sequential`
(transformers).

## Why it is bad
Each step then sees one source, one topic or one length, and the model is biased towards the last file. If data sets
were joined one after the other, the loss jumps where the source changes.

## Example
```yaml
config:
  model_name_or_path: some/model
  stage: sft
  do_train: true
  dataset: one,two
  finetuning_type: lora
  disable_shuffling: true
```

## Use instead
```yaml
config:
  model_name_or_path: some/model
  stage: sft
  do_train: true
  dataset: one,two
  finetuning_type: lora
```

## Fix safety
The order of the rows changes, and with it the loss curve. If the order is a curriculum, keep it.

## References
- huggingface/datasets#7854, lucidrains/DALLE-pytorch#230
"""

from __future__ import annotations

from collections.abc import Iterator

from truetune.checks.config.evidence.setting_places_and_known_keys import setting_case
from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.rule import ConfigRule


class RowsNotShuffled(ConfigRule):
    code = "CFG030"
    fault = Fault.ROWS_IN_FIXED_ORDER
    symptoms = ("loss-does-not-fall", "odd-metrics")
    severity = "info"
    stability = "stable"
    since = "0.1.0"
    reads = ("training.shuffle",)

    def findings(self) -> Iterator[Finding]:
        config, training = self.subject, self.subject.spec.training
        if training.shuffle is False and "training.shuffle" in config.places:
            key = config.places["training.shuffle"].key
            yield self.finding(
                "the rows are not shuffled: training follows the order of the files",
                f"remove {key}, unless the order is a curriculum",
                cases=[setting_case(config, config.raw.get(key, ""), "training.shuffle")],
            )
