"""Training and evaluation loss differ so much that they can't measure the same thing.

## What it does
Compares `eval_loss` with the training losses logged just before and just after it (a training record is the mean of the
steps before it). It warns if `eval_loss` is 0.6 times the training loss or less at all evaluations, three at least. In
the first epoch no row was seen before, so the training loss is also one on unseen rows: there it warns if `eval_loss`
is above 1.5 times the training loss at each evaluation (2 times if there is only one). Classifiers, speech, losses with
several parts and sums (`loss-is-a-sum`) are not judged.

## Why it is bad
One of the two uses other rows, another chat template or another mask: prompts are in one loss and not in the other, or
rows are cut or packed. Early stopping and the choice of the best checkpoint then use a number that is not about the
task. A gap that looks like overfitting may be none.

## Example
```yaml
curve:
  loss: {from: 1.9, to: 1.1, steps: 60, noise: 0.02}
  eval_loss: {values: [0.7, 0.5, 0.4], steps: 60, every: 20}
```

## Use instead
```yaml
curve:
  loss: {from: 1.9, to: 1.1, steps: 60, noise: 0.02}
  eval_loss: {values: [1.8, 1.4, 1.15], steps: 60, every: 20}
```

## Fix safety
Making the evaluation like the training changes only the evaluation loss. You may evaluate rows of another kind on
purpose: then compare evaluations only with each other. Dropout, NEFTune and label smoothing raise the training loss,
usually by less than this.

## References
- modelscope/ms-swift#2489: in the first epoch both are of unseen rows
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.judgement import Unmet
from truetune.checks.log.draw_log_curves_for_reports import draw_curves
from truetune.checks.log.evidence.fall_of_loss_and_possible_causes import CLASS_METRIC
from truetune.checks.reasons_rules_cannot_judge import OTHER_LOSS
from truetune.checks.rule import LogRule
from truetune.logs.is_loss_summed_not_averaged import (
    count_of_means_added_up_in_loss,
    parts_of_training_loss,
)
from truetune.logs.run_log import Floats, RunLog

Flags = NDArray[np.bool_]

MAX_SHARE_BELOW = 0.6
"""Of 147 logs of this project's tests and benches with three evaluations or more, sums left out, all evaluations of two
broken ones lie at 0.24 times the training loss or less, and at least one of any other above it. In 10 public logs that
are not of speech, the lowest evaluation of all lies at 0.76 (mT5 with dropout), and the highest of each at 0.89 or more
"""
MIN_EVALUATIONS_BELOW = 3
"""Evaluations that lie below. Chosen, not measured: the first one may be of easy rows while the loss falls fast"""
MIN_FACTOR_ABOVE, MIN_FACTOR_OF_ONE = 1.5, 2.0
"""Times the training loss of the first epoch: with several evaluations, and with one alone. The least factor of a run
is 1.16 in logs of this project's tests and benches with several (57), 1.27 with one (98), and 0.87 in 8 public ones"""
NEAREST_RECORDS, COMPARED_RECORDS = 3, 10
"""Training records on each side of an evaluation: of which the lower median counts, which must not lag behind; and
whose higher mean counts. Chosen, not measured: fewer are noise, more reach into another loss"""
MIN_RECORDS = 3
"""Training records of the first epoch that make a level: one may be of a single batch"""
END_OF_FIRST_EPOCH = 1.005
"""Epochs are rounded, and trainers evaluate at the very end of one"""
MAX_COUNTED_EPOCHS = 1e6
"""Planned epochs from which a trainer does not know the length of its data (it then writes the largest integer), so
that its epochs are shares of the steps"""
SPEECH_METRIC = re.compile(r"eval_(?:\w+_)?[wc]er(?:_\w+)?", re.I)
"""Errors of words and characters. Public logs of Whisper go down to 0.24 times the training loss: sound is masked and
augmented in training"""
ADVICE = (
    "evaluate one training batch and compare the losses; then decode the tokens that have a label in one batch of each"
    " set: template, mask (completion_only_loss, train_on_inputs), packing and kind of rows must be the same on both"
    " sides"
)


class ComparedEvaluation(NamedTuple):
    """An evaluation loss, and the level of the training loss around it."""

    step: float
    evaluation: float
    lowest: float
    """The lower one of the median losses just before and after it"""
    unseen: float | None
    """The higher one of the mean losses before and after it, all of rows that were not seen before; None where it is
    not in the first epoch, or too few records are"""


