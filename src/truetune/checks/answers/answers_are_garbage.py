"""Answers are no text at all.

## What it does

Takes an answer for garbage by its characters: broken or unprintable ones, UTF-8 that was read as another encoding, raw
pieces of tokens, words that mix scripts, rows of English words without a function word; or because the model itself
finds what it wrote very unlikely (perplexity above 150). It fires where more answers are garbage than at the best look
before, unless chance makes such a change, or, in the second half of a run, where surely more than 1 of 50 is; an error
where at the end of a run half of 8 or more are.

## Why it is bad

Garbage has other causes than bad answers: damaged or random weights, another tokenizer than the model's, an adapter at
the wrong scale or on another base, a decoder that loses bytes. More training does not repair them.

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

There is no automatic fix: ask the base the same questions, compare the tokenizer's files with the base's, and look at
the files of the checkpoint (`truetune check`).

## References

- Holtzman et al. 2020, The Curious Case of Neural Text Degeneration, arXiv 1904.09751
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from statistics import median

from truetune.checks.answers.bad_answers import (
    ENOUGH,
    PAD_ON_THE_LEFT,
    cases,
    find_bad_answers,
    padded_in_batches,
)
from truetune.checks.counted_answers import CountedAnswersRule
from truetune.checks.findings import Finding
from truetune.generation.answer_samples import Sample
from truetune.generation.garbage_text import find_garbage

TOLERATED = 0.02

DECODE = (
    "write the ids by tokenizer.decode(ids, skip_special_tokens=True): convert_ids_to_tokens gives the vocabulary's"
    " pieces, in which Ġ or ▁ stands for a space; else see that the tokenizer is the model's"
)
WHOLE = (
    "see that the tokenizer is the model's, and that the weights are whole; ask the base the same"
)


class AnswersAreGarbage(CountedAnswersRule):
    code = "ANS012"
    severity = "error"
    since = "0.1.0"
    explained_by = ("temperature",)
    tolerated = TOLERATED
    called = "are garbage"

    def bad(self, sample: Sample) -> bool | None:
        return sample.scores.garbage

    def findings(self) -> Iterator[Finding]:
        found = find_bad_answers(self.subject, self.bad, TOLERATED)
        if found is None:
            return
        faults = [
            find_garbage(sample.answer.text, sample.scores.language) for sample in found.samples
        ]
        known = Counter(text for text in faults if text)
        unlikely = [p for sample in found.samples if (p := sample.scores.perplexity) is not None]
        half = found.last.of >= ENOUGH and 2 * found.last.bad >= found.last.of
        padded = padded_in_batches(self.subject)
        are_pieces = 2 * known["pieces of tokens"] > found.last.bad
        yield self.finding(
            f"{found.last} answers are garbage{found.before}",
            PAD_ON_THE_LEFT if padded else DECODE if are_pieces else WHOLE,
            severity="error" if self.subject.finished and half else "warning",
            evidence=[
                *([padded] if padded else []),
                *(
                    [", ".join(f"{text} in {n}" for text, n in known.most_common())]
                    if known
                    else []
                ),
                *(
                    [f"their perplexity under the model itself: {median(unlikely):.3g} (median)"]
                    if unlikely
                    else []
                ),
                *found.evidence,
            ],
            cases=cases(found.samples),
            count=found.last.bad,
            total=found.last.of,
            figure=found.figure("answers that are garbage"),
        )
