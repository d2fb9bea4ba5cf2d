"""The best model is to be loaded, and saving does not fit evaluation.

## What it does
For `load_best_model_at_end` compares `save_strategy` and `save_steps` with `eval_strategy` and `eval_steps`. Axolotl
wants both numbers of steps, saving at a multiple of the evaluation's.

## Why it is bad
transformers stops before the first step, because the best checkpoint might never have been saved. Axolotl
switches the setting off without a word, and the last weights are the result.

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
- transformers `TrainingArguments.__post_init__`; axolotl `HFCausalTrainerBuilder.build`
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

STEPS_BY_EPOCH = ("saves_per_epoch", "evals_per_epoch")


class BestModelCannotBePicked(ConfigRule):
    code = "CFG009"
    symptoms = ("nothing-is-learned", "odd-metrics")
    severity = "error"
    since = "0.1.0"
    stacks = ("truetune", "trl", "transformers", "llama-factory", "axolotl")
    about = ("training.load_best_model_at_end",)
    reads = (
        "training.eval_strategy",
        "training.eval_steps",
        "training.save_strategy",
        "training.save_steps",
    )

    def findings(self) -> Iterator[Finding]:
        config, training = self.subject, self.subject.spec.training
        if not training.load_best_model_at_end:
            return
        if config.stack == "axolotl":
            yield from self._findings_on_axolotl_loading_no_best_model()
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

    def _findings_on_axolotl_loading_no_best_model(self) -> Iterator[Finding]:
        """The finding on settings with which Axolotl switches the loading off."""
        config = self.subject
        evaluates = config.raw.get("val_set_size") or config.raw.get("test_datasets")
        # Numbers by epoch become shares of the run, whose remainders are those of floating point.
        if not evaluates or any(config.raw.get(key) for key in STEPS_BY_EPOCH):
            return
        every, saved = config.raw.get("eval_steps"), config.raw.get("save_steps")
        if every and saved and _is_multiple(saved, every):
            return
        reason = _why_axolotl_loads_no_best_model(saved, every)
        yield self.finding(
            f"the best model is not loaded: Axolotl switches load_best_model_at_end off ({reason})",
            "set eval_steps, and save_steps to the same number",
            severity="warning",
            cases=[
                setting_case(config, True, "training.load_best_model_at_end"),
                setting_case(config, saved or "not set", "training.save_steps", "save_strategy"),
                setting_case(config, every or "not set", "training.eval_steps", "eval_strategy"),
            ],
        )

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


def _is_multiple(saved: object, every: object) -> bool:
    """Is one number of steps a multiple of the other?"""
    if not isinstance(saved, (int, float)) or not isinstance(every, (int, float)):
        return False
    return saved % every == 0


def _why_axolotl_loads_no_best_model(saved: object, every: object) -> str:
    """Why Axolotl does not load the best model: the steps do not fit, or are not set."""
    if isinstance(every, (int, float)) and isinstance(saved, (int, float)):
        return f"save_steps {saved:g} is no multiple of eval_steps {every:g}"
    steps = {"save_steps": saved, "eval_steps": every}
    return f"{' and '.join(key for key, value in steps.items() if not value)} not set"
