"""JSON answers lack fields that their references have, or add others.

## What it does
If answers and references are JSON objects, compares them field by field. It fires if 3 answers or more lack fields that
are, together, at least 5 % of those of the references. Null and empty values count as missing. It names these fields,
and gives the share of right values twice: over the fields in the answers, and over those in the references. It reports
extra fields in the same way.

## Why it is bad
A score that iterates over the fields of the answer (`for key, value in pred.items()`) ignores a missing field. It shows
98 % when users get 77 % of the values. A score over the fields of the reference does not see what was invented.

## Example

```yaml
finished: true
looks:
  - step: 0
    answers:
      - '{"a": 1}'
      - '{"a": 2}'
      - '{"a": 3}'
      - '{"a": 4}'
      - '{"a": 5, "b": 1}'
      - '{"a": 6, "b": 1}'
      - '{"a": 7, "b": 1}'
      - '{"a": 8, "b": 1}'
    references:
      - '{"a": 1, "b": 1}'
      - '{"a": 2, "b": 1}'
      - '{"a": 3, "b": 1}'
      - '{"a": 4, "b": 1}'
      - '{"a": 5, "b": 1}'
      - '{"a": 6, "b": 1}'
      - '{"a": 7, "b": 1}'
      - '{"a": 8, "b": 1}'
```

## Use instead

```yaml
finished: true
looks:
  - step: 0
    answers:
      - '{"a": 1, "b": 1}'
      - '{"a": 2, "b": 1}'
      - '{"a": 3, "b": 1}'
      - '{"a": 4, "b": 1}'
      - '{"a": 5, "b": 1}'
      - '{"a": 6, "b": 1}'
      - '{"a": 7, "b": 1}'
      - '{"a": 8, "b": 1}'
    references:
      - '{"a": 1, "b": 1}'
      - '{"a": 2, "b": 1}'
      - '{"a": 3, "b": 1}'
      - '{"a": 4, "b": 1}'
      - '{"a": 5, "b": 1}'
      - '{"a": 6, "b": 1}'
      - '{"a": 7, "b": 1}'
      - '{"a": 8, "b": 1}'
```

## Fix safety
There is no automatic fix. Check whether the training rows have the fields: a model leaves out what its rows leave out.
Scoring over the reference's fields lowers the score to its true value.

## References

- Chinchor 1992, MUC-4 Evaluation Metrics: slots that are missing count in recall, spurious ones in precision
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from truetune.checks.answers.count_bad_answers_per_pass import MIN_ANSWERS, cases_of_samples
from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.judgement import Unmet
from truetune.checks.rule import AnswersRule
from truetune.generation.answer_samples import Sample
from truetune.generation.json_field_scores import FieldScores, score_fields

MIN_BAD_ANSWERS = 3
"""Answers that leave fields out, at least. Chosen by hand: one or two are a slip of the model, and
no habit"""
# Chosen: one field of a hundred is what any extraction loses; half of it would be within the noise of small files.
MIN_SHARE = 0.05
# Chosen: with fewer right values the answers are about other rows, or in other fields altogether, which is no matter of
# fields left out.
MIN_PRECISION = 0.2
MAX_NAMED = 8


class AnswersLeaveFieldsOut(AnswersRule):
    code = "ANS031"
    fault = Fault.MODEL_ANSWERS_NOT_IN_REQUIRED_FORM
    symptoms = ("odd-metrics",)
    severity = "warning"

    def unmet(self) -> Unmet | None:
        unmet = super().unmet()
        if unmet is not None:
            return unmet
        with_reference = self._samples_with_reference()
        if len(with_reference) < MIN_ANSWERS:
            return Unmet(
                f"{len(with_reference)} answers have a reference: too few to judge",
                "name references, of 8 answers or more",
            )
        if self._field_scores(with_reference) is None:
            return Unmet("answers and references are not JSON objects")
        return None

    def measurement_if_clean(self) -> str:
        """The share of right values in the fields of the JSON answers; empty where too few are JSON."""
        scores = self._field_scores(self._samples_with_reference())
        return _describe_right_values(scores) if scores is not None else ""

    def findings(self) -> Iterator[Finding]:
        if self.unmet() is not None or not self.subject.finished:
            return
        samples = self._samples_with_reference()
        scores = self._field_scores(samples)
        if scores is None or scores.precision < MIN_PRECISION:
            return
        if _do_enough_answers_omit_fields(scores, scores.missing, scores.incomplete):
            yield self.finding(
                f"{len(scores.incomplete)} of {scores.rows} answers lack fields that their references have"
                f" ({scores.missing.total():,} of {scores.expected.total():,}):"
                f" {_describe_omissions_by_field(scores.missing, scores.expected)}",
                "score over the fields of the reference (for key in gold), so that a missing field counts as wrong;"
                " then check how many training rows have these fields, and whether the prompt asks for them",
                evidence=[_describe_right_values(scores)],
                cases=cases_of_samples([samples[number] for number in scores.incomplete]),
                count=len(scores.incomplete),
                total=scores.rows,
            )
        if _do_enough_answers_omit_fields(scores, scores.added, scores.overfull):
            yield self.finding(
                f"{len(scores.overfull)} of {scores.rows} answers have fields that their references lack"
                f" ({scores.added.total():,}): {_describe_omissions_by_field(scores.added, Counter())}",
                "count them as wrong (a score over the reference's fields only does not see them); if the reference"
                " has the field under another name, use the same name",
                evidence=[_describe_right_values(scores)],
                cases=cases_of_samples([samples[number] for number in scores.overfull]),
                count=len(scores.overfull),
                total=scores.rows,
            )

    def _samples_with_reference(self) -> list[Sample]:
        """Answers of the last pass that have a reference."""
        return [one for one in self.subject.looks[-1].samples if one.prompt.reference.strip()]

    def _field_scores(self, samples: list[Sample]) -> FieldScores | None:
        """How the fields of these JSON answers compare with those of their references; None if too
        few are JSON objects.
        """
        return score_fields(
            [one.answer.text for one in samples], [one.prompt.reference for one in samples]
        )


def _do_enough_answers_omit_fields(
    scores: FieldScores, fields: Counter[str], rows: list[int]
) -> bool:
    """Do enough answers and fields show it?"""
    return len(rows) >= MIN_BAD_ANSWERS and fields.total() >= MIN_SHARE * scores.expected.total()


def _describe_omissions_by_field(fields: Counter[str], of: Counter[str]) -> str:
    """The fields with how often each is left out, of how many: `due_date 70 of 140, iban 64 of
    140`.
    """
    named = [
        f"{name} {count}" + (f" of {of[name]}" if of else "")
        for name, count in fields.most_common(MAX_NAMED)
    ]
    return ", ".join(named) + (", ..." if len(fields) > MAX_NAMED else "")


def _describe_right_values(scores: FieldScores) -> str:
    """The share of right values, over what is given and over what was asked."""
    right = scores.right.total()
    return (
        f"{right:,} values are right: {scores.precision:.0%} of the {scores.answer_field_count:,} fields in the"
        f" answers, {scores.recall:.0%} of the {scores.expected.total():,} in the references"
    )
