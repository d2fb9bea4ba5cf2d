"""Answers are cut off at the limit on new tokens, before they end.

## What it does
Looks at answers that were generated elsewhere. If it is not known what ended them, it fires if at least a third (and 8)
end in mid-sentence, all at about one length, and hardly a finished one is longer. If it is known, it counts those that
were stopped by the limit, do not contain their reference, and do not loop. If 20 % of the answers mark their result
(`#### 560`), answers of the same length without that marker count too, even at the end of a sentence. It does not fire
if references end like this too.

## Why it is bad
What a parser looks for in the answer (a number after `####`, the closing brace of JSON, the last line) was never
written. The answer counts as wrong, and the score measures the limit.

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
There is no automatic fix: raise the limit (`max_new_tokens`, `max_tokens`) to twice the length of the longest correct
answer, and generate again. Answers that stop by themselves cost no more.

## References

- EleutherAI/lm-evaluation-harness#2707, huggingface/transformers `GenerationConfig.max_new_tokens`
"""

from __future__ import annotations

from collections.abc import Iterator
from statistics import median

from truetune.checks.answers.count_bad_answers_per_pass import cases_of_samples
from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.judgement import Unmet
from truetune.checks.rule import AnswersRule
from truetune.generation.answer_samples import Sample
from truetune.generation.final_answers import holds_final_answer
from truetune.generation.find_answers_cut_at_one_length import (
    MIN_ANSWERS,
    ends_in_mid_sentence,
    find_answers_ended_by_limit,
    find_cut_answers,
    find_result_mark,
    samples_not_left_out,
)


class AnswersAreCutOff(AnswersRule):
    code = "ANS020"
    fault = Fault.ANSWERS_CUT_AT_TOKEN_LIMIT
    severity = "error"

    def unmet(self) -> Unmet | None:
        unmet = super().unmet()
        if unmet is not None:
            return unmet
        if not self.subject.finished:
            return Unmet("answers are kept short while a run is monitored")
        samples = self.subject.looks[-1].samples
        if len(samples) < MIN_ANSWERS:
            return Unmet(f"{len(samples)} answers: too few to judge")
        return None

    def measurement_if_clean(self) -> str:
        """How many answers end in mid-sentence or before their result."""
        samples = self.subject.looks[-1].samples
        cut = find_cut_answers(samples, self.subject.limit)
        return f"{len(cut)} of {len(samples)} answers end in mid-sentence or before their result"

    def findings(self) -> Iterator[Finding]:
        if self.unmet() is not None:
            return
        samples = self.subject.looks[-1].samples
        cut = find_answers_ended_by_limit(samples, self.subject.limit)
        if not cut:
            return
        others = samples_not_left_out(samples, cut)
        words = round(median(len(sample.answer.text.split()) for sample in cut))
        yield self.finding(
            f"{len(cut)} of {len(samples)} answers {_where_cut_answers_end(cut, samples)} after about {words} words:"
            " the limit on new tokens cut them off, so the score measures the limit",
            "raise max_new_tokens (a server's max_tokens) in the call that generated them, to twice the longest"
            " complete answer, and generate again",
            evidence=list(_describe_correct_uncut_answers(others)),
            cases=cases_of_samples(cut),
            count=len(cut),
            total=len(samples),
        )


def _where_cut_answers_end(cut: list[Sample], samples: tuple[Sample, ...]) -> str:
    """`end in mid-sentence`, or before the mark of the result where some have come to the end of a sentence."""
    mark = find_result_mark(samples)
    if mark is None or all(ends_in_mid_sentence(sample.answer.text) for sample in cut):
        return "end in mid-sentence"
    return f"end before their result ({mark})"


def _describe_correct_uncut_answers(others: list[Sample]) -> Iterator[str]:
    """How many answers that were not cut are right: often most, and then the limit alone is at fault."""
    whole = [sample for sample in others if sample.prompt.reference.strip()]
    if whole:
        right = sum(
            holds_final_answer(sample.answer.text, sample.prompt.reference) for sample in whole
        )
        yield f"of the {len(whole)} complete answers, {right} contain their reference"
