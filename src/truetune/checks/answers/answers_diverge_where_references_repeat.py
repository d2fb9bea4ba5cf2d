"""Answers break where their references first repeat themselves.

## What it does
Looks at answers whose references repeat themselves (a list of objects with the same keys, a table, code). It counts
those that follow the reference up to its first repetition, deviate there, are about as long, and repeat far less. It
fires at the end of a run if significantly more than 20 % of them do. It is an error if half of 8 or more do, otherwise
a warning. Answers that were cut off, or that have another format from the start, don't count.

## Why it is bad
`no_repeat_ngram_size` forbids what must be repeated, and `repetition_penalty` makes each key, quote and comma that has
occurred less likely: the model writes `"descripción'` for the second `"description"`. The training loss and accuracy
can't show it, since nothing is generated there.

## Example

```yaml
finished: true
looks:
  - step: 0
    answers: '[{"name": "Lamp", "count": 2, "price": 4}, {"nombre'': "Desk" quantity= 1 ; ''cost'' = 9 ]'
    references: '[{"name": "Lamp", "count": 2, "price": 4}, {"name": "Desk", "count": 1, "price": 9}]'
```

## Use instead

```yaml
finished: true
looks:
  - step: 0
    answers: '[{"name": "Lamp", "count": 2, "price": 4}, {"name": "Desk", "count": 1, "price": 8}]'
    references: '[{"name": "Lamp", "count": 2, "price": 4}, {"name": "Desk", "count": 1, "price": 9}]'
```

## Fix safety
There is no automatic fix. Generate with `repetition_penalty=1.0` and `no_repeat_ngram_size=0` (on a server: frequency
and presence penalties of 0). They are set in the call of `generate`, in a GenerationConfig, or in
generation_config.json. Answers may loop more often; if so, fix the training, not the sampling.

## References

- vllm-project/vllm#1257, epfl-dlab/transformers-CFG#10
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

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
from truetune.generation.suppressed_repetition import (
    SuppressedRepetition,
    find_suppressed_repetition,
    repeats_itself,
)

# Measured on 50 references of a list each: 1 that was cut to two thirds breaks at a repetition as well. A fifth is
# beyond it; at half, chance would do in small samples, at double a weak penalty would pass.
TOLERATED = 0.2
SHOWN_BREAKS = 3


class AnswersDivergeWhereReferencesRepeat(BadAnswerShareRule):
    code = "ANS019"
    fault = Fault.SAMPLING_SETTINGS_DISTORT_ANSWERS
    symptoms = ("garbage-output",)
    severity = "error"
    tolerated = TOLERATED
    called = "break where their references repeat themselves"
    untold = Unmet("no reference repeats itself, as lists of objects and tables do")

    def is_bad_answer(self, sample: Sample) -> bool | None:
        """Does the answer break where its reference first repeats itself?

        None if a limit cut it, or if its reference does not repeat itself.
        """
        reference = sample.prompt.reference
        if not sample.scores.stopped or not repeats_itself(reference):
            return None
        return _find_suppressed_repetition(sample) is not None

    def findings(self) -> Iterator[Finding]:
        bad_answers = count_bad_answers(self.subject, self.is_bad_answer)
        if bad_answers is None or not self.subject.finished:
            return
        last = bad_answers.count_in_last_pass
        if not is_bad_share_surely_above(last, TOLERATED):
            return
        breaks = [
            suppressed
            for suppressed in map(_find_suppressed_repetition, bad_answers.samples)
            if suppressed is not None
        ]
        due = Counter(one.breaks_at for one in breaks).most_common(SHOWN_BREAKS)
        # Half and not all: a penalty spares answers whose first repetition comes late or never.
        is_half = last.of >= MIN_ANSWERS and 2 * last.bad >= last.of
        yield self.finding(
            f"{last} answers break where their references first repeat themselves, which is what repetition_penalty"
            " and no_repeat_ngram_size cause",
            "set repetition_penalty=1.0 and no_repeat_ngram_size=0 wherever they are set: in the call of generate,"
            " a GenerationConfig, generation_config.json, or the server's request (frequency_penalty and"
            " presence_penalty 0)",
            severity="error" if is_half else "warning",
            evidence=[
                "what was due there: " + ", ".join(f"`{text}` in {count}" for text, count in due),
                f"{sum(one.answer_repeats for one in breaks):,} of their four-word sequences occur earlier in the"
                f" same answer, against {sum(one.reference_repeats for one in breaks):,} in the references, which"
                " have the same length and beginning",
            ],
            cases=cases_of_samples(bad_answers.samples),
            count=last.bad,
            total=last.of,
        )


def _find_suppressed_repetition(sample: Sample) -> SuppressedRepetition | None:
    """Where the answer leaves its reference at the first repetition; None where it does not."""
    return find_suppressed_repetition(sample.answer.text, sample.prompt.reference)
