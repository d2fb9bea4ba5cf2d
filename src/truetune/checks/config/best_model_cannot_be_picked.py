"""load_best_model_at_end is set, but checkpoints are not saved when the model is evaluated.

## What it does
If `load_best_model_at_end` is on, compares `save_strategy` and `save_steps` with `eval_strategy` and `eval_steps`. For
Axolotl, checks that both numbers of steps are set and that `save_steps` is a multiple of `eval_steps`.

## Why it is bad
transformers stops before the first step, because the best checkpoint might never be saved. Axolotl silently switches
the setting off and keeps the last weights.

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
Safe: only the times of saving and evaluating change, not the training.

## References
- transformers `TrainingArguments.__post_init__`; axolotl `HFCausalTrainerBuilder.build`
"""

from __future__ import annotations

from collections.abc import Iterator

from truetune.checks.config.evidence.setting_places_and_known_keys import (
    is_value_unknown,
    setting_case,
)
from truetune.checks.faults import Fault
from truetune.checks.findings import Case, Finding
from truetune.checks.rule import ConfigRule

DECIDING_FIELDS = ("save_strategy", "eval_strategy", "save_steps", "eval_steps", "logging_steps")
"""Where one of them is not known, the two rhythms cannot be compared"""

STEPS_BY_EPOCH = ("saves_per_epoch", "evals_per_epoch")


class BestModelCannotBePicked(ConfigRule):
    code = "CFG009"
    fault = Fault.WRONG_CHECKPOINT_CHOSEN
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
                (
                    "load_best_model_at_end cannot work, because the model is not saved when it is evaluated:"
                    f" eval_strategy is {evaluates}, but save_strategy is {saves}"
                ),
                f"set save_strategy to {evaluates}"
                if evaluates != "no"
                else f"set eval_strategy to {saves}",
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
            f"the last model is kept, not the best: Axolotl switches load_best_model_at_end off ({reason})",
            "set eval_steps and save_steps to the same number",
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
            f"load_best_model_at_end cannot work: save_steps {saved:g} is not a multiple of eval_steps {every:g}",
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
        return f"save_steps {saved:g} is not a multiple of eval_steps {every:g}"
    steps = {"save_steps": saved, "eval_steps": every}
    return f"{' and '.join(key for key, value in steps.items() if not value)} not set"
