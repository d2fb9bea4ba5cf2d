"""A setting does nothing, because another one decides.

## What it does
Finds pairs that are both set and of which one wins: `warmup_steps` over `warmup_ratio`, `max_steps` over
`num_train_epochs`; and `eval_steps` or rows that are held out, where `eval_strategy` is "no".

## Why it is bad
The value that you see is not the one that runs. Three epochs with `max_steps: 100` end after 100 steps; rows that are
held out and never evaluated are only lost.

## Example
```yaml
config:
  model_name_or_path: some/model
  stage: sft
  do_train: true
  dataset: rows
  finetuning_type: lora
  val_size: 0.1
```

## Use instead
```yaml
config:
  model_name_or_path: some/model
  stage: sft
  do_train: true
  dataset: rows
  finetuning_type: lora
  val_size: 0.1
  eval_strategy: steps
  eval_steps: 100
```

## Fix safety
Which of the two you meant is your decision.

## References
- transformers `TrainingArguments`: the descriptions of `max_steps`, `warmup_steps` and `eval_strategy`
"""

from __future__ import annotations

from collections.abc import Iterator

from truetune.checks.config.keys import case, untold
from truetune.checks.findings import Finding
from truetune.checks.rule import ConfigRule


class SettingOverruled(ConfigRule):
    code = "TT614"
    severity = "warning"

    def findings(self) -> Iterator[Finding]:
        config, training = self.subject, self.subject.spec.training
        places = config.places
        if (
            training.warmup_steps
            and training.warmup_ratio
            and {"training.warmup_ratio", "training.warmup_steps"} <= {*places}
        ):
            yield self.finding(
                f"warmup_ratio {training.warmup_ratio:g} does nothing: warmup_steps {training.warmup_steps:g} decides",
                "keep one of the two",
                cases=[
                    case(config, f"{training.warmup_ratio:g}", "training.warmup_ratio"),
                    case(config, f"{training.warmup_steps:g}", "training.warmup_steps"),
                ],
            )
        epochs, limit = training.num_train_epochs, training.max_steps or 0
        if epochs and epochs > 1 and limit > 0 and {"training.num_train_epochs", "training.max_steps"} <= {*places}:
            yield self.finding(
                f"{epochs:g} epochs do not count: max_steps {limit:,} decides",
                "keep one of the two",
                severity="info",
                cases=[
                    case(config, f"{epochs:g}", "training.num_train_epochs"),
                    case(config, limit, "training.max_steps"),
                ],
            )
        if (
            config.stack == "axolotl"
            or (training.eval_strategy or "no") != "no"
            or untold(config, "eval_strategy")
            or config.raw.get("do_eval")
        ):
            return
        for field, value, what in (
            ("training.eval_steps", training.eval_steps, "evaluation steps are set"),
            ("training.val_size", training.val_size, "rows are held out"),
        ):
            if value and field in places:
                yield self.finding(
                    f"{what}, and nothing is evaluated: eval_strategy is no",
                    "set eval_strategy: steps" + (", or hold no rows out" if field.endswith("size") else ""),
                    cases=[case(config, f"{value:g}", field), case(config, "no", "training.eval_strategy")],
                )
