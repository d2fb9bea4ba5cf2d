"""Many answers have some fault, of different kinds.

## What it does
Counts the answers of the last sampling pass that have any fault: empty, garbage, the question again, role markers, a
loop, another language, far too long. It fires at the end of a run if significantly more than 10 % have one, even if no
single kind is significant: 3 bad answers of 4 are not chance, even if they are bad in three ways. If another rule
reports one kind, this rule does not fire. It is an error if all of 8 or more have a fault, otherwise a warning.

## Why it is bad
If a model's answers fail in several ways, the model is damaged as a whole: the learning rate was too high, the prompt
template differs from training, or it was saved or loaded wrongly.

## Example

```yaml
finished: true
looks:
  - {step: 100, prompts: 4, looped: [1, 0, 0, 0], echoed: [0, 1, 0, 0], switched: [0, 0, 1, 0]}
```

## Use instead

```yaml
finished: true
looks:
  - {step: 100, prompts: 4, looped: [1, 0, 0, 0]}
```

## Fix safety
There is no automatic fix: read the answers, ask the base model the same questions, and compare the training prompts
with the serving prompts (`truetune rehearse`).

## References

- Holtzman et al. 2020, The Curious Case of Neural Text Degeneration, arXiv 1904.09751
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace

from truetune.checks.answers.count_bad_answers_per_pass import (
    PAD_ON_THE_LEFT,
    are_enough_and_all_bad,
    cases_of_samples,
    count_bad_answers,
    evidence_of_right_padding,
    is_bad_share_surely_above,
)
from truetune.checks.base_of_rules_on_bad_answer_shares import BadAnswerShareRule
from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.judgement import Unmet
from truetune.generation.answer_samples import NO_LIMIT, Sample
from truetune.generation.answer_verdicts import VERDICT_PHRASES, Verdict, answer_faults

# Chosen, not measured: twice what single kinds are allowed, for they add up. At half, runs whose kinds are all
# tolerated would fire; at double, two bad answers of 8 in different ways would not be seen in 20.
TOLERATED = 0.1
READ_THEM = (
    "read these answers, and ask the base model the same questions (truetune sample BASE --data HELD-OUT): if its"
    " answers are good, the training damaged the model (try a lower learning rate)"
)
FAULTS_OF_OTHER_RULES: frozenset[Verdict] = frozenset(
    ("runs on", "unread", "wrong", "alike", "elsewhere")
)
"""Faults that have other tolerances, and rules of their own"""


class AnswersHaveFaults(BadAnswerShareRule):
    code = "ANS014"
    fault = Fault.ANSWERS_MOSTLY_WRONG
    symptoms = ("garbage-output", "odd-metrics")
    severity = "error"
    explained_by = ("temperature",)
    tolerated = TOLERATED
    called = "have a fault"
    moot_where = (
        "answers-are-cut-off",
        "answers-are-empty",
        "answers-are-gibberish",
        "answers-are-too-long",
        "answers-change-language",
        "answers-echo-the-prompt",
        "answers-loop",
        "escapes-in-answers",
        "role-markers-in-answers",
    )

    def is_bad_answer(self, sample: Sample) -> bool | None:
        """Has the answer any fault that this rule counts?"""
        return bool(_faults_of_answer(sample))

    def unmet(self) -> Unmet | None:
        """Why too few answers could be judged; what single kinds of fault could not judge, each
        kind says by itself.
        """
        unmet = super().unmet()
        return unmet and replace(unmet, asked=False)

    def findings(self) -> Iterator[Finding]:
        bad_answers = count_bad_answers(self.subject, self.is_bad_answer)
        if (
            bad_answers is None
            or not self.subject.finished
            or not is_bad_share_surely_above(bad_answers.count_in_last_pass, TOLERATED)
        ):
            return
        kinds = Counter(_faults_of_answer(sample)[0] for sample in bad_answers.samples)
        padded = evidence_of_right_padding(self.subject)
        yield self.finding(
            f"{bad_answers.count_in_last_pass} answers have a fault of one kind or another",
            PAD_ON_THE_LEFT if padded else READ_THEM,
            severity="error" if are_enough_and_all_bad(bad_answers) else "warning",
            evidence=[
                *([padded] if padded else []),
                ", ".join(
                    f"{VERDICT_PHRASES[kind]} {count}" for kind, count in kinds.most_common()
                ),
            ],
            cases=cases_of_samples(bad_answers.samples),
            count=bad_answers.count_in_last_pass.bad,
            total=bad_answers.count_in_last_pass.of,
        )


def _faults_of_answer(sample: Sample) -> list[Verdict]:
    """The faults of an answer that this rule counts, the gravest first."""
    return [
        fault for fault in answer_faults(sample, NO_LIMIT) if fault not in FAULTS_OF_OTHER_RULES
    ]
