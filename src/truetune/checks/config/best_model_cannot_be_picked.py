"""The best model is to be loaded, and saving does not fit evaluation.

## What it does
For `load_best_model_at_end` compares `save_strategy` and `save_steps` with `eval_strategy` and `eval_steps`.

## Why it is bad
transformers stops before the first step, because the best checkpoint might never have been saved.

## Example
```yaml
config:
  model_name_or_path: some/model
  dataset_name: some/rows
  max_length: 2048
  eval_strategy: epoch
  save_strategy: steps
  load_best_model_at_end: true
```

## Use instead
```yaml
config:
  model_name_or_path: some/model
  dataset_name: some/rows
  max_length: 2048
  eval_strategy: epoch
  save_strategy: epoch
  load_best_model_at_end: true
```

## Fix safety
Safe: it changes when the model is saved, not what is learned.

## References
- transformers `TrainingArguments.__post_init__`
"""

from __future__ import annotations

from collections.abc import Iterator

from truetune.checks.config.evidence.setting_places_and_known_keys import (
    is_value_unknown,
    setting_case,
)
from truetune.checks.findings import Case, Finding
from truetune.checks.rule import ConfigRule

DECIDING_FIELDS = ("save_strategy", "eval_strategy", "save_steps", "eval_steps", "logging_steps")
"""Where one of them is not known, the two rhythms cannot be compared"""


class BestModelCannotBePicked(ConfigRule):
    code = "CFG009"
    symptoms = ("nothing-is-learned", "odd-metrics")
    severity = "error"
    since = "0.1.0"
    stacks = ("truetune", "trl", "transformers", "llama-factory")
    about = ("training.load_best_model_at_end",)
    reads = (
        "training.eval_strategy",
        "training.eval_steps",
        "training.save_strategy",
        "training.save_steps",
    )

    def findings(self) -> Iterator[Finding]:
        config, training = self.subject, self.subject.spec.training
        if config.stack == "axolotl" or not training.load_best_model_at_end:
            return
        # With `best`, transformers saves when it evaluates, whatever the steps say.
        if training.save_strategy == "best" or is_value_unknown(config, *DECIDING_FIELDS):
            return
        saves, evaluates = training.save_strategy or "steps", training.eval_strategy or "no"
        cases = [
            setting_case(config, True, "training.load_best_model_at_end"),
            setting_case(config, evaluates, "training.eval_strategy"),
            setting_case(config, saves, "training.save_strategy"),
        ]
        if saves != evaluates:
            yield self.finding(
                f"the best model cannot be loaded: evaluation is by {evaluates}, saving by {saves}",
                f"set both to {evaluates if evaluates != 'no' else saves}",
                cases=cases,
            )
        elif evaluates == "steps":
            yield from self._findings_on_save_steps(cases)

    def _findings_on_save_steps(self, cases: list[Case]) -> Iterator[Finding]:
        """Findings on saves at steps of which some are not evaluated; shares of the run below 1 are
        not judged.
        """
        config, training = self.subject, self.subject.spec.training
        every, saved = training.eval_steps or training.logging_steps, training.save_steps
        if not every or not saved or every < 1 or saved < 1 or saved % every == 0:
            return
        yield self.finding(
            f"the best model cannot be loaded: save_steps {saved:g} is no multiple of"
            f" eval_steps {every:g}",
            f"set save_steps to {every:g}",
            cases=[setting_case(config, f"{saved:g}", "training.save_steps"), *cases],
        )
