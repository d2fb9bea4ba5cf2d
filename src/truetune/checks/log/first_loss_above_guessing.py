"""The run starts with a loss above that of guessing: the weights or the labels are wrong.

## What it does
Compares the lowest of the first three losses with ln(vocabulary), the loss of a model that takes every token for
equally likely. Above 1.2 times that it is an error. The vocabulary comes from the config.json beside the log, or from
the data's tokenizer. If neither is known, a vocabulary of a million is assumed, and it is a warning. Models that do not
predict tokens (by the class in config.json) are not judged. Nor is a loss that `loss-is-a-sum` explains, or one that is
the sum of several logged losses (`ploss_0`, `ploss_1`, ...; `ce_loss`, `aux_loss`).

- A loss that falls below half of guessing within the run, with an evaluation loss to match, belongs to a model that had
  never been run like this (mT5, whose head was not trained on whole texts, starts at 25). It is info if the vocabulary
  is known, and not reported if not.
- A loss that ends near guessing, above 90 % of it after 20 records or more, is a warning at the end of a run, and info
  if the log does not show that the run has ended.
- If the vocabulary is not known, it warns if the loss starts between 0.9 times ln(32,000) and 1.2 times ln(262,144),
  the vocabularies of published models, and falls by less than 5 % over 20 records or more: no learning rate moves it.
- It also warns if an adapter's run starts there and ends above 5, or if that of a whole model does whose output says
  that saved weights were loaded: the model does not know these ids.

## Why it is bad
A trained model starts far below guessing, and an untrained one at it. Above it, the labels belong to another tokenizer,
the weights were not loaded, the ids are outside the model's vocabulary, or the loss is summed and not averaged (over
accumulated batches, if a custom `compute_loss` takes `num_items_in_batch` and ignores it). Gradients of a summed loss
are too large by the same factor.

## Example
```yaml
log:
  - {step: 1, loss: 47.1}
  - {step: 2, loss: 46.4}
  - {step: 3, loss: 46.0}
config: {vocab_size: 32000}
```

## Use instead
```yaml
log:
  - {step: 1, loss: 2.1}
  - {step: 2, loss: 2.0}
  - {step: 3, loss: 1.9}
config: {vocab_size: 32000}
```

## Fix safety
Evaluate the model before training: if that loss is between 1 and 4, model and labels are right and the training loss is
summed. Loading the right weights or tokenizer changes the whole run; averaging the loss makes gradients smaller.

## References
- huggingface/transformers#34191, huggingface/transformers#35438, huggingface/trl#2175
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.judgement import Unmet
from truetune.checks.log.draw_log_curves_for_reports import draw_curves
from truetune.checks.log.evidence.bounds_of_loss_and_rate import MAX_VOCABULARY, MIN_TIMES_GUESSING
from truetune.checks.reasons_rules_cannot_judge import OTHER_LOSS
from truetune.checks.rule import LogRule
from truetune.logs.is_loss_summed_not_averaged import (
    count_of_means_added_up_in_loss,
    parts_of_training_loss,
)
from truetune.logs.run_log import Curve, RunLog
from truetune.settings.run_spec import Severity

ABOUT, MIN_POINTS = 0.9, 20
"""Of guessing, at the end of a run of so many records"""
SMALLEST, LARGEST = 32_000, 262_144
"""Vocabularies of the language models that are tuned today, from Llama 2 and Mistral to Gemma"""
HARDLY_FALLS = 0.05
"""Of the first loss. Chosen, not measured: an untrained model falls by a third in its first hundred steps"""
FOREIGN = 5.0
"""Nats/token, at the end of a run. Chosen, not measured: the frequencies of a language's words alone give about 7,
and published bases have 1 to 4 on text of any language that they were trained on"""


NEGLIGIBLE_RATE = 5e-8
"""Learning rate below which nothing moves: a twentieth of DPO's default of 1e-6, as `flat-loss` takes it"""


def _is_rate_negligible(log: RunLog) -> bool:
    """Is the rate that was logged so small throughout that no weight moves?"""
    rate = log.curve("learning_rate").finite()
    return bool(rate) and float(rate.value.max()) < NEGLIGIBLE_RATE


