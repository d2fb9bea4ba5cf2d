"""Answers are cut off at a limit of new tokens, before they come to their end.

## What it does

Looks at answers that others have generated. Where nobody knows what ended them, it fires where at least a third (and 8)
end in mid-sentence, all at about one length, and hardly a finished one is longer; where it is known, at those that were
stopped by the limit, have not given their reference, and do not loop. Silent where references end in that way too.

## Why it is bad

What is searched in the answer (a number behind `####`, the closing brace of JSON, the last line) was never written: the
answer counts as wrong, and the score measures the limit.

## Example

```yaml
finished: true
looks:
  - step: 0
    prompts: 10
    end_known: false
    answers: To find the total we first count all the boxes that came in, then we add those that are still on
    references: "42"
```

## Use instead

```yaml
finished: true
looks:
  - step: 0
    prompts: 10
    end_known: false
    answers: To find the total we first count all the boxes that came in, then we add the others. The answer is 42.
    references: "42"
```

## Fix safety

There is no automatic fix: raise the limit (`max_new_tokens`, `max_tokens`) to twice what the longest good answer takes,
and generate again. An answer that stops by itself costs nothing more.

## References

- EleutherAI/lm-evaluation-harness#2707, huggingface/transformers `GenerationConfig.max_new_tokens`
"""

from __future__ import annotations

from collections.abc import Iterator
from statistics import median

from truetune.checks.answers.bad_answers import ENOUGH, cases
from truetune.checks.findings import Finding
from truetune.checks.judgement import Unmet
from truetune.checks.rule import AnswersRule
from truetune.generation.answer_samples import NO_LIMIT, Sample
from truetune.generation.cut_answers import ends_in_mid_sentence, have_one_length
from truetune.generation.final_answers import holds_final_answer

MIN_SHARE = 1 / 3
"""Of the answers; a few long ones run into any limit"""
GIVEN = 0.2
"""Share of the cut answers that may hold their reference: a model that runs on behind its answer holds it in most"""
LONGER = 1.2
"""Times its reference, in words, from which an answer went past its end rather than not to it"""
SHORT = 8
"""Words of a reference that is a value, and says nothing of how long an answer should be"""


class AnswersAreCutOff(AnswersRule):
    code = "ANS020"
    severity = "error"

    def unmet(self) -> Unmet | None:
        unmet = super().unmet()
        if unmet is not None:
            return unmet
        if not self.subject.finished:
            return Unmet("answers are kept short while a run is watched")
        samples = self.subject.looks[-1].samples
        if len(samples) < ENOUGH:
            return Unmet(f"{len(samples)} answers: too few to judge")
        return None

    def figure(self) -> str:
        samples = self.subject.looks[-1].samples
        return f"{len(self._cut())} of {len(samples)} answers end in mid-sentence"

    def findings(self) -> Iterator[Finding]:
        if self.unmet() is not None:
            return
        samples = self.subject.looks[-1].samples
        cut = self._cut()
        if len(cut) < max(ENOUGH, MIN_SHARE * len(samples)) or _end_so_by_nature(samples):
            return
        others = [sample for sample in samples if sample not in cut]
        if not _by_limit(cut, others) or _went_past(cut):
            return
        words = round(median(len(sample.answer.text.split()) for sample in cut))
        finished = [sample for sample in others if sample.prompt.reference.strip()]
        right = sum(holds_final_answer(one.answer.text, one.prompt.reference) for one in finished)
        yield self.finding(
            f"{len(cut)} of {len(samples)} answers end in mid-sentence after some {words} words: they were cut"
            " off at the limit of new tokens, before their end",
            "raise max_new_tokens (max_tokens of a server) where they were generated, and generate again",
            evidence=(
                [f"of the {len(finished)} answers that are whole, {right} hold their reference"]
                if finished
                else []
            ),
            cases=cases(cut),
            count=len(cut),
            total=len(samples),
        )

    def _cut(self) -> list[Sample]:
        """The answers of the last look that end in mid-sentence and that nothing else is wrong with."""
        return [
            sample
            for sample in self.subject.looks[-1].samples
            if _may_be_cut(sample, self.subject.limit)
            and not (sample.scores.looped or sample.scores.markers or sample.scores.garbage)
            and ends_in_mid_sentence(sample.answer.text)
        ]


def _may_be_cut(sample: Sample, limit: int) -> bool:
    """May a limit have ended it: one that is known to have, or nobody knows? Our own limit is named by another rule."""
    if not sample.scores.end_known:
        return True
    return not sample.scores.stopped and limit >= NO_LIMIT


def _by_limit(cut: list[Sample], others: list[Sample]) -> bool:
    """Did a limit end them: because it is known, or because all have one length?"""
    if all(sample.scores.end_known for sample in cut):
        return True
    return have_one_length(
        [sample.answer.text for sample in cut], [sample.answer.text for sample in others]
    )


def _end_so_by_nature(samples: tuple[Sample, ...]) -> bool:
    """Do the references end in that way too?"""
    references = [sample.prompt.reference for sample in samples if sample.prompt.reference.strip()]
    so = sum(map(ends_in_mid_sentence, references))
    return bool(references) and so >= MIN_SHARE * len(references) / 2


def _went_past(cut: list[Sample]) -> bool:
    """Did they go on behind the answer: do they hold their reference, or are they longer than a long one?"""
    known = [sample for sample in cut if sample.prompt.reference.strip()]
    if not known:
        return all(sample.scores.end_known for sample in cut)
    past = 0
    for sample in known:
        wanted, said = sample.prompt.reference, sample.answer.text
        is_long = len(wanted.split()) > SHORT and len(said.split()) > LONGER * len(wanted.split())
        past += is_long or holds_final_answer(said, wanted)
    return past > GIVEN * len(known)