class EvaluationMeasuresSomethingElse(LogRule):
    code = "LOG174"
    fault = Fault.EVALUATION_LOSS_NOT_COMPARABLE
    symptoms = ("odd-metrics",)
    severity = "warning"
    kinds = ("language",)
    needs = ("loss", "eval_loss")
    moot_where = (
        "loss-below-what-accuracy-allows",
        "first-loss-above-guessing",
        "loss-diverges",
        "loss-climbs-above-guessing",
        "evaluation-measured-on-training-rows",
    )

    def unmet(self) -> Unmet | None:
        """Also unmet where the loss is that of a classifier, of speech or of several parts, or nothing can be
        compared.
        """
        unmet = super().unmet()
        if unmet is not None:
            return unmet
        if not self.subject.is_loss_of_token_prediction or any(
            map(CLASS_METRIC.fullmatch, self.subject.curves)
        ):
            return OTHER_LOSS
        if any(map(SPEECH_METRIC.fullmatch, self.subject.curves)):
            return Unmet(
                "it is about texts, and the log is of speech, which is augmented in training"
            )
        if parts_of_training_loss(self.subject):
            return Unmet(
                "it is about plain losses, and the log shows that this one has several parts"
            )
        if count_of_means_added_up_in_loss(self.subject) is not None:
            return Unmet("the training loss is a sum, which loss-is-a-sum is about")
        if not self._compared_evaluations():
            return Unmet(
                "no evaluation comes after a record of the training loss", "log more often"
            )
        return None

    def measurement_if_clean(self) -> str:
        """The range of the evaluation losses as multiples of the training loss around them."""
        compared = self._compared_evaluations()
        shares = [one.evaluation / one.lowest for one in compared]
        return (
            f"eval_loss is {min(shares):.3g} to {max(shares):.3g} times the training loss around it"
        )

    def findings(self) -> Iterator[Finding]:
        if self.unmet() is not None:
            return
        compared = self._compared_evaluations()
        if _are_all_far_below_training_loss(compared):
            yield self._finding(
                compared,
                f"eval_loss is far below the training loss at all {len(compared):,} evaluations"
                f" ({_last_evaluation_comparison_in_words(compared)}): they do not measure the same thing",
            )
            return
        first = [one for one in compared if one.unseen is not None]
        if _are_all_far_above_unseen_loss(first):
            times = "at the evaluation" if len(first) == 1 else f"at all {len(first):,} evaluations"
            yield self._finding(
                first,
                f"eval_loss is far above the training loss {times} of the first epoch"
                f" ({_last_evaluation_comparison_in_words(first)}), whose rows were all unseen:"
                " they do not measure the same thing",
            )

    def _finding(self, compared: list[ComparedEvaluation], message: str) -> Finding:
        """The finding with this message, on these evaluations."""
        log = self.subject
        return self.finding(
            message,
            ADVICE,
            count=len(compared),
            total=int(log.curve("eval_loss").step.size),
            figure=draw_curves(
                "loss and eval_loss",
                {"loss": log.curve("loss"), "eval_loss": log.curve("eval_loss")},
            ),
        )

    def _compared_evaluations(self) -> list[ComparedEvaluation]:
        """The evaluations that have records of the training loss before them."""
        loss = self.subject.curve("loss").finite()
        evaluated = self.subject.curve("eval_loss").finite()
        is_unseen = _flag_first_epoch(self.subject, loss.step)
        is_in_first_epoch = _flag_first_epoch(self.subject, evaluated.step)
        compared = []
        for index, (step, value) in enumerate(zip(*evaluated, strict=True)):
            place = int(np.searchsorted(loss.step, step, side="right"))
            if place == 0:
                continue
            near = (
                loss.value[max(0, place - NEAREST_RECORDS) : place],
                loss.value[place : place + NEAREST_RECORDS],
            )
            lowest = min(float(np.median(side)) for side in near if side.size)
            unseen = None
            if is_in_first_epoch[index]:
                unseen = _level_of_unseen_rows(loss.value, is_unseen, place)
            if lowest > 0:
                compared.append(ComparedEvaluation(float(step), float(value), lowest, unseen))
        return compared


def _level_of_unseen_rows(loss: Floats, is_unseen: Flags, place: int) -> float | None:
    """The higher one of the mean losses of the first epoch before and from this place on; None where
    too few records are before it.
    """
    start = max(0, place - COMPARED_RECORDS)
    before = loss[start:place][is_unseen[start:place]]
    after = loss[place : place + COMPARED_RECORDS][is_unseen[place : place + COMPARED_RECORDS]]
    if before.size < MIN_RECORDS:
        return None
    return max(float(np.mean(side)) for side in (before, after) if side.size >= MIN_RECORDS)


def _flag_first_epoch(log: RunLog, steps: Floats) -> Flags:
    """Which of these steps lie in the first epoch; none where the epochs do not tell."""
    epoch = log.curve("epoch").finite()
    if not epoch or (log.fact_as_number("num_train_epochs") or 0.0) > MAX_COUNTED_EPOCHS:
        return np.zeros(steps.size, dtype=np.bool_)
    numbers = np.unique(epoch.value)
    # Loops of one's own write the number of the epoch in each record, from 0 or from 1.
    if np.array_equal(numbers, np.round(numbers)) and epoch.value.size >= 2 * numbers.size:
        return np.asarray((epoch.at(steps) == epoch.value[0]) & (epoch.value[0] <= 1))
    return np.asarray(log.epoch_at(steps) <= END_OF_FIRST_EPOCH)


def _are_all_far_below_training_loss(compared: list[ComparedEvaluation]) -> bool:
    """Are there enough evaluations, all of them far below the training loss?"""
    return len(compared) >= MIN_EVALUATIONS_BELOW and all(
        one.evaluation <= MAX_SHARE_BELOW * one.lowest for one in compared
    )


def _are_all_far_above_unseen_loss(first: list[ComparedEvaluation]) -> bool:
    """Do all evaluations of the first epoch lie far above the training loss of unseen rows?"""
    least = MIN_FACTOR_OF_ONE if len(first) == 1 else MIN_FACTOR_ABOVE
    return bool(first) and all(
        one.unseen is not None and one.evaluation > least * one.unseen for one in first
    )


def _last_evaluation_comparison_in_words(compared: list[ComparedEvaluation]) -> str:
    """The last evaluation of these beside the training loss around it."""
    last = compared[-1]
    is_above = last.unseen is not None and last.evaluation > last.unseen
    level = last.unseen if is_above else last.lowest
    return f"{last.evaluation:.3g} against {level:.3g} at step {last.step:,.0f}"
