"""Answers say the same words over and over.

## What it does

Counts the answers that end in a loop, the same words again and again, or are full of one inside: a run of the same
words
without a mark between them, a phrase many times, lines that are copies of a few. It fires where there are more than
at the
best look before, unless chance makes such a change, and, in the second half of a run, where surely more than 1 of
10 loops; an error where at the end of a run all of 8 or more do.

## Why it is bad

A looping answer is useless and never stops. Loops rise when a model is trained too hard (a learning rate too high,
too many epochs), or when its stop token is not learned; also when a batch was padded on the right at generation, which
shows where of each batch only the longest prompt is answered well. Answers that are one mark over and over (`!!!!`)
have another cause: logits that are NaN, whose argmax is token 0, most often of a bfloat16 model in float16.

## Example

```yaml
looks:
  - {step: 0, looped: 0}
  - {step: 100, looped: 6}
```

## Use instead

```yaml
looks:
  - {step: 0, looped: 1}
  - {step: 100, looped: 1}
```

## Fix safety

There is no automatic fix: ask some prompts alone; if they loop too, a lower learning rate or fewer epochs; where the
answers do not stop either, see `answers-never-stop`.

## References

- unslothai/unsloth#1275, shibing624/MedicalGPT#157
- Holtzman et al. 2020, The Curious Case of Neural Text Degeneration, arXiv 1904.09751
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence

from truetune.checks.answers.bad_answers import (
    PAD_ON_THE_LEFT,
    all_of,
    cases,
    find_bad_answers,
    padded_in_batches,
)
from truetune.checks.counted_answers import CountedAnswersRule
from truetune.checks.findings import Finding
from truetune.generation.answer_samples import Sample

TOLERATED = 0.1
LEAST = 8
"""Rounds of one symbol that a person would not write"""
_SYMBOL = re.compile(
    rf"\s*(?P<symbol>[^\w\s]|<[^<>\s]{{1,40}}>|\[[A-Z]{{2,8}}\])(?:\s*(?P=symbol)){{{LEAST - 1},}}\s*"
)
"""A mark or a control token alone, over and over"""
ASK_ALONE = "ask some of these prompts alone and by the chat template: if they are good then, the generation was wrong"
"""Loops come of padding on the right, a wrong template or a wrong dtype as well: first is tried what costs a minute"""
TRAINED_TOO_HARD = (
    f"{ASK_ALONE}; else train with a lower learning rate or fewer epochs, and see that the stop token is"
    " supervised"
)
NOT_A_NUMBER = (
    "look whether the logits are NaN: their argmax is token 0, `!` in many vocabularies. The usual"
    " cause is a bfloat16 model in float16, which overflows: generate with dtype=torch.bfloat16,"
    " and look for NaN in the weights (truetune check MODEL_FOLDER)"
)


class AnswersLoop(CountedAnswersRule):
    code = "ANS003"
    severity = "error"
    stability = "stable"
    since = "0.1.0"
    tolerated = TOLERATED
    called = "end in a loop"

    def bad(self, sample: Sample) -> bool | None:
        return sample.scores.looped

    def findings(self) -> Iterator[Finding]:
        found = find_bad_answers(self.subject, self.bad, TOLERATED)
        if found is not None:
            padded = padded_in_batches(self.subject)
            yield self.finding(
                f"{found.last} answers loop{found.before}",
                _remedy(found.samples, padded=padded is not None),
                severity="error" if self.subject.finished and all_of(found) else "warning",
                evidence=[*([padded] if padded else []), *found.evidence],
                cases=cases(found.samples),
                count=found.last.bad,
                total=found.last.of,
                figure=found.figure("answers that loop"),
            )


def _remedy(samples: Sequence[Sample], *, padded: bool) -> str:
    """What to do about these loops, by what they show of their cause."""
    if padded:
        return PAD_ON_THE_LEFT
    return NOT_A_NUMBER if _are_one_symbol(samples) else TRAINED_TOO_HARD


def _are_one_symbol(samples: Sequence[Sample]) -> bool:
    """Are most of these answers one and the same mark or control token, and nothing besides? NaN gives one id."""
    symbols = Counter(
        match["symbol"] for sample in samples if (match := _SYMBOL.fullmatch(sample.answer.text))
    )
    return bool(symbols) and 2 * symbols.most_common(1)[0][1] > len(samples)
