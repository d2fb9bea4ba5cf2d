"""A setting does nothing, because another one decides.

## What it does
Finds pairs that are both set and of which one wins: `warmup_steps` over `warmup_ratio`; `max_steps` over
`num_train_epochs`, where the rows are at hand and the limit ends the run before half of the epochs. And rows that are
held out where nothing is evaluated, or `eval_steps` where nothing says `eval_strategy: "no"` in so many words.

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
from dataclasses import replace

from truetune.checks.config.evidence.other_program_settings import keeps_its_defaults
from truetune.checks.config.evidence.setting_places import is_value_untold, setting_case
from truetune.checks.config.evidence.step_counts import steps_of_run
from truetune.checks.findings import Finding
from truetune.checks.rule import ConfigRule

MOST_OF_A_RUN = 0.5
"""Share of the epochs' steps: a limit above it hardly changes the run, and is often set on purpose"""

OLD_NAME = "evaluation_strategy"
"""Of eval_strategy: where it stands, `setting-renamed` says what becomes of it. YAML reads a bare `no` as False."""


class SettingOverruled(ConfigRule):
    code = "CFG014"
    severity = "warning"
    since = "0.1.0"
    reads = (
        "training.warmup_steps",
        "training.warmup_ratio",
        "training.num_train_epochs",
        "training.max_steps",
        "training.eval_strategy",
        "training.eval_steps",
    )

    def findings(self) -> Iterator[Finding]:
        config, training = self.subject, self.subject.spec.training
        places = config.places
        if (
            training.warmup_steps
            and training.warmup_ratio
            and {"training.warmup_ratio", "training.warmup_steps"} <= {*places}
        ):
            yield self.finding(
                f"warmup_ratio {training.warmup_ratio:g} does nothing: warmup_steps"
                f" {training.warmup_steps:g} decides",
                "keep one of the two",
                cases=[
                    setting_case(config, f"{training.warmup_ratio:g}", "training.warmup_ratio"),
                    setting_case(config, f"{training.warmup_steps:g}", "training.warmup_steps"),
                ],
            )
        yield from self._epochs_cut_short()
        if (
            config.stack == "axolotl"
            or (training.eval_strategy or "no") != "no"
            or is_value_untold(config, "eval_strategy")
            or config.raw.get("do_eval")
            or not ("training.eval_strategy" in places or keeps_its_defaults(config))
            or config.raw.get(OLD_NAME) not in (None, False, "no")
        ):
            return
        switched_off = (
            "training.eval_strategy" in places
            or OLD_NAME in config.raw
            or config.raw.get("do_eval") is False
        )
        for field, value, what in (
            (
                "training.eval_steps",
                None if switched_off else training.eval_steps,
                "evaluation steps are set",
            ),
            ("training.val_size", training.val_size, "rows are held out"),
        ):
            if value and field in places:
                yield self.finding(
                    f"{what}, and nothing is evaluated: eval_strategy is no",
                    "set eval_strategy: steps"
                    + (", or hold no rows out" if field.endswith("size") else ""),
                    cases=[
                        setting_case(config, f"{value:g}", field),
                        setting_case(config, "no", "training.eval_strategy"),
                    ],
                )

    def _epochs_cut_short(self) -> Iterator[Finding]:
        """A limit of steps that ends the run long before the epochs that are asked for."""
        config, training = self.subject, self.subject.spec.training
        epochs, limit = training.num_train_epochs, training.max_steps or 0
        both_set = {"training.num_train_epochs", "training.max_steps"} <= {*config.places}
        if not (both_set and epochs and epochs > 1 and limit > 0):
            return
        without_limit = training.model_copy(update={"max_steps": None})
        whole = steps_of_run(
            replace(config, spec=config.spec.model_copy(update={"training": without_limit}))
        )
        if whole is None or limit >= MOST_OF_A_RUN * whole.most:
            return
        yield self.finding(
            f"{epochs:g} epochs do not count: max_steps {limit:,} decides",
            "keep one of the two",
            severity="info",
            evidence=[whole.why],
            cases=[
                setting_case(config, f"{epochs:g}", "training.num_train_epochs"),
                setting_case(config, limit, "training.max_steps"),
            ],
        )
