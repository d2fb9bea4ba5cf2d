"""Answers are in another language than their references or questions.

## What it does
Detects the language of each answer and of its reference (of its question if the reference is too short), and whether
the answer switches to another language. It fires if there are significantly more than in the best earlier sampling
pass, or, in the second half of a run, if significantly more than 5 % differ. It is an error if all answers (8 or more)
differ at the end of a run, otherwise a warning.

## Why it is bad
Users get answers in a language that they did not ask in. A few rows in another language, or a base model that prefers
one, are enough if the data does not tie the language of the answer to that of the question.

## Example

```yaml
looks:
  - {step: 0, switched: 0}
  - {step: 100, switched: 6}
```

## Use instead

```yaml
looks:
  - {step: 0, switched: 1}
  - {step: 100, switched: 0}
```

## Fix safety
There is no automatic fix: check the languages of questions and answers in the data (`truetune check DATA`), and drop or
translate the rows whose answer is in another language.

## References

- Marchisio et al. 2024, Understanding and Mitigating Language Confusion in LLMs, arXiv 2406.20052
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from truetune.checks.answers.count_bad_answers_per_pass import (
    are_enough_and_all_bad,
    bad_answers_if_risen_or_too_many,
    cases_of_samples,
)
from truetune.checks.base_of_rules_on_bad_answer_shares import BadAnswerShareRule
from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.judgement import Unmet
from truetune.generation.answer_samples import Sample
from truetune.generation.name_answer_language import name_language_and_fragments

# Chosen, not measured: short answers (names, quotations) are taken for another language now and then. At half, one of
# 40 would count; at double, a tenth of all users would be answered in another language.
TOLERATED = 0.05
SHOWN_LANGUAGES = 5


class AnswersChangeLanguage(BadAnswerShareRule):
    code = "ANS004"
    fault = Fault.ANSWERS_IN_ANOTHER_LANGUAGE
    symptoms = ("garbage-output",)
    severity = "error"
    since = "0.1.0"
    explained_by = ("temperature",)
    tolerated = TOLERATED
    called = "are in another language than their references"
    untold = Unmet(
        "no answer and its reference are long enough to tell a language", "ask rows with references"
    )

    def is_bad_answer(self, sample: Sample) -> bool | None:
        """Is the answer in another language than its reference or question? None if that can't be told."""
        return sample.scores.switched

    def findings(self) -> Iterator[Finding]:
        bad_answers = bad_answers_if_risen_or_too_many(self.subject, self.is_bad_answer, TOLERATED)
        if bad_answers is not None:
            languages = Counter(
                name_language_and_fragments(
                    sample.answer.text, f"{sample.prompt.question} {sample.prompt.reference}"
                )
                for sample in bad_answers.samples
            )
            yield self.finding(
                f"{bad_answers.count_in_last_pass} answers are not in the language of their references or"
                f" questions{bad_answers.best_earlier_count_in_words}",
                "find training rows whose answer is in another language than their question (truetune check DATA),"
                " and drop or translate them",
                severity="error"
                if self.subject.finished and are_enough_and_all_bad(bad_answers)
                else "warning",
                evidence=[
                    "they are in: "
                    + ", ".join(
                        f"{name} {n}" for name, n in languages.most_common(SHOWN_LANGUAGES)
                    ),
                    *bad_answers.evidence,
                ],
                cases=cases_of_samples(bad_answers.samples),
                count=bad_answers.count_in_last_pass.bad,
                total=bad_answers.count_in_last_pass.of,
                figure=bad_answers.figure("answers in another language"),
            )
