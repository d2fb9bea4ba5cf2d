"""Most answers are wrong, whatever their format.

## What it does
Compares the answers of a finished model with references that allow a verdict: labels, numbers, letters of a choice, a
few words. Labels are matched as whole words, the longest first, so that `supported` is not found in `unsupported`. It
fires if significantly more than half of these answers are wrong. It is an error if the references are labels and
significantly fewer answers are right than with the commonest label for every row, otherwise a warning.

## Why it is bad
Answers that stop by themselves and read well pass every check of their format. Whether they are right is another
question, and a score that finds the reference anywhere in the text does not answer it.

## Example

```yaml
finished: true
looks:
  - step: 0
    prompts: 20
    answers: [
      It is refuted., It is refuted., It is refuted., It is refuted., It is refuted.,
      It is refuted., It is refuted., It is refuted., It is refuted., It is refuted.,
      It is refuted., It is supported., It is supported., It is supported., It is supported.,
      It is supported., It is supported., It is supported., It is supported., It is supported.]
    references: [
      supported, supported, supported, supported, supported,
      supported, supported, supported, supported, supported,
      supported, supported, refuted, refuted, refuted,
      refuted, refuted, refuted, refuted, refuted]
```

## Use instead

```yaml
finished: true
looks:
  - step: 0
    prompts: 20
    answers: [
      It is supported., It is supported., It is supported., It is supported., It is supported.,
      It is supported., It is supported., It is supported., It is supported., It is supported.,
      It is supported., It is refuted., It is refuted., It is refuted., It is refuted.,
      It is refuted., It is refuted., It is refuted., It is refuted., It is refuted.]
    references: [
      supported, supported, supported, supported, supported,
      supported, supported, supported, supported, supported,
      supported, supported, refuted, refuted, refuted,
      refuted, refuted, refuted, refuted, refuted]
```

## Fix safety
There is no automatic fix. Read wrong answers of each label, and compare with the base model on the same rows and with
the share of each label in the training rows.

## References

- Rajpurkar et al. 2016, SQuAD: 100,000+ Questions for Machine Comprehension of Text, arXiv 1606.05250
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import cached_property

from truetune.checks.answers.count_bad_answers_per_pass import (
    MIN_ANSWERS,
    BadAnswerCount,
    cases_of_samples,
    count_bad_answers,
    is_bad_share_surely_above,
)
from truetune.checks.base_of_rules_on_bad_answer_shares import BadAnswerShareRule
from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.judgement import Unmet
from truetune.generation.answer_samples import Sample
from truetune.generation.labels_said_by_answers import LabelScores, score_labels

TOLERATED = 0.5
"""The share of wrong answers up to which nothing is said: `most` in the rule's name"""


class MostAnswersAreWrong(BadAnswerShareRule):
    code = "ANS022"
    fault = Fault.ANSWERS_MOSTLY_WRONG
    symptoms = ("odd-metrics", "nothing-is-learned")
    severity = "warning"
    tolerated = TOLERATED
    called = "give something else than their reference"
    untold = Unmet(
        "no answer has a label, a number or a few words as its reference",
        "name the references (--map reference=COLUMN), or a parser (--parser)",
        asked=False,
    )
    moot_where = (
        "answers-are-cut-off",
        "answers-are-empty",
        "answers-are-gibberish",
        "answers-leave-fields-out",
        "answers-belong-to-other-rows",
        "answers-change-language",
        "answers-do-not-parse",
        "answers-echo-the-prompt",
        "answers-loop",
        "answers-miss-their-references",
        "labels-are-exchanged",
        "one-answer-to-all",
        "prompts-do-not-tell-the-answers",
    )

    def is_bad_answer(self, sample: Sample) -> bool | None:
        """Is the answer wrong, by the parser or by its label? None if that can't be told."""
        if sample.scores.agrees is not None:
            return not sample.scores.agrees
        gives = sample.scores.gives
        return None if gives is None else not gives

    def unmet(self) -> Unmet | None:
        unmet = super().unmet()
        # A weak model on few rows is no question that a reader must settle.
        return unmet and replace(unmet, asked=False)

    def findings(self) -> Iterator[Finding]:
        bad_answers = count_bad_answers(self.subject, self.is_bad_answer)
        if (
            bad_answers is None
            or bad_answers.count_in_last_pass.of < MIN_ANSWERS
            or not self.subject.finished
        ):
            return
        wrong = bad_answers.count_in_last_pass
        if not is_bad_share_surely_above(wrong, TOLERATED):
            return
        labels = self._label_scores
        if labels is None:
            evidence = []
            is_below_constant = False
        else:
            evidence = [describe_label_scores(labels)]
            constant = BadAnswerCount(
                wrong.step, labels.rows - labels.right_count_by_first_label, labels.rows
            )
            is_below_constant = is_bad_share_surely_above(
                constant, 1 - labels.row_count_of_commonest_label / labels.rows
            )
        yield self.finding(
            f"{wrong.of - wrong.bad} of {wrong.of} answers give their reference, {wrong.bad} are wrong, although"
            " they stop and read well",
            "read wrong answers of each kind next to their questions, ask the base model the same questions"
            " (truetune sample BASE --data DATA), and count each label in the training rows: if one label"
            " dominates, balance them",
            severity="error" if is_below_constant else "warning",
            evidence=evidence,
            cases=cases_of_samples(bad_answers.samples),
            count=wrong.bad,
            total=wrong.of,
        )

    @cached_property
    def _label_scores(self) -> LabelScores | None:
        """How the answers name the labels of their references; None if the references are no
        labels.
        """
        samples = self.subject.looks[-1].samples
        return score_labels(
            [sample.answer.text for sample in samples],
            [sample.prompt.reference for sample in samples],
        )


def describe_label_scores(labels: LabelScores) -> str:
    """Accuracy by both readings, what the commonest label gets, and recall by label."""
    recall = ", ".join(
        f"{label} {right} of {of}"
        for label, (right, of) in labels.right_and_row_counts_by_label.items()
    )
    first, only = labels.right_count_by_first_label, labels.right_count_by_only_label
    return (
        f"labels: {first} of {labels.rows} ({first / labels.rows:.0%}) are right by the first label found, {only}"
        f" ({only / labels.rows:.0%}) if only one label may be named; always giving the commonest label gets"
        f" {labels.row_count_of_commonest_label / labels.rows:.0%}; recall: {recall}; {labels.without_label} answers"
        f" name no label, {labels.answer_count_with_several_labels} several"
    )
