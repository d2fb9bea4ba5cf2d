"""The settings change no weight.

## What it does
Finds a learning rate of 0, no epochs, a LoRA with `lora_alpha: 0` or `lora_dropout: 1`.

## Why it is bad
The run ends without an error and saves the model that it loaded. With `lora_alpha: 0` the adapter is multiplied by 0,
forwards and backwards: its loss is that of the base, at every step.

## Example
```yaml
config:
  base_model: some/model
  datasets: [{path: some/rows, type: alpaca}]
  sequence_len: 2048
  micro_batch_size: 2
  num_epochs: 3
  learning_rate: 0.0002
  adapter: lora
  lora_r: 16
  lora_alpha: 0
```

## Use instead
```yaml
config:
  base_model: some/model
  datasets: [{path: some/rows, type: alpaca}]
  sequence_len: 2048
  micro_batch_size: 2
  num_epochs: 3
  learning_rate: 0.0002
  adapter: lora
  lora_r: 16
  lora_alpha: 32
```

## Fix safety
No value is right for all; `lora_alpha` of one or two times `r` is usual.

## References
- Hu et al., LoRA (arXiv:2106.09685): the update is `alpha / r * B A`
"""

from __future__ import annotations

from collections.abc import Iterator

from truetune.checks.config.keys import case
from truetune.checks.findings import Finding
from truetune.checks.rule import ConfigRule


class SettingsTrainNothing(ConfigRule):
    code = "TT610"
    severity = "error"
    reads = (
        "training.learning_rate",
        "training.num_train_epochs",
        "training.max_steps",
        "training.lora.lora_alpha",
    )

    def findings(self) -> Iterator[Finding]:
        config, training = self.subject, self.subject.spec.training
        if training.learning_rate == 0:
            yield self.finding(
                "the learning rate is 0",
                "set a learning rate",
                cases=[case(config, 0, "training.learning_rate")],
            )
        epochs = training.num_train_epochs
        if epochs is not None and epochs <= 0 and (training.max_steps or 0) < 1:
            yield self.finding(
                f"the run has {epochs:g} epochs",
                "set num_train_epochs, or max_steps",
                cases=[case(config, f"{epochs:g}", "training.num_train_epochs")],
            )
        if training.lora and training.lora.lora_alpha == 0:
            yield self.finding(
                "lora_alpha is 0: the adapter is multiplied by 0",
                f"set lora_alpha to {training.lora.r} or {2 * training.lora.r}",
                cases=[case(config, 0, "training.lora.lora_alpha")],
            )
        if training.lora and training.lora.lora_dropout >= 1:
            yield self.finding(
                f"lora_dropout is {training.lora.lora_dropout:g}: nothing passes through the"
                " adapter",
                "set lora_dropout to 0 or 0.05",
                cases=[case(config, training.lora.lora_dropout, "training.lora.lora_dropout")],
            )
