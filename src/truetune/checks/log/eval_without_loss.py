"""The evaluation gives no loss, or it never runs although it is configured.

## What it does
Looks for evaluation records (`eval_runtime`) without an `eval_loss` or any other metric. If the log contains
`eval_strategy` (as W&B's does), it also looks for a run that should have evaluated and has no record of it.

## Why it is bad
Nothing was measured on rows that the model has not seen. `PeftModel` hides the base model's arguments, so the Trainer
finds no labels (`label_names`) and evaluates without a loss. Early stopping and the best checkpoint then have no
metric.

## Example
```yaml
log:
  - {step: 10, loss: 1.5}
  - {step: 10, eval_runtime: 7.2, eval_samples_per_second: 0.1}
```

## Use instead
```yaml
log:
  - {step: 10, loss: 1.5}
  - {step: 10, eval_loss: 1.6, eval_runtime: 7.2, eval_samples_per_second: 0.1}
```

## Fix safety
`label_names=["labels"]` in `TrainingArguments` changes only the evaluation.

## References
- huggingface/transformers#33420, huggingface/transformers#38130, huggingface/peft#1881
"""

from __future__ import annotations

from collections.abc import Iterator

from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.judgement import Unmet
from truetune.checks.rule import LogRule
from truetune.logs.run_log import RunLog

# What the Trainer logs of each evaluation, whether it measured anything or not.
TIMINGS = {
    "runtime",
    "samples_per_second",
    "steps_per_second",
    "model_preparation_time",
    "num_tokens",
}


class EvalWithoutLoss(LogRule):
    code = "LOG016"
    fault = Fault.EVALUATION_NEVER_HAPPENS
    symptoms = ("odd-metrics",)
    severity = "warning"
    since = "0.1.0"

    def unmet(self) -> Unmet | None:
        """Unmet where no evaluation was made, because none was asked for or none was due yet."""
        log = self.subject
        if log.curve("eval_runtime") or self._metrics_measured():
            return None
        if log.facts.get("eval_strategy") in ("steps", "epoch"):
            return Unmet("the run has not come to its first evaluation")
        return Unmet(
            "the run evaluated nothing",
            "evaluate while training (eval_strategy and an eval_dataset)",
        )

    def measurement_if_clean(self) -> str:
        """How many evaluations gave which metrics."""
        names = self._metrics_measured()
        times = max(self.subject.curve(name).step.size for name in names)
        return f"{times:,} evaluations gave {', '.join(names[:3])}"

    def findings(self) -> Iterator[Finding]:
        log = self.subject
        runs = log.curve("eval_runtime").step.size
        measured = self._metrics_measured()
        if runs and not measured:
            yield self.finding(
                f"{runs:,} evaluation{'s' * (runs != 1)} ran, but none gave a loss or another metric",
                'set label_names=["labels"] in TrainingArguments: the Trainer finds no labels through a PeftModel;'
                " without PEFT, check that the rows of eval_dataset have labels",
                evidence=(", ".join(n for n in sorted(log.curves) if n.startswith("eval_")),),
                count=runs,
            )
        strategy = log.facts.get("eval_strategy")
        if not runs and not measured and self._is_first_evaluation_due(strategy):
            yield self.finding(
                f"eval_strategy is {strategy!r}, but {log.last_step:,.0f} steps were logged without"
                " an evaluation",
                "pass an eval_dataset to the trainer, or set eval_strategy to 'no'",
            )

    def _is_first_evaluation_due(self, strategy: object) -> bool:
        """Has the run reached the first evaluation that its settings ask for?"""
        log = self.subject
        if strategy not in ("steps", "epoch") or not log.curve("loss"):
            return False
        if log.last_step < (log.fact_as_number("eval_steps") or 0):
            return False
        return strategy == "steps" or log.epochs_at_end >= 1

    def _metrics_measured(self) -> list[str]:
        """Metrics of this log's evaluations, `eval_loss` first where it is there."""
        return evaluated_metrics(self.subject)


def evaluated_metrics(log: RunLog) -> list[str]:
    """Metrics of a log's evaluations, `eval_loss` first where it is there; no timings."""
    names = (
        n for n in log.curves if n.startswith("eval_") and n.removeprefix("eval_") not in TIMINGS
    )
    return sorted(names, key=lambda name: name != "eval_loss")
