"""The evaluation gives no loss, sees hardly any row, or never runs although it is configured.

## What it does
Looks for evaluation records (`eval_runtime`) without an `eval_loss` or any other metric, and for three evaluations or
more of fewer than five rows (`eval_runtime` times `eval_samples_per_second`). If the log contains
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

import numpy as np

from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.judgement import Unmet
from truetune.checks.rule import LogRule
from truetune.logs.run_log import RunLog

MIN_EVALUATIONS = 3
MIN_ROWS = 4.5
"""Chosen, not measured: so few rows show nothing, and trials of more are made on purpose"""
MIN_SECONDS = 0.01
"""Below it, the rounded time of an evaluation says nothing of its rows"""
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
        elif runs >= MIN_EVALUATIONS:
            yield from self._finding_on_few_rows()
        strategy = log.facts.get("eval_strategy")
        if not runs and not measured and self._is_first_evaluation_due(strategy):
            yield self.finding(
                f"eval_strategy is {strategy!r}, but {log.last_step:,.0f} steps were logged without"
                " an evaluation",
                "pass an eval_dataset to the trainer, or set eval_strategy to 'no'",
            )

    def _finding_on_few_rows(self) -> Iterator[Finding]:
        """The finding that evaluations see hardly any row, by their time and speed."""
        runtime = self.subject.curve("eval_runtime").finite()
        speed = self.subject.curve("eval_samples_per_second").finite()
        if runtime.step.size != speed.step.size or not np.array_equal(runtime.step, speed.step):
            return
        # An evaluator of its own reads its rows itself: the Trainer, which was given none, writes 0.0 rows a second.
        if not speed.value.any():
            return
        rows = runtime.value * speed.value
        # Both are rounded: of very short times, nothing follows.
        if float(runtime.value.min()) < MIN_SECONDS or float(rows.max()) >= MIN_ROWS:
            return
        yield self.finding(
            f"each of {rows.size:,} evaluations sees about {max(1, round(float(np.median(rows)))):,} row"
            f"{'s' * (round(float(np.median(rows))) > 1)} (eval_runtime times eval_samples_per_second): what they"
            " measure is chance",
            "check the length of eval_dataset: a select(range(1)) of a trial, a filter that drops nearly all, packing"
            " that joins all rows into one",
            count=int(rows.size),
            total=int(rows.size),
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
