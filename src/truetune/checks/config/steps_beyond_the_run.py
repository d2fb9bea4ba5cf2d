"""Evaluation or logging would only happen after the last step.

## What it does
Compares `eval_steps` and `logging_steps` with the largest number of steps that the run can make. For torchtune and
Axolotl it also checks the steps after which quantization is simulated (`fake_quant_after_n_steps`) or validation runs
(`run_val_every_n_steps`).

## Why it is bad
With `eval_steps: 500` a run of 60 steps is never evaluated, and `load_best_model_at_end` has nothing to choose from. A
loss that is logged every 500 steps is never seen. If quantization is never simulated, the weights lose as much in the
real quantization as without quantization-aware training. (The last checkpoint is always saved.)

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
Safe: no weight changes. A number below 1 is a fraction of the run.

## References
- huggingface/transformers `TrainerCallback`: `DefaultFlowCallback` evaluates at multiples of `eval_steps` only
"""

from __future__ import annotations

from collections.abc import Iterator

from truetune.checks.config.evidence.reasons_setting_rules_lack_their_inputs import NO_STEPS
from truetune.checks.config.evidence.setting_places_and_known_keys import (
    setting_case,
    value_at_dotted_key,
)
from truetune.checks.config.evidence.upper_bound_of_optimizer_steps import max_steps_of_run
from truetune.checks.count_optimizer_steps import OptimizerSteps
from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.judgement import Unmet
from truetune.checks.rule import ConfigRule

NO_SIMULATION = "quantization is never simulated during training"
LATE_STEPS = (
    ("fake_quant_after_n_steps", NO_SIMULATION, "set fake_quant_after_n_steps to {}"),
    ("qat.fake_quant_after_n_steps", NO_SIMULATION, "set fake_quant_after_n_steps to {}"),
    ("run_val_every_n_steps", "the run is never validated", "set run_val_every_n_steps to {}"),
)
"""Key, what does not happen, and the remedy with a fifth of the steps"""


class StepsBeyondTheRun(ConfigRule):
    code = "CFG007"
    fault = Fault.EVALUATION_NEVER_HAPPENS
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

    def measurement_if_clean(self) -> str:
        """What was measured: the settings that were compared, and the most steps of the run."""
        run = max_steps_of_run(self.subject)
        assert run is not None, "else the rule is not judged"
        return f"{self.describe_compared_settings()}; the run has at most {run.most:,} steps"

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
                f"the run is never evaluated{best}: it has at most {run.most:,} steps, and evaluation is every"
                f" {every:,.0f}",
                f"set eval_steps to {max(1, run.most // 5)}, or to a fraction of the run such as 0.2",
                evidence=[run.why],
                cases=[setting_case(config, f"{every:g}", "training.eval_steps")],
            )
        for key, what, remedy in LATE_STEPS:
            yield from self._findings_on_late_steps(run, key, what, remedy)
        every = training.logging_steps
        if (
            every is not None
            and every >= 1
            and every > run.most
            and "training.logging_steps" in config.places
        ):
            yield self.finding(
                f"no loss is logged: the run has at most {run.most:,} steps, and logging is every {every:,.0f}",
                "set logging_steps to 1",
                severity="info",
                evidence=[run.why],
                cases=[setting_case(config, f"{every:g}", "training.logging_steps")],
            )

    def _findings_on_late_steps(
        self, run: OptimizerSteps, key: str, what: str, remedy: str
    ) -> Iterator[Finding]:
        """The finding on something that a stack begins after so many steps, which the run does not make."""
        begin = value_at_dotted_key(self.subject.raw, key)
        if not isinstance(begin, int) or isinstance(begin, bool) or begin <= run.most:
            return
        name = key.rpartition(".")[2]
        yield self.finding(
            f"{what}: {name} is {begin:,}, but the run has at most {run.most:,} steps",
            remedy.format(max(1, run.most // 5)),
            evidence=[run.why],
            cases=[setting_case(self.subject, begin, key)],
        )