class FirstLossAboveGuessing(LogRule):
    code = "LOG023"
    fault = Fault.MODEL_BROKEN_BEFORE_TRAINING
    symptoms = ("garbage-output", "loss-does-not-fall", "odd-metrics")
    severity = "error"
    since = "0.1.0"
    # A model that is trained from scratch stays at guessing where its steps are skipped.
    moot_where = ("loss-scale-collapses",)
    kinds = ("language",)
    needs = ("loss",)

    def unmet(self) -> Unmet | None:
        """Also unmet where the loss is a sum, or comes down and the vocabulary is not known."""
        unmet = super().unmet()
        if unmet is not None:
            return unmet
        if not self.subject.is_loss_of_token_prediction:
            return OTHER_LOSS
        if self._lowest_early_loss() <= MIN_TIMES_GUESSING * self._uniform_loss():
            return None
        if count_of_means_added_up_in_loss(self.subject):
            return Unmet("the loss is a sum, which loss-is-a-sum is about")
        return Unmet(
            f"the loss begins at {self._lowest_early_loss():.4g} and comes down below half of guessing, and the"
            " vocabulary is not known",
            "keep config.json beside the log, or name the data with --data and -t",
        )

    def measurement_if_clean(self) -> str:
        """The loss at the beginning, beside that of a model that guesses."""
        known = (
            ""
            if self._vocabulary_size()
            else ", were there a million tokens: the vocabulary is not known"
        )
        return (
            f"the loss begins at {self._lowest_early_loss():.4g}; a model that guesses has"
            f" {self._uniform_loss():.4g}{known}"
        )

    def findings(self) -> Iterator[Finding]:
        log = self.subject
        loss = log.curve("loss").finite()
        if not log.is_loss_of_token_prediction or not loss:
            return
        size, guess = self._vocabulary_size(), self._uniform_loss()
        # A rate at which nothing moves explains a loss that stays, and flat-loss names it.
        if not _is_rate_negligible(log):
            yield from self._findings_on_high_final_loss(loss, guess, is_known=bool(size))
        if self._lowest_early_loss() > MIN_TIMES_GUESSING * guess and not (
            count_of_means_added_up_in_loss(log) or parts_of_training_loss(log)
        ):
            yield from self._findings_on_start_above_guessing(loss, size, guess)

    def _findings_on_high_final_loss(
        self, loss: Curve, guess: float, *, is_known: bool
    ) -> Iterator[Finding]:
        """The one finding of a run that ends far above what a trained model has."""
        if is_known and self._ends_at_uniform_loss(guess):
            yield self._finding_on_end_at_guessing(guess)
        elif not is_known and self._stays_at_usual_uniform_loss():
            yield self._finding_on_guessing_of_unknown_vocabulary(loss)
        elif self._does_trained_model_start_at_guessing():
            yield self._finding_on_text_unknown_to_trained_model(loss)

    def _findings_on_start_above_guessing(
        self, loss: Curve, size: float, guess: float
    ) -> Iterator[Finding]:
        """The finding of a run that begins above guessing; `size` is 0 where the vocabulary is not
        known.
        """
        log, known, first = self.subject, bool(size), self._lowest_early_loss()
        recovers = self._falls_below_half_of_guessing(guess)
        if recovers and not known:
            return
        severity: Severity = "error" if known else "warning"
        times = round(first / guess, 1)
        evaluated = log.curve("eval_loss").finite()
        yield self.finding(
            f"the loss starts at {first:.4g}, {times:g} times the {guess:.4g} of a model that"
            " guesses"
            + (f" among {size:,.0f} tokens" if known else " (the vocabulary is not known)"),
            "check that the labels are ids of the model's own tokenizer, that its weights were loaded (from_pretrained,"
            " not from_config), and that the loss is a mean over tokens",
            severity="info" if recovers else severity,
            evidence=_describe_first_evaluation(evaluated),
            figure=draw_curves(
                "loss", {"loss": loss, "guessing": Curve(loss.step, np.full(loss.step.size, guess))}
            ),
        )

    def _vocabulary_size(self) -> float:
        """Tokens of the vocabulary; 0 where it is not known."""
        log = self.subject
        size = log.fact_as_number("vocab_size") or (log.data.vocabulary if log.data else None)
        return size if size is not None and size > 1 else 0.0

    def _uniform_loss(self) -> float:
        """The loss, in nats per token, of a model that holds each token for equally likely."""
        return math.log(self._vocabulary_size() or MAX_VOCABULARY)

    def _lowest_early_loss(self) -> float:
        """The lowest of the first three losses."""
        return float(self.subject.curve("loss").finite().value[:3].min())

    def _ends_at_uniform_loss(self, guess: float) -> bool:
        """Is the loss at the end still that of guessing, and the run over as far as its log tells?"""
        log, loss = self.subject, self.subject.curve("loss").finite()
        over = not log.planned_steps or log.last_step >= log.planned_steps
        near = ABOUT * guess < float(np.median(loss.value[-5:])) <= MIN_TIMES_GUESSING * guess
        return over and loss.step.size >= MIN_POINTS and near

    def _finding_on_end_at_guessing(self, guess: float) -> Finding:
        """The finding of a run that ends at the loss of guessing."""
        loss, planned = self.subject.curve("loss").finite(), bool(self.subject.planned_steps)
        return self.finding(
            f"the loss ends at {np.median(loss.value[-5:]):.4g} after {loss.step.size:,} records,"
            f" but a model that guesses has {guess:.4g}: nothing was learned",
            "check that the weights were loaded, that they are trained (model.print_trainable_parameters()), and that"
            " the labels are the ids of the answers",
            severity="warning" if planned else "info",
            figure=draw_curves(
                "loss", {"loss": loss, "guessing": Curve(loss.step, np.full(loss.step.size, guess))}
            ),
        )

    def _stays_at_usual_uniform_loss(self) -> bool:
        """Does the loss begin where a model of some usual vocabulary guesses, and stay there?"""
        loss = self.subject.curve("loss").finite()
        if loss.step.size < MIN_POINTS or not self._is_rate_unlogged_or_past_warmup():
            return False
        first, last = (float(np.median(part)) for part in (loss.value[:5], loss.value[-5:]))
        lowest, highest = ABOUT * math.log(SMALLEST), MIN_TIMES_GUESSING * math.log(LARGEST)
        is_there = all(lowest <= one <= highest for one in (first, last))
        return is_there and first - last < HARDLY_FALLS * first

    def _does_trained_model_start_at_guessing(self) -> bool:
        """Does the run of a trained model begin where guessing is, and stay far above what such a
        model has?

        It is one where an adapter is trained, or the output says that weights were loaded.
        """
        log, loss = self.subject, self.subject.curve("loss").finite()
        printed = log.output.settings if log.output is not None else None
        if (
            printed is None
            or loss.step.size < MIN_POINTS
            or not self._is_rate_unlogged_or_past_warmup()
        ):
            return False
        counts = (printed.trained, printed.parameters)
        is_part = None not in counts and 2 * (counts[0] or 0) < (counts[1] or 0)
        first, last = float(loss.value[0]), float(np.median(loss.value[-5:]))
        is_guess = ABOUT * math.log(SMALLEST) <= first <= MIN_TIMES_GUESSING * math.log(LARGEST)
        is_trained = is_part or printed.adapter or printed.weights_loaded
        return bool(is_trained) and is_guess and last > FOREIGN

    def _finding_on_text_unknown_to_trained_model(self, loss: Curve) -> Finding:
        """The finding of a trained model that does not know the ids or the text."""
        printed = self.subject.output.settings if self.subject.output is not None else None
        is_whole = printed is not None and printed.weights_loaded and not printed.trains_adapter
        why = (
            "the weights of a saved model were loaded"
            if is_whole
            else "an adapter is trained on a pretrained base"
        )
        first, last = float(loss.value[0]), float(np.median(loss.value[-5:]))
        return self.finding(
            f"the loss starts at {first:.4g}, that of guessing, and is {last:.4g} after"
            f" {loss.step.size:,} records, although {why}: such a model starts between 1 and 4 on any ordinary text",
            "check that the rows contain ids of this model's own tokenizer (a cache or a preparation script may use"
            " another one), that the weights of the base were loaded, and that labels are shifted only once; another"
            " learning rate does not help",
            severity="warning",
            figure=draw_curves("loss", {"loss": loss}),
        )

    def _is_rate_unlogged_or_past_warmup(self) -> bool:
        """Is there no learning rate in the log, or one that is not raised all along, as in a
        warm-up?
        """
        rate = self.subject.curve("learning_rate").finite().value
        return rate.size < 2 or bool(rate[-1] <= rate[rate.size // 2]) or bool(np.ptp(rate) == 0)

    def _finding_on_guessing_of_unknown_vocabulary(self, loss: Curve) -> Finding:
        """The finding of a run that begins and stays at the loss of guessing, of a vocabulary that
        is not known.
        """
        level = float(np.median(loss.value))
        rate = self.subject.curve("learning_rate").finite()
        reached = f" (it reaches {rate.value.max():.3g})" if rate else ""
        return self.finding(
            f"the loss starts and stays at {level:.4g} over {loss.step.size:,} records, which is that of guessing:"
            f" ln(vocabulary), {math.log(SMALLEST):.3g} for 32,000 tokens, 11.8 for 128,256 and 11.9 for 151,936",
            "check logits and labels, not the learning rate"
            f"{reached}: were the weights loaded (no warning on newly initialized ones; from_pretrained, not"
            " from_config), are the labels ids of the model's own tokenizer, and are they shifted only once",
            severity="warning",
            figure=draw_curves("loss", {"loss": loss}),
        )

    def _falls_below_half_of_guessing(self, guess: float) -> bool:
        """Does the loss come down below half of guessing, and that of the evaluations as well?"""
        loss = self.subject.curve("loss").finite()
        evaluated = self.subject.curve("eval_loss").finite()
        last = float(np.median(loss.value[-3:]))
        agrees = bool(evaluated) and bool(evaluated.value[-1] < guess / 2)
        return loss.step.size > 3 and last < guess / 2 and agrees


def _describe_first_evaluation(evaluated: Curve) -> tuple[str, ...]:
    """The first evaluation loss as evidence: it is a mean, and says whether the model or the training loss is odd."""
    if not evaluated:
        return ()
    return (f"eval_loss is {evaluated.value[0]:.4g} at step {evaluated.step[0]:,.0f}",)
