"""Some answers are not valid JSON, though all references are.

## What it does
If nearly all references are JSON, reads each answer of a finished model as JSON: the whole text, or the one block
between ``` fences in it. It fires if 3 answers or more, and at least 5 %, are not JSON, and tells what they are: JSON
written twice, cut off, or with text around it.

## Why it is bad
A program that reads the answers gets an error for each of these. A script that skips them (`except: continue`) divides
by the number of readable ones, and reports a score that the model does not have.

## Example

```yaml
finished: true
looks:
  - step: 0
    answers: ['{"a": 1}', '{"a": 2}', '{"a": 3}{"a": 3}', '{"a": 4}', '{"a": 5', 'It is 6', '{"a": 7}', '{"a": 8}']
    references: ['{"a": 1}', '{"a": 2}', '{"a": 3}', '{"a": 4}', '{"a": 5}', '{"a": 6}', '{"a": 7}', '{"a": 8}']
```

## Use instead

```yaml
finished: true
looks:
  - step: 0
    answers: ['{"a": 1}', '{"a": 2}', '{"a": 0}', '{"a": 4}', '{"a": 5}', '{"a": 6}', '{"a": 7}', '{"a": 8}']
    references: ['{"a": 1}', '{"a": 2}', '{"a": 3}', '{"a": 4}', '{"a": 5}', '{"a": 6}', '{"a": 7}', '{"a": 8}']
```

## Fix safety
There is no automatic fix. JSON written twice means that the stop token was not learned. Cut JSON means that the limit
on new tokens is too low. Text around it means that the prompt or the training rows have another format. Constrained
decoding (`response_format`, guided decoding) enforces the format, not the content.

## References

- Willard and Louf 2023, Efficient Guided Generation for Large Language Models, arXiv 2307.09702
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from truetune.checks.answers.count_bad_answers_per_pass import MIN_ANSWERS, cases_of_samples
from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.judgement import Unmet
from truetune.checks.rule import AnswersRule
from truetune.generation.answer_samples import Sample
from truetune.generation.json_faults_of_answers import CUT_OFF, are_references_json, json_fault

ENDS_INSIDE = "stop by themselves before its end"
MIN_BAD = 3
"""Answers that are no JSON, at least. Chosen by hand: one or two are a slip of the model, and no
habit"""
# Chosen: one of a hundred is what a caller has to handle anyway.
MIN_BAD_SHARE = 0.05


class AnswersInvalidJsonUnlikeReferences(AnswersRule):
    code = "ANS030"
    fault = Fault.MODEL_ANSWERS_NOT_IN_REQUIRED_FORM
    symptoms = ("odd-metrics", "garbage-output")
    severity = "warning"
    moot_where = ("answers-do-not-parse",)

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
        if not are_references_json([sample.prompt.reference for sample in with_reference]):
            return Unmet("the references are not JSON")
        return None

    def measurement_if_clean(self) -> str:
        """How many answers are valid JSON, as their references are."""
        with_reference = self._samples_with_reference()
        valid = sum(json_fault(sample.answer.text) is None for sample in with_reference)
        return f"{valid} of {len(with_reference)} answers are valid JSON, as their references are"

    def findings(self) -> Iterator[Finding]:
        if self.unmet() is not None or not self.subject.finished:
            return
        with_reference = self._samples_with_reference()
        faults = [(sample, _json_fault_of(sample)) for sample in with_reference]
        bad = [sample for sample, fault in faults if fault is not None]
        total = len(with_reference)
        if len(bad) < MIN_BAD or len(bad) < MIN_BAD_SHARE * total:
            return
        yield self.finding(
            f"{len(bad)} of {total} answers are not valid JSON, though all references are: at most"
            f" {total - len(bad)} of all rows ({(total - len(bad)) / total:.0%}) can be right",
            "count them as wrong in every score (`except: continue` would skip them); "
            + _remedy_for_commonest_fault(
                Counter(fault for _, fault in faults if fault is not None)
            ),
            evidence=_describe_fault_counts([fault for _, fault in faults if fault is not None]),
            cases=cases_of_samples(bad),
            count=len(bad),
            total=total,
        )

    def _samples_with_reference(self) -> list[Sample]:
        """Answers of the last pass that have a reference."""
        return [one for one in self.subject.looks[-1].samples if one.prompt.reference.strip()]


def _json_fault_of(sample: Sample) -> str | None:
    """Why an answer is no valid JSON; None if it is.

    One that ended by itself was not cut off, however it ends.
    """
    fault = json_fault(sample.answer.text)
    ended_itself = sample.scores.end_known and sample.scores.stopped
    return ENDS_INSIDE if fault == CUT_OFF and ended_itself else fault


def _describe_fault_counts(faults: Sequence[str]) -> list[str]:
    """How many have each fault."""
    return [", ".join(f"{count} {fault}" for fault, count in Counter(faults).most_common())]


def _remedy_for_commonest_fault(faults: Counter[str]) -> str:
    """What to look at first, by the most frequent fault."""
    ((first, _),) = faults.most_common(1)
    return {
        "hold it more than once": "check that the stop token has a label in training, and that the server stops at it",
        CUT_OFF: "raise max_new_tokens (max_tokens), or check that the training rows are complete",
    }.get(first, "check that the prompt and the system text are the same as in training")
