"""Answers repeat the same words over and over.

## What it does
Counts the answers that end in a loop, the same words again and again, or contain one: a run of the same words without
punctuation, a phrase many times, lines that are copies of a few. It fires if there are significantly more than in the
best earlier sampling pass, or, in the second half of a run, if significantly more than 10 % loop. It is an error if all
answers (8 or more) loop at the end of a run, otherwise a warning.

## Why it is bad
A looping answer is useless and never stops. Loops become more frequent if the learning rate is too high or the epochs
are too many, or if the stop token is not learned. Another cause is padding on the right at generation: then only the
longest prompt of each batch gets a good answer. Answers that are one character over and over (`!!!!`) mean that the
logits are NaN, whose argmax is token 0; usually a bfloat16 model runs in float16.

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
There is no automatic fix. Send some prompts one at a time. If the answers loop too, use a lower learning rate or fewer
epochs. If they do not stop either, see `answers-never-stop`.

## References

- unslothai/unsloth#1275, shibing624/MedicalGPT#157
- Holtzman et al. 2020, The Curious Case of Neural Text Degeneration, arXiv 1904.09751
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from truetune.checks.answers.count_bad_answers_per_pass import (
    NOT_A_NUMBER,
    PAD_ON_THE_LEFT,
    are_enough_and_all_bad,
    are_mostly_one_symbol,
    bad_answers_if_risen_or_too_many,
    cases_of_samples,
    evidence_of_right_padding,
)
from truetune.checks.base_of_rules_on_bad_answer_shares import BadAnswerShareRule
from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.generation.answer_samples import Sample

# Chosen, not measured: small models loop on some open questions without any fault of the training. At half, those would
# count; at double, a fifth of the answers would have to loop.
TOLERATED = 0.1
ASK_ALONE = (
    "send some of these prompts one at a time, with the chat template: if the answers are then good, the generation"
    " code is wrong, not the model"
)
"""Loops come of padding on the right, a wrong template or a wrong dtype as well: first is tried what costs a minute"""
TRAINED_TOO_HARD = (
    f"{ASK_ALONE}; otherwise train with a lower learning rate or fewer epochs, and check that the stop token has a"
    " label (truetune run -- COMMAND shows it)"
)


class AnswersLoop(BadAnswerShareRule):
    code = "ANS003"
    fault = Fault.ANSWERS_UNREADABLE
    symptoms = ("garbage-output", "never-stops", "slow-generation")
    severity = "error"
    stability = "stable"
    since = "0.1.0"
    tolerated = TOLERATED
    called = "end in a loop"

    def is_bad_answer(self, sample: Sample) -> bool | None:
        """Does the answer say the same words over and over? None if that can't be told."""
        return sample.scores.looped

    def findings(self) -> Iterator[Finding]:
        bad_answers = bad_answers_if_risen_or_too_many(self.subject, self.is_bad_answer, TOLERATED)
        if bad_answers is not None:
            padded = evidence_of_right_padding(self.subject)
            yield self.finding(
                f"{bad_answers.count_in_last_pass} answers loop{bad_answers.best_earlier_count_in_words}",
                _remedy_for_loops_by_cause(bad_answers.samples, is_padded=padded is not None),
                severity="error"
                if self.subject.finished and are_enough_and_all_bad(bad_answers)
                else "warning",
                evidence=[*([padded] if padded else []), *bad_answers.evidence],
                cases=cases_of_samples(bad_answers.samples),
                count=bad_answers.count_in_last_pass.bad,
                total=bad_answers.count_in_last_pass.of,
                figure=bad_answers.figure("answers that loop"),
            )


def _remedy_for_loops_by_cause(samples: Sequence[Sample], *, is_padded: bool) -> str:
    """What to do about looping answers, by their cause: padding in generation, NaN weights, too hard a training.

    `is_padded`: the batches of these answers were padded on the right when they were generated.
    """
    if is_padded:
        return PAD_ON_THE_LEFT
    return NOT_A_NUMBER if are_mostly_one_symbol(samples) else TRAINED_TOO_HARD
