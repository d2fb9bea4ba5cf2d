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

from truetune.checks.answers.bad_answer_counts import MIN_ANSWERS, sample_cases
from truetune.checks.findings import Finding
from truetune.checks.judgement import Unmet
from truetune.checks.rule import AnswersRule
from truetune.generation.answer_samples import NO_LIMIT, Sample
from truetune.generation.cut_answers import ends_in_mid_sentence, have_one_length
from truetune.generation.final_answers import holds_final_answer

# All chosen, not measured. Share of the answers that were cut: a few long ones run into any limit. At half of it data
# with some long answers would be named, at double only runs where nearly nothing was finished.
MIN_CUT_SHARE = 1 / 3
# Share of the cut answers that may hold their reference: a model that runs on behind its answer holds it in most, one
# that was cut before its answer in few (it was quoted on the way).
MAX_SHARE_WITH_REFERENCE = 0.2
# Times its reference, in words, from which an answer went past its end rather than not to it. Wordings of one answer
# differ by some percent; at 2 an answer that runs on by half would count as cut.
MIN_LENGTH_PAST_END = 1.2
# Words of a reference that is a value, and says nothing of how long an answer should be.
MAX_WORDS_OF_VALUE = 8


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
        if len(samples) < MIN_ANSWERS:
            return Unmet(f"{len(samples)} answers: too few to judge")
        return None

    def figure(self) -> str:
        samples = self.subject.looks[-1].samples
        return f"{len(self._cut_answers())} of {len(samples)} answers end in mid-sentence"

    def findings(self) -> Iterator[Finding]:
        if self.unmet() is not None:
            return
        samples = self.subject.looks[-1].samples
        cut = self._cut_answers()
        is_enough = len(cut) >= max(MIN_ANSWERS, MIN_CUT_SHARE * len(samples))
        if not is_enough or _references_end_so_too(samples):
            return
        others = [sample for sample in samples if sample not in cut]
        if not _were_ended_by_limit(cut, others) or _went_past_answer(cut):
            return
        words = round(median(len(sample.answer.text.split()) for sample in cut))
        yield self.finding(
            f"{len(cut)} of {len(samples)} answers end in mid-sentence after some {words} words: they were cut"
            " off at the limit of new tokens, before their end",
            "raise max_new_tokens (max_tokens of a server) where they were generated, and generate again",
            evidence=list(_describe_whole_answers(others)),
            cases=sample_cases(cut),
            count=len(cut),
            total=len(samples),
        )

    def _cut_answers(self) -> list[Sample]:
        """The answers of the last pass that end in mid-sentence and that nothing else is wrong with."""
        # One that loops or talks for the user would not have come to its end with any limit.
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


def _describe_whole_answers(others: list[Sample]) -> Iterator[str]:
    """How many answers that were not cut are right: often most, and then the limit alone is at fault."""
    whole = [sample for sample in others if sample.prompt.reference.strip()]
    if whole:
        right = sum(
            holds_final_answer(sample.answer.text, sample.prompt.reference) for sample in whole
        )
        yield f"of the {len(whole)} answers that are whole, {right} hold their reference"


def _were_ended_by_limit(cut: list[Sample], others: list[Sample]) -> bool:
    """Did a limit end them: because it is known, or because all have one length?"""
    if all(sample.scores.end_known for sample in cut):
        return True
    return have_one_length(
        [sample.answer.text for sample in cut], [sample.answer.text for sample in others]
    )


def _references_end_so_too(samples: tuple[Sample, ...]) -> bool:
    """Do the references end in mid-sentence too, as code, titles and data do? Half as often is enough."""
    references = [sample.prompt.reference for sample in samples if sample.prompt.reference.strip()]
    open_ends = sum(map(ends_in_mid_sentence, references))
    return bool(references) and open_ends >= MIN_CUT_SHARE * len(references) / 2


def _went_past_answer(cut: list[Sample]) -> bool:
    """Did they continue behind the answer: do they hold their reference, or are they longer than a long one?"""
    with_reference = [sample for sample in cut if sample.prompt.reference.strip()]
    if not with_reference:
        # Without references only a limit that is known to have ended them would be blamed: not enough to tell.
        return all(sample.scores.end_known for sample in cut)
    past = sum(map(_is_past_its_end, with_reference))
    return past > MAX_SHARE_WITH_REFERENCE * len(with_reference)


def _is_past_its_end(sample: Sample) -> bool:
    """Is an answer far longer than its reference, or does it hold it?"""
    answer, reference = sample.answer.text, sample.prompt.reference
    words, reference_words = len(answer.split()), len(reference.split())
    is_text = reference_words > MAX_WORDS_OF_VALUE
    is_longer = is_text and words > MIN_LENGTH_PAST_END * reference_words
    return is_longer or holds_final_answer(answer, reference)
