"""A warm-up is set, but the schedule has none.

## What it does
Finds `warmup_steps` or `warmup_ratio` with the schedule `constant`.

## Why it is bad
transformers' `get_scheduler` gives `constant` no warm-up: the first step has the full learning rate, when the steps of
a fresh optimizer are largest. `constant_with_warmup` is the schedule with a warm-up.

## Example
```yaml
config:
  model_name_or_path: some/model
  dataset_name: some/rows
  max_length: 2048
  learning_rate: 0.0002
  lr_scheduler_type: constant
  warmup_steps: 50
  max_steps: 2000
```

## Use instead
```yaml
config:
  model_name_or_path: some/model
  dataset_name: some/rows
  max_length: 2048
  learning_rate: 0.0002
  lr_scheduler_type: constant_with_warmup
  warmup_steps: 50
  max_steps: 2000
```

## Fix safety
Only the first steps change. If you want the full learning rate from the first step, remove the warm-up.

## References
- bmaltais/kohya_ss#2292, transformers `optimization.get_scheduler`
"""

from __future__ import annotations

from collections.abc import Iterator

from truetune.checks.config.evidence.setting_places_and_known_keys import setting_case
from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.rule import ConfigRule


class WarmupIgnoredBySchedule(ConfigRule):
    code = "CFG005"
    fault = Fault.WARMUP_WRONG
    symptoms = ("loss-does-not-fall", "dpo-without-effect")
    severity = "warning"
    since = "0.1.0"
    about = ("training.warmup_steps", "training.warmup_ratio")
    reads = ("training.lr_scheduler_type",)

    def findings(self) -> Iterator[Finding]:
        config, training = self.subject, self.subject.spec.training
        field = "training.warmup_steps" if training.warmup_steps else "training.warmup_ratio"
        wanted = training.warmup_steps or training.warmup_ratio
        if wanted and str(training.lr_scheduler_type) == "constant" and field in config.places:
            yield self.finding(
                f"{config.places[field].key} {wanted:g} has no effect: the schedule constant has no warm-up",
                f"set {config.places['training.lr_scheduler_type'].key} to constant_with_warmup"
                if "training.lr_scheduler_type" in config.places
                else "set lr_scheduler_type to constant_with_warmup",
                cases=[
                    setting_case(config, "constant", "training.lr_scheduler_type"),
                    setting_case(config, f"{wanted:g}", field),
                ],
            )
