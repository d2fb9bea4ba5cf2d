"""Hardly any answer has anything in common with its reference.

## What it does
Compares each answer of a finished model with its reference: is it the same, does it contain the final answer, do the
two share a word? Words that are in a third of all references (function words, words of the format) don't count in
longer ones. It fires if significantly more than 80 % share nothing, or, with a parser, if significantly more than 80 %
are wrong.

## Why it is bad
The answers may be fluent, stop by themselves and still be wrong each time. Before you blame the model, make sure that
answers and references belong together. They don't if they come from another split, another version of the data or
another language, or if the wrong column was taken as the reference.

## Example

```yaml
finished: true
looks:
  - {step: 0, prompts: 20, answers: It is a kind of bird., references: differ, exact: 0, overlap: 0.0}
```

## Use instead

```yaml
finished: true
looks:
  - {step: 0, prompts: 20, answers: differ, references: differ, exact: 4, overlap: 0.7}
```

## Fix safety
There is no automatic fix: read some answers next to their questions and references, and set the columns (`--map`).

## References

- Rajpurkar et al. 2016, SQuAD: 100,000+ Questions for Machine Comprehension of Text, arXiv 1606.05250
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from functools import cached_property

from truetune.checks.answers.count_bad_answers_per_pass import (
    MIN_ANSWERS,
    cases_of_samples,
    count_bad_answers,
    is_bad_share_surely_above,
)
from truetune.checks.base_of_rules_on_bad_answer_shares import BadAnswerShareRule
from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.judgement import Unmet
from truetune.generation.answer_samples import Sample
from truetune.generation.final_answers import MAX_ANSWER_WORDS, holds_final_answer
from truetune.generation.json_field_scores import share_of_right_fields
from truetune.generation.split_words import split_words

# Chosen, not measured: a model that learns a hard task slowly is right in 1 of 5; from 4 of 5 without a word in common
# the two are about different things. At half of it every weak model would be doubted.
TOLERATED = 0.8
# Share of the references from which a word of theirs is one of the language or of the form. At half, words of the topic
# would be dropped; at double, function words of short references would count as agreement.
FREQUENT_SHARE = 1 / 3
# Chosen: an object whose values are half right is about its question. Fields of few values (a currency) are often
# right by chance, so that one right field is not enough.
RIGHT_FIELDS_SHARE = 0.5


class AnswersMissTheirReferences(BadAnswerShareRule):
    code = "ANS017"
    fault = Fault.ANSWERS_MOSTLY_WRONG
    symptoms = ("nothing-is-learned", "odd-metrics")
    severity = "warning"
    tolerated = TOLERATED
    called = "have nothing in common with their reference"
    untold = Unmet("no answer has a reference", "name the references (--map reference=COLUMN)")
    moot_where = (
        "answers-are-cut-off",
        "answers-leave-fields-out",
        "labels-are-exchanged",
        "answers-are-empty",
        "answers-are-gibberish",
        "answers-belong-to-other-rows",
        "answers-change-language",
        "answers-do-not-parse",
        "answers-echo-the-prompt",
        "answers-have-faults",
        "answers-loop",
        "exact-match-measures-form",
        "one-answer-to-all",
        "prompts-do-not-tell-the-answers",
        "answers-diverge-where-references-repeat",
        "role-markers-in-answers",
    )

    def is_bad_answer(self, sample: Sample) -> bool | None:
        """Has the answer nothing in common with its reference? None without a reference."""
        reference, scores = sample.prompt.reference, sample.scores
        if not reference.strip():
            return None
        if scores.agrees is not None:
            return not scores.agrees and not _are_most_fields_right(sample)
        if scores.exact or holds_final_answer(sample.answer.text, reference):
            return False
        return not self._words_shared_with_reference(sample)

    def unmet(self) -> Unmet | None:
        """Why too few answers could be judged; whether they are right was not asked without a
        parser.
        """
        unmet = super().unmet()
        return unmet and replace(unmet, asked=False)

    def findings(self) -> Iterator[Finding]:
        bad_answers = count_bad_answers(self.subject, self.is_bad_answer)
        if (
            bad_answers is None
            or bad_answers.count_in_last_pass.of < MIN_ANSWERS
            or not self.subject.finished
        ):
            return
        if not is_bad_share_surely_above(bad_answers.count_in_last_pass, TOLERATED):
            return
        right = bad_answers.count_in_last_pass.of - bad_answers.count_in_last_pass.bad
        parsed = any(sample.scores.agrees is not None for sample in bad_answers.samples)
        what = (
            "are right, as the parser reads them" if parsed else "share a word with their reference"
        )
        yield self.finding(
            f"{right} of {bad_answers.count_in_last_pass.of} answers {what}, although they stop and read well",
            "read some answers next to their questions, and check that these are the references of these rows"
            " (--map reference=COLUMN, the same split) and that this is the trained model",
            cases=cases_of_samples(bad_answers.samples),
            count=bad_answers.count_in_last_pass.bad,
            total=bad_answers.count_in_last_pass.of,
        )

    def _words_shared_with_reference(self, sample: Sample) -> set[str]:
        """The words that an answer shares with its reference; of a long reference only those that
        are not frequent in all.
        """
        reference_words = set(split_words(sample.prompt.reference))
        shared = reference_words & set(split_words(sample.answer.text))
        # A short reference is an answer, and each of its words counts, be it frequent (yes, no).
        is_short = len(reference_words) <= MAX_ANSWER_WORDS
        return shared if is_short else shared - self._frequent_reference_words

    @cached_property
    def _frequent_reference_words(self) -> set[str]:
        """Words of many references."""
        samples = self.subject.looks[-1].samples
        references = [
            sample.prompt.reference for sample in samples if sample.prompt.reference.strip()
        ]
        counts = Counter(word for text in references for word in set(split_words(text)))
        # One more than the share: of three references a word that one has is not frequent.
        limit = FREQUENT_SHARE * len(references) + 1
        return {word for word, rows in counts.items() if rows > limit}


def _are_most_fields_right(sample: Sample) -> bool:
    """Are most of the values right that a JSON answer gives? Then it is wrong in others, and not about another row."""
    share = share_of_right_fields(sample.answer.text, sample.prompt.reference)
    return share is not None and share >= RIGHT_FIELDS_SHARE
