"""Answers are not readable text.

## What it does
An answer is garbage by its characters (broken or unprintable ones, UTF-8 read as another encoding, raw token pieces,
words that mix scripts, rows of English words without a function word). Or its words are those of the references and
prompts in an order that none of them has (if 20 references show a format). Or the model itself finds it very unlikely
(perplexity above 150).

It fires if there are significantly more than in the best earlier sampling pass, or, in the second half of a run, if
significantly more than 2 % are garbage. It is an error if half of 8 or more answers are garbage at the end of a run,
otherwise a warning.

## Why it is bad
Garbage has other causes than bad answers: damaged or random weights, the wrong tokenizer, an adapter at the wrong scale
or on another base, a decoder that loses bytes. More training does not repair them.

## Example

```yaml
looks:
  - {step: 0, garbage: 0}
  - {step: 100, garbage: 7}
```

## Use instead

```yaml
looks:
  - {step: 0, garbage: 0}
  - {step: 100, garbage: 0}
```

## Fix safety
There is no automatic fix: ask the base model the same questions, compare the tokenizer's files with the base's, and
check the files of the checkpoint (`truetune check MODEL`).

## References

- Holtzman et al. 2020, The Curious Case of Neural Text Degeneration, arXiv 1904.09751
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from statistics import median

from truetune.checks.answers.count_bad_answers_per_pass import (
    MIN_ANSWERS,
    PAD_ON_THE_LEFT,
    bad_answers_if_risen_or_too_many,
    cases_of_samples,
    evidence_of_right_padding,
)
from truetune.checks.base_of_rules_on_bad_answer_shares import BadAnswerShareRule
from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.generation.answer_samples import Sample
from truetune.generation.garbage_text import describe_garbage_characters

# Chosen, not measured: the detector takes rare sound texts (chemical formulas, other alphabets in one word) for
# garbage. At half, a single one of 100 would do; at double, a decoder that loses bytes in some answers would pass.
TOLERATED = 0.02
SHOW_IDS_AS_TEXT = (
    "decode the ids with tokenizer.decode(ids, skip_special_tokens=True): convert_ids_to_tokens gives token pieces,"
    " in which Ġ or ▁ stands for a space; if you do, check that the tokenizer is the model's own"
)
MISREAD = "UTF-8 read as another encoding"
BY_ENCODING = (MISREAD, "broken characters")
"""Faults of characters alone: words and their order are right"""
READ_SOURCE_AGAIN = (
    "the model writes the characters of its training rows: look for é as Ã© in them (truetune check DATA), read"
    " their source as UTF-8, and train again; if the rows are right, check with which encoding the answers were"
    " written and read"
)
LOST_ORDER = "words of the references out of order"
COMPARE_FILES = (
    "check the tokenizer and the weights (truetune check MODEL), and ask the base model the same questions"
    " (truetune sample BASE --data DATA)"
)


class AnswersAreGibberish(BadAnswerShareRule):
    code = "ANS012"
    fault = Fault.ANSWERS_UNREADABLE
    symptoms = ("garbage-output",)
    severity = "error"
    since = "0.1.0"
    explained_by = ("temperature",)
    tolerated = TOLERATED
    called = "are garbage"

    def is_bad_answer(self, sample: Sample) -> bool | None:
        """Is the answer no text? None if that can't be told."""
        return sample.scores.garbage

    def findings(self) -> Iterator[Finding]:
        bad_answers = bad_answers_if_risen_or_too_many(self.subject, self.is_bad_answer, TOLERATED)
        if bad_answers is None:
            return
        last = bad_answers.count_in_last_pass
        faults = Counter(filter(None, map(_character_fault_of, bad_answers.samples)))
        # Half and not all: garbage is no matter of the question, and what still reads well is luck.
        is_half = last.of >= MIN_ANSWERS and 2 * last.bad >= last.of
        padded = evidence_of_right_padding(self.subject)
        evidence = [padded] if padded else []
        if faults:
            evidence.append(", ".join(f"{text} in {n}" for text, n in faults.most_common()))
        yield self.finding(
            f"{last} answers are garbage{bad_answers.best_earlier_count_in_words}",
            PAD_ON_THE_LEFT if padded else _remedy_for_garbage(faults, last.bad),
            severity="error" if self.subject.finished and is_half else "warning",
            evidence=[
                *evidence,
                *_describe_perplexity(bad_answers.samples),
                *bad_answers.evidence,
            ],
            cases=cases_of_samples(bad_answers.samples),
            count=last.bad,
            total=last.of,
            figure=bad_answers.figure("answers that are garbage"),
        )


def _remedy_for_garbage(faults: Counter[str], bad: int) -> str:
    """What to do about so many bad answers, by the faults of their characters."""
    if 2 * faults["pieces of tokens"] > bad:
        return SHOW_IDS_AS_TEXT
    if faults[MISREAD] and all(fault in BY_ENCODING for fault in faults):
        return READ_SOURCE_AGAIN
    return COMPARE_FILES


def _character_fault_of(sample: Sample) -> str | None:
    """What makes its characters garbage; None where only its perplexity does."""
    return describe_garbage_characters(sample.answer.text, sample.scores.language) or (
        LOST_ORDER if sample.scores.perplexity is None else None
    )


def _describe_perplexity(samples: Sequence[Sample]) -> Iterator[str]:
    """How unlikely the model itself finds what it wrote."""
    perplexities = [sample.scores.perplexity for sample in samples]
    known = [perplexity for perplexity in perplexities if perplexity is not None]
    if known:
        yield f"median perplexity of these answers under the model itself: {median(known):.3g}"
