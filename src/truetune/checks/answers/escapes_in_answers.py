"""Answers contain escape sequences instead of the characters.

## What it does
Looks in each answer, outside of code, JSON, formulas and addresses, for line breaks written as a backslash and an `n`,
HTML entities (`&amp;`), `\\u00e9`, `%20` and mail codes (`=C3=A9`). It fires if there are significantly more than in
the best earlier sampling pass, or, in the second half of a run, if significantly more than 2 % of the answers have
some. It is an error if half of 8 or more have some at the end of a run, otherwise a warning. An answer to a question
about escapes does not count.

## Why it is bad
Users see one line full of backslashes. The model was trained on rows that were escaped more often than unescaped: on
the way through a CSV file, a second `json.dumps`, a web page or a mail.

## Example

```yaml
looks:
  - {step: 0, escapes: 0}
  - {step: 100, escapes: 6}
```

## Use instead

```yaml
looks:
  - {step: 0, escapes: 0}
  - {step: 100, escapes: 0}
```

## Fix safety
There is no automatic fix: unescape the rows before they are tokenized (`text.replace("\\\\n", "\\n")`, `html.unescape`)
and train again. If the rows are fine (`truetune check DATA`), the program that wrote the answers down has escaped them.

## References

- huggingface/transformers#12971, EricFillion/happy-transformer#283
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from truetune.checks.answers.count_bad_answers_per_pass import (
    MIN_ANSWERS,
    bad_answers_if_risen_or_too_many,
    cases_of_samples,
)
from truetune.checks.base_of_rules_on_bad_answer_shares import BadAnswerShareRule
from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.generation.answer_samples import Sample
from truetune.generation.find_literal_escapes import find_unwanted_escapes

# Chosen, not measured, as for control tokens: an answer may speak of escapes without saying so. At half, one of 100
# such answers would do; at double, a column of which every 30th row is escaped would pass.
TOLERATED = 0.02
SHOWN_ESCAPES = 5


class EscapesInAnswers(BadAnswerShareRule):
    code = "ANS018"
    fault = Fault.ESCAPES_INSTEAD_OF_CHARACTERS
    symptoms = ("garbage-output",)
    severity = "error"
    tolerated = TOLERATED
    called = "have escape sequences instead of characters"

    def is_bad_answer(self, sample: Sample) -> bool | None:
        """Does the answer hold escapes instead of the characters that they mean?"""
        return bool(sample.scores.escapes)

    def findings(self) -> Iterator[Finding]:
        bad_answers = bad_answers_if_risen_or_too_many(self.subject, self.is_bad_answer, TOLERATED)
        if bad_answers is None:
            return
        escapes = Counter(
            escape for sample in bad_answers.samples for escape in sample.scores.escapes
        )
        half = (
            bad_answers.count_in_last_pass.of >= MIN_ANSWERS
            and 2 * bad_answers.count_in_last_pass.bad >= bad_answers.count_in_last_pass.of
        )
        named = ", ".join(
            f"{text} in {count}" for text, count in escapes.most_common(SHOWN_ESCAPES)
        )
        yield self.finding(
            f"{bad_answers.count_in_last_pass} answers have escape sequences instead of characters"
            f" ({named}){bad_answers.best_earlier_count_in_words}",
            "unescape the training rows (a CSV or JSON step escaped them twice; truetune check DATA finds them) and"
            " train again; if the rows are fine, correct the program that wrote the answers down",
            severity="error" if self.subject.finished and half else "warning",
            evidence=[
                *_evidence_of_escapes_in_references(bad_answers.samples),
                *bad_answers.evidence,
            ],
            cases=cases_of_samples(bad_answers.samples),
            count=bad_answers.count_in_last_pass.bad,
            total=bad_answers.count_in_last_pass.of,
            figure=bad_answers.figure("answers with escapes"),
        )


def _evidence_of_escapes_in_references(samples: tuple[Sample, ...]) -> Iterator[str]:
    """Evidence that the references have escapes too: then the model learned them from its data."""
    references = [sample.prompt.reference for sample in samples if sample.prompt.reference.strip()]
    if references:
        escaped = sum(bool(find_unwanted_escapes(reference)) for reference in references)
        yield f"{escaped} of their {len(references)} references have escapes too"
