"""Answers are far longer than their references.

## What it does

Counts the answers that have 10 times the words of their reference, and 80 more; where a reference of a few words is
at the start or the end of the answer, which then explains it, 200 more. Not counted are a reasoning block
(`<think>...</think>`) that the reference has not, steps that end in a marked result (`#### 560`) where the reference is
that value alone, and answers that a limit of new tokens ended (answers-are-cut-off). It fires where there are more than
at the best pass before, unless chance makes such a change, or, in the second half of a run, where, beyond chance, more
than 1 of 10 is; an error where at the end of a run all of 8 or more are.

## Why it is bad

The model has not learned how long an answer is: it continues with what nobody asked for, repeats itself in other words,
or asks itself another question. The loss does not show it, because the references end where they should.

## Example

```yaml
looks:
  - {step: 0, too_long: 0}
  - {step: 100, too_long: 6}
```

## Use instead

```yaml
looks:
  - {step: 0, too_long: 1}
  - {step: 100, too_long: 0}
```

## Fix safety

There is no automatic fix. Where it is known that they stopped by themselves, compare the prompt with that of the
training rows. Else see that the stop token of each answer is supervised (`truetune run -- COMMAND` shows the
labels), and that the references are whole.

## References

- unslothai/unsloth#416
- Singhal et al. 2023, A Long Way to Go: Investigating Length Correlations in RLHF, arXiv 2310.03716
"""

from __future__ import annotations

from collections.abc import Iterator
from statistics import median

from truetune.checks.answers.count_bad_answers_per_pass import (
    BadAnswers,
    are_enough_and_all_bad,
    bad_answers_if_risen_or_too_many,
    cases_of_samples,
    find_answers_with_next_turn,
)
from truetune.checks.base_of_rules_on_bad_answer_shares import (
    REMEDY_FOR_CUT_THINKING,
    BadAnswerShareRule,
)
from truetune.checks.findings import Finding
from truetune.checks.judgement import Unmet
from truetune.generation.answer_samples import Sample
from truetune.generation.answers_with_unclosed_parts import are_mostly_cut_in_thinking

# Chosen, not measured: some questions of any data invite a long answer. At half, single ones would count; at double, a
# fifth of the answers would have to ramble.
TOLERATED = 0.1
STOP_AND_REFERENCES = (
    "see that the stop token of each answer is supervised, and that the references are whole"
)
REFERENCES_AND_PROMPT = (
    "they stopped by themselves, so that the stop token was learned: see that the references are whole, and that the"
    " model is asked with the prompt of its training rows, which says how long an answer is"
)


class AnswersAreTooLong(BadAnswerShareRule):
    code = "ANS013"
    severity = "error"
    explained_by = ("temperature",)
    tolerated = TOLERATED
    called = "are far longer than their references"
    moot_where = ("answers-are-cut-off",)
    untold = Unmet("no answer has a reference to compare its length with", "name the references")

    def is_bad_answer(self, sample: Sample) -> bool | None:
        """Is the answer far longer than its reference? None if that can't be told."""
        return sample.scores.too_long

    def findings(self) -> Iterator[Finding]:
        bad_answers = bad_answers_if_risen_or_too_many(self.subject, self.is_bad_answer, TOLERATED)
        if bad_answers is None:
            return
        next_turn = find_answers_with_next_turn(self.subject, bad_answers)
        evidence = []
        ratios = [sample.scores.length_ratio for sample in bad_answers.samples]
        known_ratios = [ratio for ratio in ratios if ratio is not None]
        if known_ratios:
            evidence.append(
                f"they are {median(known_ratios):.0f} times as long as their references (the"
                " median)"
            )
        if next_turn is not None:
            evidence.append(next_turn.evidence)
        yield self.finding(
            f"{bad_answers.count_in_last_pass} answers are far longer than their"
            f" references{bad_answers.best_earlier_count_in_words}",
            _remedy_for_long_answers(bad_answers) if next_turn is None else next_turn.remedy,
            severity="error"
            if self.subject.finished and are_enough_and_all_bad(bad_answers)
            else "warning",
            evidence=[*evidence, *bad_answers.evidence],
            cases=cases_of_samples(bad_answers.samples),
            count=bad_answers.count_in_last_pass.bad,
            total=bad_answers.count_in_last_pass.of,
            figure=bad_answers.figure("answers that are too long"),
        )


def _remedy_for_long_answers(bad_answers: BadAnswers) -> str:
    """What to do about long answers: the stop token is in question only where they may have gone past it."""
    if are_mostly_cut_in_thinking(sample.answer.text for sample in bad_answers.samples):
        return REMEDY_FOR_CUT_THINKING
    scores = [sample.scores for sample in bad_answers.samples]
    stopped = all(score.end_known and score.stopped for score in scores)
    return REFERENCES_AND_PROMPT if stopped else STOP_AND_REFERENCES
