"""Different questions get one and the same answer.

## What it does

Takes the commonest answer of each look, white space aside, and fires where more of the prompts get it than share the
commonest reference, and more than got one answer at the first look, unless chance makes such differences; in the second
half of a run, whatever the first look was. There 4 prompts are enough where all get it and no two references are the
same. An error where there all of 8 or more get it.

## Why it is bad

The model has learned what most answers say and does not read the question: the prompt does not reach it (masked,
truncated, the wrong column), one answer outweighs all others in the data, or training went too hard.

## Example

```yaml
looks:
  - {step: 0}
  - {step: 100, answers: I am sorry, references: differ}
```

## Use instead

```yaml
looks:
  - {step: 0}
  - {step: 100, answers: differ, references: differ}
```

## Fix safety

There is no automatic fix: look at the commonest answers in the data, and at what the model sees of the prompt
(`truetune run -- COMMAND` shows it).

## References

- haotian-liu/LLaVA#1546, BAAI-DCAI/Bunny#97
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import replace

from truetune.checks.answers.bad_answers import CHANCE, ENOUGH, Count, cases, fits, late, risen
from truetune.checks.findings import Finding
from truetune.checks.judgement import Unmet
from truetune.checks.recitation.recited import short
from truetune.checks.rule import AnswersRule
from truetune.generation.answer_samples import SampledRun, SamplingPass
from truetune.generation.identical_answers import MIN_QUESTIONS, are_identical, normalise_spaces


class OneAnswerToAll(AnswersRule):
    code = "ANS005"
    severity = "error"
    since = "0.1.0"

    def unmet(self) -> Unmet | None:
        if unmet := super().unmet():
            return unmet
        samples = _without_cut_answers(self.subject, self.subject.looks[-1]).samples
        if not samples:
            return Unmet("each answer was cut before its reference ends", "raise --max-new-tokens")
        if len(samples) >= MIN_QUESTIONS:
            return None
        same = _commonest(self.subject.looks[-1], (sample.answer.text for sample in samples))[1].bad
        return Unmet(
            f"{same} of {len(samples)} prompts get the same answer: too few to judge",
            "ask more prompts (-n)",
        )

    def figure(self) -> str:
        look = _without_cut_answers(self.subject, self.subject.looks[-1])
        answer = _commonest(look, (sample.answer.text for sample in look.samples))[1]
        reference = _commonest(look, (sample.prompt.reference for sample in look.samples))[1]
        return (
            f"the commonest answer goes to {answer} prompts, the commonest reference to {reference}"
        )

    def findings(self) -> Iterator[Finding]:
        looks = [_without_cut_answers(self.subject, look) for look in self.subject.looks]
        if not looks or not looks[-1].samples:
            return
        answer, now = _commonest(looks[-1], (sample.answer.text for sample in looks[-1].samples))
        expected = _commonest(looks[-1], (sample.prompt.reference for sample in looks[-1].samples))[
            1
        ]
        first = _commonest(looks[0], (sample.answer.text for sample in looks[0].samples))[1]
        over = late(self.subject)
        if not now.of or not answer or (not over and risen(first, now) >= CHANCE):
            return
        alike = over and are_identical(looks[-1].samples)
        if risen(expected, now) >= CHANCE and not alike:
            return
        yield self.finding(
            f"{now} prompts get the same answer: {short(answer)}",
            "look at the commonest answers in the data, and at what is seen of the prompt (truetune"
            " run -- COMMAND)",
            severity="error" if alike or (over and now.bad == now.of >= ENOUGH) else "warning",
            evidence=[
                f"the commonest reference answers {expected}; at step {first.step:,} one answer"
                f" went to {first}"
            ],
            cases=cases(
                [
                    sample
                    for sample in looks[-1].samples
                    if normalise_spaces(sample.answer.text) == answer
                ]
            ),
            count=now.bad,
            total=now.of,
        )


def _without_cut_answers(watched: SampledRun, look: SamplingPass) -> SamplingPass:
    """Without the answers that a limit shorter than their references has cut: all may begin alike."""
    return replace(
        look, samples=tuple(s for s in look.samples if s.scores.stopped or fits(watched, s))
    )


def _commonest(look: SamplingPass, texts: Iterable[str]) -> tuple[str, Count]:
    """The text that occurs most, and how often; once where all differ."""
    ((text, count),) = Counter(map(normalise_spaces, texts)).most_common(1) or [("", 0)]
    return text, Count(look.step, count if text else min(1, count), len(look.samples))
