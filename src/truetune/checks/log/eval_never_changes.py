"""Every evaluation gives exactly the same loss or score while the training loss moves.

## What it does
Compares the values of `eval_loss`. It warns if four evaluations or more, and 75 % of all, give the same value with
three decimals or more, while the training loss changed by more than 10 % and the learning rate was not 0. It also warns
if a score (an accuracy, F1, a reward on held-out prompts) is the same at all of four evaluations or more, and the
training loss, the reward or eval_loss moved between them.

## Why it is bad
The same rows give exactly the same loss only if no weight has changed. A score stays the same too if the model gives
one answer to each row, as a classifier that predicts one class. So the evaluation does not use the model that is
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
from truetune.checks.judgement import Unmet
from truetune.checks.log.draw_log_curves_for_reports import draw_curves
from truetune.checks.reasons_rules_cannot_judge import LOGGED_BY
from truetune.checks.rule import LogRule
from truetune.logs.metric_direction import is_held_out_score
from truetune.logs.robust_statistics import medians_of_both_ends, noise_sigma
from truetune.logs.run_log import Curve

MIN_SAME = 4
"""Evaluations; two may be one that is logged twice, as after the last step"""
# Chosen, not measured: a run may continue for a while after its rate came to 0, and its last evaluations then agree.
MIN_SAME_SHARE = 0.75
MOVED = 0.1
"""Share by which the training loss has to change for evaluations to show it"""
SATURATED = 95.0
"""Per cent from which a score may stay as it is because the task is learned"""
DIGITS = 1e-3
"""A value with fewer digits may be rounded to the same"""


class EvalNeverChanges(LogRule):
    code = "LOG041"
    fault = Fault.WRONG_MODEL_EVALUATED
    severity = "warning"

    def unmet(self) -> Unmet | None:
        """Unmet where no evaluation is logged beside a training."""
        log = self.subject
        if not log.curve("loss") and not log.curve("reward"):
            return Unmet("the log has no loss and no reward", LOGGED_BY["loss"])
        if not self._evaluated():
            return Unmet(
                "the log has no eval_loss and no score of an evaluation", LOGGED_BY["eval_loss"]
            )
        return None

    def measurement_if_clean(self) -> str:
        """How many different values the evaluations give."""
        value = next(iter(self._evaluated().values())).value
        return f"{np.unique(value).size:,} different values in {value.size:,} evaluations"

    def findings(self) -> Iterator[Finding]:
        """The findings on evaluations of one loss, or else of one score."""
        if self.unmet() is not None:
            return
        on_loss = list(self._findings_on_loss()) if self.subject.kind == "language" else []
        yield from on_loss or self._findings_on_scores()

    def _evaluated(self) -> dict[str, Curve]:
        """What evaluations gave: their loss of language models, and their scores."""
        log = self.subject
        names = ["eval_loss"] if log.kind == "language" else []
        names += [name for name in log.curves if is_held_out_score(name)]
        finite = {name: log.curve(name).finite() for name in names}
        return {name: curve for name, curve in finite.items() if curve}

    def _findings_on_scores(self) -> Iterator[Finding]:
        """The finding on scores that are one value at all evaluations."""
        stuck = {
            name: curve
            for name, curve in self._evaluated().items()
            if name != "eval_loss" and self._is_stuck(curve)
        }
        if not stuck:
            return
        name, score = next(iter(stuck.items()))
        yield self.finding(
            f"{name} is exactly {score.value[0]:.6g} at all {score.value.size:,} evaluations"
            + (
                ", while eval_loss changes: the model gives each row the same answer (a classifier: one class)"
                if self._do_weights_move(score)
                else ", while the training moves: the model gives each row the same answer, or the evaluation does not"
                " use the trained model"
            ),
            "count the different answers of one evaluation: if there is one, the labels, the head or the decoding is"
            " wrong; if there are many, evaluate the weights that are trained (with RL: those that the sampler was"
            " given last)",
            evidence=[
                f"{other} is exactly {curve.value[0]:.6g} at all of them, too"
                for other, curve in list(stuck.items())[1:4]
            ],
            count=int(score.value.size),
            total=int(score.value.size),
            figure=draw_curves(name, {name: score}),
        )

    def _is_stuck(self, score: Curve) -> bool:
        """Is a score one value at all evaluations, of digits enough, while the training moved between them?"""
        if score.value.size < MIN_SAME or np.ptp(score.value) != 0:
            return False
        value = abs(float(score.value[0])) * (100 if abs(score.value[0]) <= 1 else 1)
        # A whole per cent may be of few rows, or stand for none and all.
        if abs(value - round(value)) < DIGITS or SATURATED <= value <= 100:
            return False
        moves = any(self._moves_between(name, score) for name in ("loss", "reward"))
        return moves or self._do_weights_move(score)

    def _do_weights_move(self, score: Curve) -> bool:
        """Does eval_loss differ at the evaluations that give one score? Then the weights do, and the answers do not."""
        loss = self.subject.curve("eval_loss").finite()
        values = loss.value[np.isin(loss.step, score.step)]
        return values.size >= MIN_SAME and np.unique(values).size == values.size

    def _moves_between(self, name: str, score: Curve) -> bool:
        """Does a quantity of the training change by a tenth between the first and the last evaluation?"""
        curve = self.subject.curve(name).finite()
        inside = curve.value[(curve.step >= score.step[0]) & (curve.step <= score.step[-1])]
        if inside.size < MIN_SAME:
            return False
        first, last = medians_of_both_ends(inside)
        return abs(first - last) >= max(MOVED * abs(first), 3 * noise_sigma(inside))

    def _findings_on_loss(self) -> Iterator[Finding]:
        """The finding on evaluations that give one loss."""
        log = self.subject
        evaluation, loss = log.curve("eval_loss").finite(), log.curve("loss").finite()
        if evaluation.value.size < MIN_SAME or loss.value.size < MIN_SAME:
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
