"""The loss does not move: the learning rate is too low, or no weight that counts is trained.

## What it does
Takes the Theil-Sen slope of the loss with its 95 % interval. It fires if even the steepest slope of that interval
lowers the loss by less than 2 % over the whole run, and either the learning rate is 0 or below 5e-8 throughout, or the
run saw its rows at least twice. If rows were seen twice and the loss falls a little (by less than 3 %, at the steepest
6 %), it reports as info what the cause may be. It warns if the learning rate is too low: below 2e-5 for an adapter
(which its files or the printed settings show), and below 2e-6 for full fine-tuning. A learning rate of 0 is an error.
Gradients that are never finite belong to `grad-norm-explodes`. A loss that falls slowly during the warm-up is not
reported.

If rows were seen only once and the learning rate is usual, it warns if two evaluations or more give exactly the same
loss: no weight that counts changed between them. It is info if a whole pass over the rows moved the loss by less than
1.5 %, or if the log is from an adapter or SFT, because continued pretraining looks like this too. If another log given
with it falls by 10 % over as many steps, from the same level and at the same learning rate, it warns: the same training
works there (on one GPU, say), and here no weight moves.

If the loss of a classifier stays at ln(classes), that of a guess among them, or the loss of an embedding model at
ln(batch), that of a guess among the texts of a batch, the finding says so. Each finding lists
the causes that the log does not rule out.

## Why it is bad
A model that reads the same rows again knows them better, so the loss falls at least a little if anything is learned.

## Example
```yaml
curve:
  loss: {from: 2.0, to: 2.0, steps: 60, noise: 0.02}
  learning_rate: {from: 1.0e-9, steps: 60}
```

## Use instead
```yaml
curve:
  loss: {from: 2.0, to: 1.4, steps: 60, noise: 0.02}
  learning_rate: {from: 1.0e-4, steps: 60}
```

## Fix safety
Usual peak learning rates are 1e-5 to 5e-5 for full fine-tuning and 1e-4 to 3e-4 for LoRA. A higher learning rate
changes the result: watch the first hundred steps.

## References
- huggingface/trl#3926; slope: Sen 1968, doi:10.1080/01621459.1968.10480934
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.judgement import Unmet
from truetune.checks.log.draw_log_curves_for_reports import draw_curves
from truetune.checks.log.evidence.bounds_of_loss_and_rate import IDLE_RATE
from truetune.checks.log.evidence.compare_end_of_loss_with_beginning import ends_above_beginning
from truetune.checks.log.evidence.fall_of_loss_and_possible_causes import (
    CLASS_METRIC,
    MIN_EPOCH_RECORDS,
    MIN_RECORDS,
    ORDINARY,
    LossFall,
    causes_ruled_out_by_log,
    describe_remaining_causes,
    is_rate_too_low,
    measure_fall,
    remaining_causes,
)
from truetune.checks.log.was_adapter_or_all_weights_trained import trains_adapter
from truetune.checks.rule import LogRule
from truetune.logs.facts_in_files_beside_log import RunBeside
from truetune.logs.robust_statistics import fit_robust_trend
from truetune.logs.run_log import Curve, RunLog
from truetune.settings.run_spec import Severity

LOG_RATE = "log the learning rate (transformers does at each logging step)"
SAME_EVALUATIONS = 2
"""Evaluations at different steps that give one value, beside a training loss that is flat too"""
FEW_STEPS = 300
"""Steps below which a run is no continued pretraining, whose loss may be flat for thousands"""
WHOLE_PASS = 0.99
"""Epochs from which all rows were seen: a partial last batch leaves 0.99 of one"""
MAX_CLASSES = 20
"""Classes up to which ln(classes) are far enough apart (5 % at 20, less above) for a level to tell their number"""
NEAR_GUESSING = 0.015
"""Share of ln(classes) within which a loss sits there"""
MIN_BATCH = 8
"""Texts of a batch. Chosen, not measured: below, many losses lie near the logarithm of the batch"""
NEAR_BATCH = 0.005
"""Share of ln(batch) within which a loss sits there"""
EMBEDDING_METRIC = re.compile(
    r"cosine|spearman|pearson|ndcg|mrr@|map@|recall@|embedding|contrastive|retrieval", re.I
)
"""In names of what is measured of embedding models"""
CAUSES_OF_UNMOVED_WEIGHTS = (
    "does the optimizer have the weights that are trained (build it from the same model, after get_peft_model, FSDP or"
    " fully_shard: truetune check SCRIPT)",
    "is the adapter in the forward pass and are its weights trained (print_trainable_parameters, not disabled,"
    " is_trainable=True)",
    "are the steps rounded away (bf16 weights at a low learning rate: train them in float32)",
    "is zero_grad() called between backward() and step()",
)
"""In the order in which they are seen"""
FALLS_BESIDE = 0.1
"""Share by which the loss of the other run falls, if it learns. Chosen, not measured"""
SAME_LEVEL, SAME_RATE = 0.1, 0.1
"""Shares by which first losses and peak rates of two runs of one training differ at most. Chosen, not measured: first
losses are noisy, and logs leave the very peak out"""


RAISE_THE_RATE = "raise the learning rate"
"""How the advice begins where the rate is far too low"""


class FlatLoss(LogRule):
    code = "LOG006"
    fault = Fault.LOSS_STAYS_HIGH
    severity = "warning"
    since = "0.1.0"
    moot_where = (
        "loss-diverges",
        "first-loss-above-guessing",
        "almost-nothing-is-trained",
        "loss-stuck-high-without-gradient",
        "loss-scale-collapses",
        "loss-repeats-exactly",
    )
    kinds = ("language",)
    needs = ("loss",)
    least = MIN_RECORDS

    def unmet(self) -> Unmet | None:
        """Also unmet where neither a learning rate nor rows that were seen twice show that the loss
        should fall.
        """
        unmet = super().unmet()
        if unmet is not None:
            return unmet
        log, norm = self.subject, self.subject.curve("grad_norm")
        if norm and not norm.value.any():
            return Unmet("every gradient norm is 0, which grad-norm-zero is about")
        if norm.step.size >= MIN_RECORDS and not norm.finite():
            return Unmet("no gradient norm is finite, which grad-norm-explodes is about")
        seen_again = (
            log.epochs_at_end >= 2 and self.count_finite_records("loss") >= MIN_EPOCH_RECORDS
        )
        if (
            log.curve("learning_rate").finite()
            or seen_again
            or _is_long_enough_for_rows_seen_once(log)
        ):
            return None
        return Unmet(
            "the log has no learning rate, and does not show rows that were seen twice", LOG_RATE
        )

    def measurement_if_clean(self) -> str:
        """The change of the loss over the run by the fitted slope, its level, and the highest
        learning rate.
        """
        loss, rate = (self.subject.curve(name).finite() for name in ("loss", "learning_rate"))
        span = float(loss.step[-1] - loss.step[0])
        moved = fit_robust_trend(loss).slope * span
        return (
            f"the slope of the loss over the run is {moved:+.3g} at a level of"
            f" {np.median(loss.value):.3g}"
            + (f", with a learning rate of up to {rate.value.max():.3g}" if rate else "")
        )

    def findings(self) -> Iterator[Finding]:
        log = self.subject
        loss, norm = log.curve("loss").finite(), log.curve("grad_norm")
        if log.kind != "language" or loss.step.size < MIN_RECORDS:
            return
        if norm and (not norm.value.any() or not norm.finite()):
            return
        if _is_mostly_without_rate(log):
            return  # learning-rate-ended-early says so
        if ends_above_beginning(Curve(loss.step[loss.value != 0], loss.value[loss.value != 0])):
            return  # it began lower: loss-diverges says so
        fall = measure_fall(log, loss)
        if fall.is_worth_a_finding():
            yield self._finding(loss, fall)
            return
        if fall.is_flat_at_effective_rate(
            has_equal_evaluations=_equal_evaluation_loss_and_count(log) is not None
        ):
            yield from self._findings_on_rows_seen_once(loss, fall)

    def _findings_on_rows_seen_once(self, loss: Curve, fall: LossFall) -> Iterator[Finding]:
        """Findings on a flat loss of rows that were seen once: by the evaluations, the classes and
        the length of the run.
        """
        log = self.subject
        evaluated = _equal_evaluation_loss_and_count(log)
        classes = _number_of_classes_guessed(log, fall.level) or _texts_of_batch_guessed(
            log, fall.level
        )
        falling = _run_beside_that_falls(log, fall)
        if not evaluated and not classes and falling is None and not _is_worth_a_note(log):
            return
        proves_a_fault = bool(evaluated or falling is not None)
        remedy = describe_remaining_causes(log, fall.peak_rate)
        if proves_a_fault:
            remedy = _why_no_weight_moves(log)
        elif not classes:
            remedy = (
                "nothing to do if this is continued pretraining on text like the model's own; otherwise "
                + remedy
            )
        yield self.finding(
            f"the loss stays at {fall.level:.4g} over {loss.step.size:,} records (its trend falls by only"
            f" {fall.drop_of_fitted_line / fall.level:.1%})"
            f"{_equal_evaluations_in_words(evaluated)}{_class_guessing_in_words(classes)}"
            f"{_falling_run_in_words(falling)}",
            remedy,
            severity="warning" if proves_a_fault or classes else "info",
            evidence=causes_ruled_out_by_log(log, fall.peak_rate),
            figure=draw_curves("loss", {"loss": loss}),
        )

    def _finding(self, loss: Curve, fall: LossFall) -> Finding:
        """The finding of a loss that does not fall: an error, a warning or a note, by what the log
        says of the cause.
        """
        log, line = self.subject, fall.line
        moves_nothing = _moves_nothing_at_ordinary_rate(log, fall)
        evaluated = (
            _equal_evaluation_loss_and_count(log)
            if fall.stays_flat_on_repeated_rows and not fall.has_negligible_rate
            else None
        )
        return self.finding(
            "the loss "
            f"{'stays' if fall.is_surely_flat_or_without_rate else 'hardly falls: it is'} at {fall.level:.4g} over"
            f" {loss.step.size:,} records{_why_flat_or_should_fall(log, fall)}{_equal_evaluations_in_words(evaluated)}",
            _remedy(log, fall) if evaluated is None else _why_no_weight_moves(log),
            severity=_severity(log, fall),
            evidence=(
                f"trend over the run {line.slope * fall.span:+.3g} (95 % interval {line.low * fall.span:+.3g} to "
                f"{line.high * fall.span:+.3g}), noise {fall.noise:.3g}",
                *(causes_ruled_out_by_log(log, fall.peak_rate) if moves_nothing else ()),
            ),
            figure=draw_curves("loss", {"loss": loss}),
        )


def _moves_nothing_at_ordinary_rate(log: RunLog, fall: LossFall) -> bool:
    """Does the loss hardly fall under an ordinary rate and gradients, where rows seen again are always learned?"""
    may_be_rate = fall.is_surely_flat_or_without_rate or is_rate_too_low(log, fall.peak_rate)
    return not may_be_rate and _has_usual_rate_and_gradients(log, fall)


def _severity(log: RunLog, fall: LossFall) -> Severity:
    """An error without any learning rate, a note where nothing names a cause."""
    if fall.peak_rate == 0:
        return "error"
    is_too_low = is_rate_too_low(log, fall.peak_rate)
    names_cause = (
        fall.is_surely_flat_or_without_rate
        or is_too_low
        or _moves_nothing_at_ordinary_rate(log, fall)
    )
    return "warning" if names_cause else "info"


def _why_flat_or_should_fall(log: RunLog, fall: LossFall) -> str:
    """Why the loss does not fall, where the rate is the reason; else why it should."""
    if fall.peak_rate == 0:
        return ": the learning rate is 0"
    if fall.has_negligible_rate or is_rate_too_low(log, fall.peak_rate):
        return f": the learning rate is at most {fall.peak_rate:.3g}"
    return f" although the rows were seen {log.epochs_at_end:.3g} times"


def _equal_evaluations_in_words(unmoved: tuple[float, int] | None) -> str:
    """`, and 4 evaluations give 1.5 ...`; empty where evaluations differ."""
    if unmoved is None:
        return ""
    value, count = unmoved
    return f", and {count:,} evaluations all give exactly {value:.6g}"


def _is_mostly_without_rate(log: RunLog) -> bool:
    """Was there a learning rate at first, and none at most of the records?"""
    rate = log.curve("learning_rate").finite().value
    return bool(rate.any()) and 2 * int((rate <= IDLE_RATE * rate.max()).sum()) > rate.size


def _is_long_enough_for_rows_seen_once(log: RunLog) -> bool:
    """Are there enough records to judge a loss whose rows were seen once?"""
    return log.curve("loss").finite().step.size >= MIN_EPOCH_RECORDS


def _is_worth_a_note(log: RunLog) -> bool:
    """Is a flat loss worth a note: of rows that were all seen, of an adapter, of SFT, or of a run of few steps?"""
    if not _is_long_enough_for_rows_seen_once(log):
        return False
    is_sft = trains_adapter(log) or bool(log.curve("mean_token_accuracy"))
    is_whole_pass = not log.curve("epoch") or log.epochs_at_end >= WHOLE_PASS
    is_short = not log.is_numbered and log.last_step < FEW_STEPS
    return is_sft or is_whole_pass or is_short


def _equal_evaluation_loss_and_count(log: RunLog) -> tuple[float, int] | None:
    """The one value that all evaluations give, and how many they are; None where they differ, or
    there are too few.

    The rows of an evaluation give one value where no weight moved between them, and rarely by
    chance.
    """
    evaluated = log.curve("eval_loss").finite()
    trained = log.curve("loss").finite()
    if evaluated.step.size < SAME_EVALUATIONS or np.ptp(evaluated.value) != 0:
        return None
    between = (trained.step > evaluated.step[0]) & (trained.step <= evaluated.step[-1])
    # One that is logged twice, as after the last step, has no steps of training between.
    if int(between.sum()) < MIN_RECORDS or trained.step.size < MIN_EPOCH_RECORDS:
        return None
    return float(evaluated.value[0]), int(evaluated.step.size)


def _run_beside_that_falls(log: RunLog, fall: LossFall) -> RunBeside | None:
    """The run beside this one that learns from the same level, at the same rate and within as many
    steps.
    """
    if fall.peak_rate is None or log.is_numbered:
        return None
    for run in log.files_beside.runs:
        if run.file == log.path or run.peak_rate is None or not run.losses:
            continue
        has_same_rate = abs(run.peak_rate - fall.peak_rate) <= SAME_RATE * fall.peak_rate
        if has_same_rate and _does_run_fall_from_level(fall.level, run, log.last_step):
            return run
    return None


def _does_run_fall_from_level(level: float, run: RunBeside, last_step: float) -> bool:
    """Does another run begin at a level of loss, and fall within as many steps?"""
    first = run.losses[0][1]
    least = min((loss for step, loss in run.losses if step <= last_step), default=first)
    return abs(first - level) <= SAME_LEVEL * level and first - least >= FALLS_BESIDE * first


def _class_guessing_in_words(classes: int) -> str:
    """`: 1.386 is that of a model that guesses among 4 classes`; empty where the level is none of
    that kind.
    """
    if not classes:
        return ""
    return f": {math.log(classes):.4g} is the loss of a guess among {classes} classes (or texts of a batch)"


def _falling_run_in_words(run: RunBeside | None) -> str:
    """`, where log_1gpu.txt falls from 1.59 to 1.04 at the same learning rate`; empty without such
    a run.
    """
    if run is None:
        return ""
    losses = [loss for _, loss in run.losses]
    name = Path(run.file).name
    return (
        f", while {name} falls from {losses[0]:.4g} to {losses[-1]:.4g} at the same learning rate"
    )


def _number_of_classes_guessed(log: RunLog, level: float) -> int:
    """The number of classes among which a model guesses whose loss is at this level; 0 where the
    log is of no classifier.
    """
    is_classifier = not log.is_loss_of_token_prediction or any(
        map(CLASS_METRIC.fullmatch, log.curves)
    )
    if not is_classifier or not _is_long_enough_for_rows_seen_once(log):
        return 0
    for classes in range(2, MAX_CLASSES + 1):
        if abs(level - math.log(classes)) < NEAR_GUESSING * math.log(classes):
            return classes
    return 0


def _texts_of_batch_guessed(log: RunLog, level: float) -> int:
    """The size of a batch among whose texts an embedding model guesses, with a loss at this level; 0 for other logs.

    Losses that tell the right text from the others of the batch (MultipleNegativesRankingLoss, InfoNCE) are ln(batch)
    where all texts are alike to the model.
    """
    batch = log.fact_as_number("train_batch_size")
    if not batch or batch < MIN_BATCH or not any(map(EMBEDDING_METRIC.search, log.curves)):
        return 0
    return int(batch) if abs(level - math.log(batch)) < NEAR_BATCH * math.log(batch) else 0


def _has_usual_rate_and_gradients(log: RunLog, fall: LossFall) -> bool:
    """Does the log show an ordinary learning rate and gradients, so that neither is the reason?"""
    norm = log.curve("grad_norm").finite()
    has_gradient = bool(norm) and float(np.median(norm.value)) > 0
    return has_gradient and fall.peak_rate is not None and fall.peak_rate >= ORDINARY


def _remedy(log: RunLog, fall: LossFall) -> str:
    """The remedy: what to change about the rate; where the rate is not the reason, what to look at."""
    if fall.has_negligible_rate:
        return f"{RAISE_THE_RATE} (learning_rate): 1e-5 to 5e-5 for full fine-tuning, 1e-4 to 5e-4 for LoRA"
    if (
        fall.seen_again
        and _has_usual_rate_and_gradients(log, fall)
        and not is_rate_too_low(log, fall.peak_rate)
    ):
        return f"check in this order: {'; '.join((*CAUSES_OF_UNMOVED_WEIGHTS, *remaining_causes(log, fall.peak_rate)))}"
    if not is_rate_too_low(log, fall.peak_rate):
        return describe_remaining_causes(log, fall.peak_rate)
    if trains_adapter(log):
        usual = "for SFT of an adapter use 1e-4 to 5e-4 (a tenth of that in full fine-tuning)"
    else:
        usual = "SFT starts at 1e-5 in full fine-tuning, at 1e-4 with LoRA"
    return f"{RAISE_THE_RATE} from {fall.peak_rate:.3g}: {usual}; then {describe_remaining_causes(log, fall.peak_rate)}"


def _why_no_weight_moves(log: RunLog) -> str:
    """The likely causes, as a sentence, of loss and evaluations that do not move at a sound rate."""
    causes = list(CAUSES_OF_UNMOVED_WEIGHTS)
    if not log.curve("grad_norm"):
        causes.insert(
            0,
            "is there a gradient at all (log grad_norm; truetune run -- COMMAND names weights without one)",
        )
    return "no weight that counts changed: check in this order: " + "; ".join(causes)
