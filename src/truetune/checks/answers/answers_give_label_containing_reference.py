"""Answers give a wrong label that contains the right one (unsafe for safe), and a substring score counts them as right.

## What it does
If references are a few labels and one is a substring of another (`safe` in `unsafe`), counts the answers that contain
their reference as a substring but give another label first. It fires from 3 answers and 5 %. It is an info, and a
warning if a score in a file next to the predictions equals what `reference in answer` gives.

## Why it is bad
`reference in answer` counts each of these answers as right. The score is that of a model which always gives the longer
label, and says nothing about the shorter one.

## Example

```yaml
finished: true
looks:
  - step: 0
    answers: [unsafe, unsafe, unsafe, safe, unsafe, unsafe, unsafe, unsafe]
    references: [safe, safe, safe, safe, unsafe, unsafe, unsafe, unsafe]
```

## Use instead

```yaml
finished: true
looks:
  - step: 0
    answers: [safe, safe, safe, unsafe, unsafe, unsafe, unsafe, unsafe]
    references: [safe, safe, safe, safe, unsafe, unsafe, unsafe, unsafe]
```

## Fix safety
There is no automatic fix. Change the scoring script, not the answers: compare whole texts (`answer.strip() ==
reference`), or whole words (`re.search(rf"\\b{re.escape(reference)}\\b", answer)`). The score changes, and can't be
compared with earlier ones of the same script.

## References

- EleutherAI/lm-evaluation-harness, `exact_match`: whole texts are compared, and not parts of them
"""

from __future__ import annotations

from collections.abc import Iterator

from truetune.checks.answers.count_bad_answers_per_pass import MIN_ANSWERS, cases_of_samples
from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.judgement import Unmet
from truetune.checks.rule import AnswersRule
from truetune.generation.answer_samples import Sample
from truetune.generation.labels_said_by_answers import LabelScores, score_labels

MIN_BAD_ANSWERS = 3
"""Answers that say another label, at least. Chosen by hand: one or two are a slip of the model, and
no habit"""
# Chosen: a score that is off by less is within the noise of most test sets.
MIN_SHARE = 0.05


class AnswersGiveLabelContainingReference(AnswersRule):
    code = "ANS032"
    fault = Fault.WRONG_ANSWERS_COUNTED_RIGHT
    symptoms = ("odd-metrics",)
    severity = "info"

    def unmet(self) -> Unmet | None:
        unmet = super().unmet()
        if unmet is not None:
            return unmet
        if len(self._samples_with_reference()) < MIN_ANSWERS:
            return Unmet(
                "too few answers have a reference", "name references, of 8 answers or more"
            )
        labels = self._label_scores()
        if labels is None:
            return Unmet("the references are not labels")
        return (
            None
            if labels.labels_contained_in_longer_labels
            else Unmet("no label is part of another")
        )

    def measurement_if_clean(self) -> str:
        """How many answers say another label that holds their reference."""
        labels = self._label_scores()
        if labels is None:
            return ""
        wrong = labels.substring_right_first_label_wrong_count
        return f"{wrong} of {labels.rows} answers give another label that contains their reference"

    def findings(self) -> Iterator[Finding]:
        labels = self._label_scores()
        if self.unmet() is not None or labels is None or not self.subject.finished:
            return
        wrong = labels.substring_right_first_label_wrong_count
        if wrong < MIN_BAD_ANSWERS or wrong < MIN_SHARE * labels.rows:
            return
        one, other = labels.labels_contained_in_longer_labels[0]
        by_substring, by_first = labels.right_count_by_substring, labels.right_count_by_first_label
        yield self.finding(
            f"the test `reference in answer` counts {by_substring} of {labels.rows} answers as right, but {wrong} of"
            f" them give another label first, since {one!r} is a substring of {other!r}; by the first label,"
            f" {by_first} of {labels.rows} ({by_first / labels.rows:.0%}) are right",
            "in the scoring script, compare whole texts (answer.strip() == reference) or whole words"
            ' (re.search(rf"\\b{re.escape(reference)}\\b", answer)), and report recall per label',
            cases=cases_of_samples(
                [
                    sample
                    for sample in self._samples_with_reference()
                    if _is_reference_part_of_longer_label(sample, labels)
                ]
            ),
            count=wrong,
            total=labels.rows,
        )

    def _samples_with_reference(self) -> list[Sample]:
        """Answers of the last pass that have a reference."""
        return [one for one in self.subject.looks[-1].samples if one.prompt.reference.strip()]

    def _label_scores(self) -> LabelScores | None:
        """The answers by label."""
        samples = self._samples_with_reference()
        return score_labels(
            [one.answer.text for one in samples], [one.prompt.reference for one in samples]
        )


def _is_reference_part_of_longer_label(sample: Sample, labels: LabelScores) -> bool:
    """Does the answer hold its reference inside of a longer label?"""
    reference, answer = (
        text.strip().casefold() for text in (sample.prompt.reference, sample.answer.text)
    )
    return reference in answer and any(
        one == reference and other in answer
        for one, other in labels.labels_contained_in_longer_labels
    )
