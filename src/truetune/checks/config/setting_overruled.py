"""A setting does nothing, because another one decides.

## What it does
Finds pairs that are both set and of which one wins: `warmup_steps` over `warmup_ratio`; `max_steps` over
`num_train_epochs`, where the rows are available and the limit ends the run before half of the epochs (a warning before
a fifth, for most rows are never seen then). And rows that are held out where nothing is evaluated, or `eval_steps`
where nothing says `eval_strategy: "no"` in so many words.

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

from truetune.checks.config.evidence.setting_places_and_known_keys import (
    is_value_unknown,
    setting_case,
)
from truetune.checks.config.evidence.settings_read_by_another_program import keeps_stack_defaults
from truetune.checks.config.evidence.upper_bound_of_optimizer_steps import max_steps_of_run
from truetune.checks.findings import Finding
from truetune.checks.rule import ConfigRule
from truetune.settings.config import Config
from truetune.settings.training_settings import Training

MOST_OF_A_RUN = 0.5
"""Share of the epochs' steps: a limit above it hardly changes the run, and is often set on purpose"""

FEW_OF_A_RUN = 0.2
"""Share below which most rows are never seen: what is left over from a trial"""
OLD_NAME = "evaluation_strategy"
"""Of eval_strategy: where it stands, `setting-renamed` says what becomes of it. YAML reads a bare `no` as False."""


class SettingOverruled(ConfigRule):
    code = "CFG014"
    symptoms = ("nothing-is-learned",)
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
        yield from self._findings_on_warmup_twice()
        yield from self._findings_on_epochs_cut_short()
        config, training = self.subject, self.subject.spec.training
        if not _evaluates_never(config):
            return
        is_switched_off = (
            "training.eval_strategy" in config.places
            or OLD_NAME in config.raw
            or config.raw.get("do_eval") is False
        )
        # Steps say nothing where the file itself switches evaluation off; rows that are held out are lost even then.
        if not is_switched_off:
            yield from self._findings_on_unused_evaluation_setting(
                "training.eval_steps",
                training.eval_steps,
                "evaluation steps are set",
                # ms-swift evaluates wherever it has rows for that.
                "hold rows out (split_dataset_ratio: 0.01), or name a val_dataset"
                if config.stack == "ms-swift"
                else "set eval_strategy: steps",
            )
        yield from self._findings_on_unused_evaluation_setting(
            "training.val_size",
            training.val_size,
            "rows are held out",
            "set eval_strategy: steps, or hold no rows out",
        )

    def _findings_on_warmup_twice(self) -> Iterator[Finding]:
        """Findings on a share of warm-up beside a number of steps, which decides."""
        config, training = self.subject, self.subject.spec.training
        if not {"training.warmup_ratio", "training.warmup_steps"} <= {*config.places}:
            return
        if training.warmup_steps and training.warmup_ratio:
            yield self.finding(
                f"warmup_ratio {training.warmup_ratio:g} does nothing: warmup_steps"
                f" {training.warmup_steps:g} decides",
                "keep one of the two",
                cases=[
                    setting_case(config, f"{training.warmup_ratio:g}", "training.warmup_ratio"),
                    setting_case(config, f"{training.warmup_steps:g}", "training.warmup_steps"),
                ],
            )

    def _findings_on_unused_evaluation_setting(
        self, field: str, value: float | None, what: str, remedy: str
    ) -> Iterator[Finding]:
        """Findings on a setting of the evaluation that the file sets, while nothing is evaluated."""
        config = self.subject
        if value and field in config.places:
            yield self.finding(
                f"{what}, and nothing is evaluated: eval_strategy is no",
                remedy,
                cases=[
                    setting_case(config, f"{value:g}", field),
                    setting_case(config, "no", "training.eval_strategy"),
                ],
            )

    def _findings_on_epochs_cut_short(self) -> Iterator[Finding]:
        """Findings on a limit of steps that ends the run long before the epochs that are asked for."""
        config, training = self.subject, self.subject.spec.training
        epochs, limit = training.num_train_epochs, training.max_steps or 0
        both_set = {"training.num_train_epochs", "training.max_steps"} <= {*config.places}
        if not (both_set and epochs and epochs >= 1 and limit > 0):
            return
        without_limit = training.model_copy(update={"max_steps": None})
        whole = max_steps_of_run(
            replace(config, spec=config.spec.model_copy(update={"training": without_limit}))
        )
        # Where the rows are not here, nobody knows how long the epochs would be, and the limit may well be meant.
        if whole is None or limit >= MOST_OF_A_RUN * whole.most:
            return
        is_far_shorter = limit < FEW_OF_A_RUN * whole.most
        # One epoch is what a trainer's example writes beside a limit.
        if not is_far_shorter and epochs <= 1:
            return
        seen = _rows_seen(training, limit)
        is_trial = not is_far_shorter or config.path.endswith(".ipynb")
        yield self.finding(
            f"max_steps {limit:,} ends the run after {seen:,} rows: {epochs:g} epochs do not count",
            "remove max_steps, unless it is a trial; else remove the epochs",
            severity="info" if is_trial else None,
            evidence=[whole.why],
            cases=[
                setting_case(config, f"{epochs:g}", "training.num_train_epochs"),
                setting_case(config, limit, "training.max_steps"),
            ],
        )


def _rows_seen(training: Training, steps: int) -> int:
    """The rows that so many steps see, each row as often as it is seen."""
    batch = training.per_device_train_batch_size or 1
    return steps * batch * max(training.gradient_accumulation_steps or 1, 1) * training.devices


def _evaluates_never(config: Config) -> bool:
    """Is nothing evaluated, as far as the settings say? Axolotl evaluates wherever rows are held out."""
    training = config.spec.training
    if config.stack == "axolotl" or (training.eval_strategy or "no") != "no":
        return False
    if is_value_unknown(config, "eval_strategy") or config.raw.get("do_eval"):
        return False
    if "training.eval_strategy" not in config.places and not keeps_stack_defaults(config):
        return False
    return config.raw.get(OLD_NAME) in (None, False, "no")
