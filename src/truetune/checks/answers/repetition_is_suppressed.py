"""Answers break where their references repeat themselves for the first time.

## What it does

Looks at answers whose references repeat themselves (a list of objects with the same keys, a table, code), and counts
those that follow the reference up to its first repetition, leave it there, are about as long and repeat far less. It
fires at the end of a run where surely more than 1 of 5 of them do so: an error where half of 8 or more do. Answers that
were cut, or that have another form from the start, do not count.

## Why it is bad

`no_repeat_ngram_size` forbids what must be repeated, and `repetition_penalty` makes each key, quote and comma that has
come once less likely: the model writes `"descripción'` for the second `"description"`. The loss and the accuracy of the
training can't show it, since nothing is generated there.

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

There is no automatic fix. Generate with `repetition_penalty=1.0` and `no_repeat_ngram_size=0` (frequency and presence
penalties of 0 on a server); they stand in the call of `generate`, in a GenerationConfig or in generation_config.json.

## References

- vllm-project/vllm#1257, epfl-dlab/transformers-CFG#10
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from truetune.checks.answers.bad_answers import ENOUGH, cases, counted, often
from truetune.checks.counted_answers import CountedAnswersRule
from truetune.checks.findings import Finding
from truetune.checks.judgement import Unmet
from truetune.generation.answer_samples import Sample
from truetune.generation.suppressed_repetition import find_suppressed_repetition, repeats_itself

TOLERATED = 0.2
"""Of 50 references of a list each, 1 that was cut to two thirds breaks at a repetition as well; a fifth is beyond it"""


class RepetitionIsSuppressed(CountedAnswersRule):
    code = "ANS019"
    severity = "error"
    tolerated = TOLERATED
    called = "break where their references repeat themselves"
    untold = Unmet("no reference repeats itself, as lists of objects and tables do")

    def bad(self, sample: Sample) -> bool | None:
        reference = sample.prompt.reference
        if not sample.scores.stopped or not repeats_itself(reference):
            return None
        return find_suppressed_repetition(sample.answer.text, reference) is not None

    def findings(self) -> Iterator[Finding]:
        found = counted(self.subject, self.bad)
        if found is None or not self.subject.finished or not often(found.last, TOLERATED):
            return
        broken = [
            suppressed
            for sample in found.samples
            if (
                suppressed := find_suppressed_repetition(
                    sample.answer.text, sample.prompt.reference
                )
            )
        ]
        places = Counter(one.breaks_at for one in broken).most_common(3)
        half = found.last.of >= ENOUGH and 2 * found.last.bad >= found.last.of
        yield self.finding(
            f"{found.last} answers break where their references repeat themselves for the first"
            " time, as repetition_penalty and no_repeat_ngram_size make them",
            "generate with repetition_penalty=1.0 and no_repeat_ngram_size=0 (in the call, a"
            " GenerationConfig, generation_config.json or the server's penalties)",
            severity="error" if half else "warning",
            evidence=[
                "what was due there: "
                + ", ".join(f"`{text}` in {count}" for text, count in places),
                f"{sum(one.answer_repeats for one in broken):,} of their sequences of four words and marks"
                f" stand before in the same answer, {sum(one.reference_repeats for one in broken):,} in the"
                " references; they are as long, and begin as these do",
            ],
            cases=cases(found.samples),
            count=found.last.bad,
            total=found.last.of,
        )
