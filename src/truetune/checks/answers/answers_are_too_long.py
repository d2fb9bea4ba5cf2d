"""Answers are much longer than their references.

## What it does
Counts the answers that have at least 10 times as many words as their reference, and 80 more; or 200 more if the answer
begins or ends with a reference of a few words, which it then explains. It does not count a reasoning block
(`<think>...</think>`) that the reference lacks, steps that end in a marked result (`#### 560`) if the reference is only
that value, and answers that the token limit ended (`answers-are-cut-off`).

It fires if there are significantly more than in the best earlier sampling pass, or, in the second half of a run, if
significantly more than 10 % are too long. It is an error if all answers (8 or more) are too long at the end of a run,
otherwise a warning.

## Why it is bad
The model has not learned how long an answer is. It continues with what nobody asked for, repeats itself in other words,
or asks itself another question. The loss does not show it, because the references end where they should.

## Example
```yaml
looks:
  - {step: 0, too_long: 0}
  - {step: 100, too_long: 6, length_ratio: 14.0}
```

## Use instead

```yaml
looks:
  - {step: 0, too_long: 1}
  - {step: 100, too_long: 0}
```

## Fix safety
There is no automatic fix. If the answers stopped by themselves, compare the prompt with that of the training rows.
Otherwise check that the stop token of each answer has a label (`truetune run -- COMMAND` shows the labels), and that
the references are complete.

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
from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.judgement import Unmet
from truetune.generation.answer_samples import Sample
from truetune.generation.answers_with_unclosed_parts import are_mostly_cut_in_thinking

# Chosen, not measured: some questions of any data invite a long answer. At half, single ones would count; at double, a
# fifth of the answers would have to ramble.
TOLERATED = 0.1
STOP_AND_REFERENCES = (
    "check that the stop token of each answer has a label (truetune run -- COMMAND shows the labels), and that the"
    " references are complete"
)
REFERENCES_AND_PROMPT = (
    "they stopped by themselves, so the stop token was learned: check that the references are complete, and that"
    " the prompt is the one of the training rows, including its instruction on length"
)


class AnswersAreTooLong(BadAnswerShareRule):
    code = "ANS013"
    fault = Fault.MODEL_DOES_NOT_END_ITS_ANSWERS
    severity = "error"
    explained_by = ("temperature",)
    tolerated = TOLERATED
    called = "are much longer than their references"
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
                f"they are {median(known_ratios):.0f} times as long as their references (median)"
            )
        if next_turn is not None:
            evidence.append(next_turn.evidence)
        yield self.finding(
            f"{bad_answers.count_in_last_pass} answers are much longer than their"
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
