"""Every evaluation gives exactly the same loss while the training loss moves.

## What it does
Compares the values of `eval_loss`. It warns if four evaluations or more, and 75 % of all, give the same value with
three decimals or more, while the training loss changed by more than 10 % and the learning rate was not 0.

## Why it is bad
The same rows give exactly the same loss only if no weight has changed. So the evaluation does not use the model that is
trained but its base, a copy or a reference; or its loader is empty and an old value is logged again. Early stopping and
the choice of a best checkpoint are then meaningless.

## Example
```yaml
curve:
  loss: {from: 2.4, to: 1.1, steps: 60, noise: 0.02}
  eval_loss: {from: 1.73125, steps: 60, every: 10}
```

## Use instead
```yaml
curve:
  loss: {from: 2.4, to: 1.1, steps: 60, noise: 0.02}
  eval_loss: {from: 2.2, to: 1.4, steps: 60, every: 10}
```

## Fix safety
There is no automatic fix. Evaluate the object whose parameters the optimizer has (`trainer.model`, the wrapped model),
with its adapter enabled. The training itself does not change.

## References
- huggingface/transformers#14226, huggingface/peft#1085
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import numpy as np

from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.log.draw_log_curves_for_reports import draw_curves
from truetune.checks.rule import LogRule
from truetune.logs.robust_statistics import medians_of_both_ends

MIN_SAME = 4
"""Evaluations; two may be one that is logged twice, as after the last step"""
# Chosen, not measured: a run may continue for a while after its rate came to 0, and its last evaluations then agree.
MIN_SAME_SHARE = 0.75
MOVED = 0.1
"""Share by which the training loss has to change for evaluations to show it"""
DIGITS = 1e-3
"""A value with fewer digits may be rounded to the same"""


class EvalNeverChanges(LogRule):
    code = "LOG041"
    fault = Fault.WRONG_MODEL_EVALUATED
    severity = "warning"
    kinds = ("language",)
    needs = ("loss", "eval_loss")

    def measurement_if_clean(self) -> str:
        """How many different values the evaluations give."""
        value = self.subject.curve("eval_loss").finite().value
        return f"{np.unique(value).size:,} different values in {value.size:,} evaluations"

    def findings(self) -> Iterator[Finding]:
        log = self.subject
        evaluation, loss = log.curve("eval_loss").finite(), log.curve("loss").finite()
        if (
            self.unmet() is not None
            or evaluation.value.size < MIN_SAME
            or loss.value.size < MIN_SAME
        ):
            return
        ((value, count),) = Counter(evaluation.value.tolist()).most_common(1)
        first, last = medians_of_both_ends(loss.value)
        has_digits = abs(value - round(value, 2)) > DIGITS * 0.1
        rate = log.curve("learning_rate").finite().value
        is_still = rate.size > 0 and not rate.any()
        if (
            count < max(MIN_SAME, MIN_SAME_SHARE * evaluation.value.size)
            or not has_digits
            or is_still
        ):
            return
        if abs(first - last) < MOVED * abs(first):
            return
        yield self.finding(
            f"eval_loss is exactly {value:.6g} at {count:,} of {evaluation.value.size:,} evaluations, while the"
            f" training loss went from {first:.3g} to {last:.3g}: the evaluation does not use the"
            " trained model, or has no rows",
            "evaluate the trained model (trainer.model): not its base, a copy made before training, or one with its"
            " adapter disabled; check that the evaluation data have rows",
            count=count,
            total=evaluation.value.size,
            figure=draw_curves("loss and eval_loss", {"loss": loss, "eval_loss": evaluation}),
        )
