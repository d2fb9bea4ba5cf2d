"""Evaluation or logging is due after the last step.

## What it does
Compares `eval_steps` and `logging_steps` with the steps that the run makes at most.

## Why it is bad
With `eval_steps: 500` a run of 60 steps is never evaluated, and `load_best_model_at_end` has nothing to choose from. A
loss that is logged every 500 steps is never seen. (A last save is always made.)

## Example
```yaml
files:
  rows.jsonl: {rows: 40}
config:
  model_name_or_path: some/model
  dataset_name: rows.jsonl
  max_length: 2048
  max_steps: 60
  eval_strategy: steps
  eval_steps: 500
```

## Use instead
```yaml
files:
  rows.jsonl: {rows: 40}
config:
  model_name_or_path: some/model
  dataset_name: rows.jsonl
  max_length: 2048
  max_steps: 60
  eval_strategy: steps
  eval_steps: 20
```

## Fix safety
Safe: it changes no weight. A number below 1 is a share of the run.

## References
- huggingface/transformers `TrainerCallback`: `DefaultFlowCallback` evaluates at multiples of `eval_steps` only
"""

from __future__ import annotations

from collections.abc import Iterator

from truetune.checks.config.evidence.missing_input_reasons import NO_STEPS
from truetune.checks.config.evidence.setting_places_and_known_keys import setting_case
from truetune.checks.config.evidence.upper_bound_of_optimizer_steps import max_steps_of_run
from truetune.checks.findings import Finding
from truetune.checks.judgement import Unmet
from truetune.checks.rule import ConfigRule


class StepsBeyondTheRun(ConfigRule):
    code = "CFG007"
    symptoms = ("nothing-is-learned",)
    severity = "warning"
    since = "0.1.0"
    reads = ("training.eval_strategy", "training.eval_steps", "training.logging_steps")

    def unmet(self) -> Unmet | None:
        """Why the rule can't judge this run; None if it can.

        Also unmet where the number of steps is not known.
        """
        if (lacking := super().unmet()) is not None:
            return lacking
        return NO_STEPS if max_steps_of_run(self.subject) is None else None

    def figure(self) -> str:
        """What was measured: the settings that were compared, and the most steps of the run."""
        run = max_steps_of_run(self.subject)
        assert run is not None, "else the rule is not judged"
        return f"{self.compared()}; the run has at most {run.most:,} steps"

    def findings(self) -> Iterator[Finding]:
        config, training = self.subject, self.subject.spec.training
        run = max_steps_of_run(config)
        if run is None:
            return
        every = training.eval_steps
        if (
            training.eval_strategy == "steps"
            and every is not None
            and every >= 1
            and every > run.most
        ):
            best = " and has no best model to load" if training.load_best_model_at_end else ""
            yield self.finding(
                f"the run of at most {run.most:,} steps is never evaluated{best}: evaluation is due"
                f" every {every:,.0f}",
                f"set eval_steps to {max(1, run.most // 5)}, or to a share such as 0.2",
                evidence=[run.why],
                cases=[setting_case(config, f"{every:g}", "training.eval_steps")],
            )
        every = training.logging_steps
        if (
            every is not None
            and every >= 1
            and every > run.most
            and "training.logging_steps" in config.places
        ):
            yield self.finding(
                f"no loss is logged in a run of at most {run.most:,} steps: logging is due every"
                f" {every:,.0f}",
                "set logging_steps to 1 for a run as short as this",
                severity="info",
                evidence=[run.why],
                cases=[setting_case(config, f"{every:g}", "training.logging_steps")],
            )
