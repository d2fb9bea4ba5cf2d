"""Dropout stays on while log-probabilities are compared with those of the reference.

## What it does
Finds preference training with `disable_dropout: false`.

## Why it is bad
Dropout makes the log-probabilities of policy and reference random. Margins are not 0 before the first step, rewards are
noisy, and training is slower. A model whose config has no dropout is not affected.

## Example
```yaml
config:
  model_name_or_path: some/model
  dataset_name: some/pairs
  beta: 0.1
  learning_rate: 5.0e-7
  loss_type: sigmoid
  disable_dropout: false
```

## Use instead
```yaml
config:
  model_name_or_path: some/model
  dataset_name: some/pairs
  beta: 0.1
  learning_rate: 5.0e-7
  loss_type: sigmoid
  disable_dropout: true
```

## Fix safety
Safe: true is TRL's default for preference training.

## References
- huggingface/trl#744, huggingface/trl#2042, hiyouga/LlamaFactory#10779, eric-mitchell/direct-preference-optimization#34
"""

from __future__ import annotations

from collections.abc import Iterator

from truetune.checks.config.evidence.setting_places_and_known_keys import case_at_place
from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.rule import ConfigRule


class DropoutActiveInReference(ConfigRule):
    code = "CFG040"
    fault = Fault.DROPOUT_IN_WRONG_MODE
    symptoms = ("dpo-without-effect",)
    severity = "warning"
    since = "0.1.0"
    methods = ("dpo", "kto", "orpo", "cpo", "grpo", "ppo", "reward")
    reads = ("training.disable_dropout",)

    def findings(self) -> Iterator[Finding]:
        training, place = (
            self.subject.spec.training,
            self.subject.places.get("training.disable_dropout"),
        )
        if training.disable_dropout is False and place is not None and training.method != "sft":
            yield self.finding(
                f"disable_dropout is false in {training.method.upper()}: dropout makes the log-probabilities of"
                " policy and reference random, and the rewards noisy",
                "set disable_dropout: true",
                cases=[case_at_place(place, "disable_dropout: false")],
            )
