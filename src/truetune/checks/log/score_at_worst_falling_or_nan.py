"""A score of the run is bad: 0 in every record, falling, or not a number.

## What it does
Reads the scores of the log, of training and evaluations: accuracies, overlaps and matches by their names, the reward of
a trainer that generates, and how many tool calls fail. It warns if

- an accuracy, an overlap or a match is exactly 0 in all of three records or more;
- the accuracy of pairs ends below 0.4 over 20 records, worse than chance;
- the reward falls by 20 % and by five times its noise (Mann-Kendall z < -3.3);
- half of a score's records are not numbers;
- 95 % of the tool calls or more fail in every record;
- a score of an evaluation gets worse by a tenth over four evaluations or more, and nearly each is worse than those
  before it, while eval_loss does not rise (`eval-loss-rises` is about that);
- a word or character error rate is above 100 % at all of three evaluations or more;
- `eval_perplexity` is not the exponential of `eval_loss` at any of three evaluations or more.

Other scores that fall like that are info. A token accuracy is a warning if the loss on the same tokens falls by 20 %
too. Parts of a reward belong to `no-reward-signal`, and pairs whose margin is always 0 to `dpo-stuck-at-ln2`.

## Why it is bad
The loss may still fall. A score of 0 means that nothing is right, or that the metric compares the wrong things:
padding with labels, shifted tokens, an answer that its parser never finds. If pairs are ranked in the wrong order,
chosen and rejected are swapped. If the reward falls, the model unlearns the task. If a token accuracy falls together
with the loss, it is counted over other tokens than the loss.

## Example
```yaml
curve:
  loss: {from: 2.0, to: 1.4, steps: 60, noise: 0.02}
  mean_token_accuracy: {from: 0.0, steps: 60}
```

## Use instead
```yaml
curve:
  loss: {from: 2.0, to: 1.4, steps: 60, noise: 0.02}
  mean_token_accuracy: {from: 0.55, to: 0.66, steps: 60, noise: 0.01}
```

## Fix safety
Compute the score for a few rows by hand first: the metric itself may be wrong, and correcting `compute_metrics` does
not change the training.

## References
- huggingface/transformers#26474; Gao et al. 2023, arXiv 2210.10760 (rewards that fall)
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.judgement import Unmet
from truetune.checks.log.draw_log_curves_for_reports import draw_curves
from truetune.checks.rule import LogRule
from truetune.logs.metric_direction import (
    is_held_out_score,
    is_share_of_correct,
    lower_is_better,
)
from truetune.logs.robust_statistics import fit_robust_trend, medians_of_both_ends, noise_sigma
from truetune.logs.run_log import Curve, Floats
from truetune.settings.run_spec import Severity

# Chosen, not measured. A score may be 0 in one evaluation of a few rows, hardly in three. A record of pairs is often of
# one or two of them: with fewer than 20 records, small batches would look inverted.
MIN_ZEROS, MIN_POINTS, MIN_PAIRS = 3, 10, 20
# A fall by a fifth at p < 0.001 (Mann-Kendall). Chosen, not measured: at a tenth, rewards that wander are findings; at
# two fifths, half of what was learned is lost before anything is said.
MIN_FALL, MIN_TREND_Z = 0.2, 3.3
MAX_INVERTED_ACCURACY = 0.4
"""Accuracy of pairs: 0.5 is chance, and a run that has learned nothing stays near it"""
PAIRS = ("rewards/accuracies", "eval_rewards/accuracies")
REWARDS = ("reward", "eval_reward")
LOSS_OF_TOKEN_ACCURACY = {
    "mean_token_accuracy": "loss",
    "eval_mean_token_accuracy": "eval_loss",
}
"""Accuracies of tokens, and the loss of the same ones"""
TOOL_FAILURES = "tools/failure_frequency"
MIN_FAILURES = 0.95
"""Share of failed calls. Chosen, not measured: some calls fail while a model learns to call"""
# A metric that can't be computed on some batches (an empty class) is NaN there by right; in most, it is broken.
MAX_NAN_SHARE = 0.5
MIN_EVALUATIONS = 4
"""Evaluations of which nearly each is worse than those before: four in order are one chance of 24"""
# Chosen, not measured: held-out sets of a few hundred rows vary by 2 to 3 points of 50.
MIN_EVALUATED_FALL = 0.1
MIN_ORDERED_PAIRS = 0.9
"""Share of all pairs of evaluations in which the later one is worse"""
EVAL_LOSS_RISE = 1.02
"""Times its lowest value from which eval_loss has risen"""
PERPLEXITIES = ("eval_perplexity", "eval_ppl")
"""Without a name of another set in them"""
MAX_PERPLEXITY_DIFFERENCE = 0.1
"""Nats. Chosen, not measured: a mean over batches of other sizes differs by some hundredths"""
ERROR_RATE = re.compile(r"(?<![a-z])[wc]er(?![a-z])", re.I)
WHOLE_TEXT = 100.0
"""Errors for each hundred words. A rate that is a share of 1 is below it, whatever it is"""


class ScoreFault(NamedTuple):
    """What is wrong with one score."""

    text: str
    severity: Severity


class ScoreAtWorstFallingOrNan(LogRule):
    code = "LOG034"
    fault = Fault.ANSWERS_MOSTLY_WRONG
    symptoms = ("odd-metrics",)
    severity = "warning"
    moot_where = ("reward-rises-while-evaluation-falls",)

    def unmet(self) -> Unmet | None:
        """Unmet where the log has no accuracy, overlap or reward."""
        if self._curves_to_judge(finite=True):
            return None
        return Unmet("the log has no accuracy, overlap or reward", "log one (compute_metrics)")

    def measurement_if_clean(self) -> str:
        """The last level of the first four scores."""
        ends = (
            f"{name} ends at {medians_of_both_ends(curve.finite().value)[1]:.3g}"
            for name, curve in list(self._curves_to_judge(finite=True).items())[:4]
        )
        return "; ".join(ends)

    def findings(self) -> Iterator[Finding]:
        for name, curve in self._curves_to_judge().items():
            fault = self._find_fault(name, curve)
            if fault is None or fault.severity == "info":
                fault = self._find_fault_of_evaluation(name, curve) or fault
            if fault is not None:
                yield self.finding(
                    f"{name} {fault.text}",
                    self._remedy(name),
                    severity=fault.severity,
                    total=int(curve.step.size),
                    figure=draw_curves(name, {name: curve}),
                )

    def _remedy(self, name: str) -> str:
        """What to look at: the answers where a policy is trained, which may have got worse; the metric elsewhere."""
        if self.subject.kind == "reinforcement" and name == "reward":
            return (
                "read answers of the last steps and from before the fall: if they are cut, empty or repeat themselves,"
                " the policy has got worse (go back to a checkpoint before it, lower learning_rate); if they are right,"
                " correct the reward function"
            )
        return (
            "compute it by hand for a few rows, to see whether compute_metrics, the labels, the order of the"
            " pairs or the reward function is wrong, and correct that"
        )

    def _curves_to_judge(self, *, finite: bool = False) -> dict[str, Curve]:
        """The scores, and the other figures of evaluations whose names tell which way is better."""
        evaluated = {
            name: curve
            for name, curve in self.subject.curves.items()
            if is_held_out_score(name)
            and (curve.finite() if finite else curve)
            and "rewards/" not in name
        }
        return self._score_curves(finite=finite) | evaluated

    def _find_fault_of_evaluation(self, name: str, curve: Curve) -> ScoreFault | None:
        """A score of an evaluation that gets worse from one to the next, or an error rate above all words."""
        score = curve.finite()
        if not is_held_out_score(name) or score.step.size < MIN_ZEROS:
            return None
        if name in PERPLEXITIES and self._is_other_than_loss_says(score):
            return ScoreFault(
                f"is {score.value[-1]:.4g} at the last evaluation, and exp(eval_loss) is"
                f" {np.exp(self._eval_loss_at(score)[-1]):.4g}: it is no perplexity of these losses (a mean of"
                " exponentials, padding in the mean, or another set)",
                "warning",
            )
        if ERROR_RATE.search(name) and float(score.value.min()) > WHOLE_TEXT:
            return ScoreFault(
                f"is {score.value.min():.4g} % or more at all {score.step.size:,} evaluations: there are more errors"
                " than words",
                "warning",
            )
        if self._does_eval_loss_rise() or not _gets_steadily_worse(name, score):
            return None
        return ScoreFault(
            f"gets worse with the evaluations: {score.value[0]:.4g} at step {score.step[0]:,.0f} to"
            f" {score.value[-1]:.4g} at {score.step[-1]:,.0f}",
            "warning",
        )

    def _eval_loss_at(self, score: Curve) -> Floats:
        """The evaluation loss at the steps of a score; empty where it was not logged at each of them."""
        loss = self.subject.curve("eval_loss").finite()
        if not loss or not np.isin(score.step, loss.step).all():
            return np.zeros(0)
        return loss.at(score.step)

    def _is_other_than_loss_says(self, perplexity: Curve) -> bool:
        """Does a perplexity differ from the exponential of the loss at every evaluation?"""
        loss = self._eval_loss_at(perplexity)
        if not loss.size or float(perplexity.value.min()) <= 0:
            return False
        return bool((np.abs(np.log(perplexity.value) - loss) > MAX_PERPLEXITY_DIFFERENCE).all())

    def _does_eval_loss_rise(self) -> bool:
        """Does the loss of the evaluations end above its lowest value, which `eval-loss-rises` is about?"""
        value = self.subject.curve("eval_loss").finite().value
        return value.size > 1 and float(value[-1]) > EVAL_LOSS_RISE * float(value.min())

    def _find_tool_fault(self, name: str, finite: Curve) -> ScoreFault | None:
        """Calls of tools of which nearly all fail, in every record."""
        if name != TOOL_FAILURES or finite.step.size < MIN_ZEROS:
            return None
        if float(finite.value.min()) < MIN_FAILURES:
            return None
        return ScoreFault(
            f"is {finite.value.min():.2f} or more at all {finite.step.size:,} logged steps: hardly any tool call"
            " succeeds",
            "warning",
        )

    def _find_fault(self, name: str, curve: Curve) -> ScoreFault | None:
        """What is wrong with a score; None where nothing is."""
        finite = curve.finite()
        lost = curve.step.size - finite.step.size
        if lost >= MIN_ZEROS and lost > MAX_NAN_SHARE * curve.step.size:
            return ScoreFault(
                f"is not a number at {lost:,} of {curve.step.size:,} logged steps", "warning"
            )
        if name == TOOL_FAILURES:
            return self._find_tool_fault(name, finite)
        return self._find_fault_of_level(name, finite) or self._find_fall(name, finite)

    def _find_fault_of_level(self, name: str, finite: Curve) -> ScoreFault | None:
        """A score that ends, or is all the time, where no sound one is."""
        if self._is_pair_accuracy(name):
            return self._find_pair_fault(finite)
        if not _is_always_zero(name, finite):
            return None
        return ScoreFault(
            f"is exactly 0 at all {finite.step.size:,} logged steps: nothing is right, or the metric"
            " compares the wrong tokens or texts",
            "warning",
        )

    def _find_fall(self, name: str, finite: Curve) -> ScoreFault | None:
        """A score that gets worse over the run."""
        if finite.step.size < MIN_POINTS or not self._falls_by_a_fifth(finite):
            return None
        first, last = medians_of_both_ends(finite.value)
        falls_with_loss = self._falls_with_its_loss(name)
        return ScoreFault(
            f"gets worse over the run: {first:.3g} to {last:.3g}"
            + (", while the loss on the same tokens falls" if falls_with_loss else ""),
            "warning" if name == "reward" or falls_with_loss else "info",
        )

    def _falls_with_its_loss(self, name: str) -> bool:
        """Is a score that falls the accuracy of tokens whose loss falls too? The two go opposite ways."""
        loss = LOSS_OF_TOKEN_ACCURACY.get(name)
        if loss is None or not self.subject.is_loss_of_token_prediction:
            return False
        curve = self.subject.curve(loss).finite()
        return curve.step.size >= MIN_POINTS and self._falls_by_a_fifth(curve)

    def _is_pair_accuracy(self, name: str) -> bool:
        """Is a score the share of pairs whose chosen answer is preferred? Reward models call it plain accuracy."""
        of_reward_model = self.subject.kind == "reward" and name in ("accuracy", "eval_accuracy")
        return name in PAIRS or of_reward_model

    def _find_pair_fault(self, finite: Curve) -> ScoreFault | None:
        """Pairs that end below chance. An accuracy of 0 is left to this too: single pairs a batch give it."""
        if finite.step.size < MIN_PAIRS:
            return None
        last = float(np.median(finite.value[-max(3, finite.value.size // 5) :]))
        if last >= MAX_INVERTED_ACCURACY:
            return None
        return ScoreFault(
            f"ends at {last:.2f} over {finite.step.size:,} records: chosen answers win less often than by chance, as"
            " happens if chosen and rejected are swapped, or are the same in most pairs",
            "warning",
        )

    def _falls_by_a_fifth(self, curve: Curve) -> bool:
        """Does a score come down by a fifth, and by more than chance?"""
        first, last = medians_of_both_ends(curve.value)
        clear = first - last > max(MIN_FALL * abs(first), 5 * noise_sigma(curve.value))
        return clear and fit_robust_trend(curve).z < -MIN_TREND_Z

    def _score_curves(self, *, finite: bool = True) -> dict[str, Curve]:
        """Curves of scores, those with a number in them where `finite`; without what other rules are about."""
        log = self.subject
        # no-reward-signal is about parts of a reward, and dpo-stuck-at-ln2 about pairs whose margin is 0 throughout
        others = {name for name in log.curves if name.startswith("rewards/")} - set(PAIRS)
        if not log.curve("reward").finite():
            others.add("reward")
        if not log.curve("rewards/margins").finite().value.any():
            others.update(PAIRS)
        scores: dict[str, Curve] = {}
        for name, curve in log.curves.items():
            is_score = is_share_of_correct(name) or name in (*REWARDS, TOOL_FAILURES)
            if curve and is_score and name not in others and (curve.finite() or not finite):
                scores[name] = curve
        return scores


def _gets_steadily_worse(name: str, score: Curve) -> bool:
    """Is nearly each evaluation worse than those before, and the last by a tenth than the first?"""
    if score.step.size < MIN_EVALUATIONS:
        return False
    worse = -score.value if lower_is_better(name) is False else score.value
    first, last = float(worse[0]), float(worse[-1])
    if last - first < MIN_EVALUATED_FALL * abs(first):
        return False
    earlier, later = np.triu_indices(worse.size, 1)
    return float(np.mean(worse[later] > worse[earlier])) >= MIN_ORDERED_PAIRS


def _is_always_zero(name: str, finite: Curve) -> bool:
    """Is a share of what is right 0 in every record? A reward of 0 is none: it may be centred."""
    return finite.step.size >= MIN_ZEROS and is_share_of_correct(name) and not finite.value.any()
