"""Answers end in mid-sentence, far beyond the length of their references.

## What it does
If it is not known what ended the answers, counts those that break off within a sentence: their last line has six words
or more and ends in a letter, a digit or a comma, the reference ends with a full stop, and the answer is at least 20 %
longer. It fires if significantly more than 10 % do. It is an error if all of 8 or more do, otherwise a warning.

## Why it is bad
A complete answer ends its last sentence. One that goes beyond the length of its reference and breaks off was cut by the
limit on new tokens: the model did not stop. A file without `finish_reason` hides that, and such answers pass every
check of their text.

## Example

```yaml
finished: true
looks:
  - step: 0
    end_known: false
    answers: The pump failed at noon. The crew found the cause in the valve, and then started to look for the
    references: The pump failed at noon.
```

## Use instead

```yaml
finished: true
looks:
  - step: 0
    end_known: false
    answers: The pump failed at noon. The crew found the cause in the valve.
    references: The pump failed at noon.
```

## Fix safety
There is no automatic fix. Generate again, and write down what ended each answer (`finish_reason`, or whether the last
id is a stop id).

## References

- OpenAI API reference, chat completions: `finish_reason` is `length` where the limit of tokens ended an answer
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from statistics import median

from truetune.checks.answers.count_bad_answers_per_pass import (
    MIN_ANSWERS,
    cases_of_samples,
    count_bad_answers,
    is_bad_share_surely_above,
)
from truetune.checks.base_of_rules_on_bad_answer_shares import BadAnswerShareRule
from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.judgement import Unmet
from truetune.generation.answer_samples import Sample

# As of the other rules on answers: single ones break off for reasons of their own.
TOLERATED = 0.1
MIN_LENGTH_RATIO = 1.2
"""Times the reference's length from which an answer is past its end. Chosen: paraphrases differ by a tenth"""
# Chosen, not measured: signatures, headings and items of lists end without a full stop, and are shorter.
MIN_WORDS = 6
"""Words of the last line, from which it is a sentence"""
SENTENCE_ENDS = (".", "!", "?", "。", "！", "？", "…", '."', ".)", ".*")


class AnswersEndInMidSentence(BadAnswerShareRule):
    code = "ANS041"
    fault = Fault.MODEL_DOES_NOT_END_ITS_ANSWERS
    symptoms = ("garbage-output",)
    severity = "warning"
    tolerated = TOLERATED
    called = "break off within a sentence"
    untold = Unmet(
        "it is about answers without a finish_reason, and references that are whole sentences",
        asked=False,
    )
    moot_where = ("answers-are-cut-off", "answers-are-too-long", "answers-loop")

    def is_bad_answer(self, sample: Sample) -> bool | None:
        """Does the answer break off in a sentence, far past the length of its reference?

        None if it is known what ended it, or if its reference is no whole sentence.
        """
        answer, reference = sample.answer.text.strip(), sample.prompt.reference.strip()
        if sample.scores.end_known or not answer or not reference.endswith(SENTENCE_ENDS):
            return None
        is_past = len(answer) >= MIN_LENGTH_RATIO * len(reference)
        return is_past and _is_last_line_unfinished_sentence(answer)

    def unmet(self) -> Unmet | None:
        unmet = super().unmet()
        return unmet and replace(unmet, asked=False)

    def findings(self) -> Iterator[Finding]:
        bad_answers = count_bad_answers(self.subject, self.is_bad_answer)
        if (
            bad_answers is None
            or bad_answers.count_in_last_pass.of < MIN_ANSWERS
            or not self.subject.finished
        ):
            return
        if not is_bad_share_surely_above(bad_answers.count_in_last_pass, TOLERATED):
            return
        ratio = median(
            len(one.answer.text) / max(1, len(one.prompt.reference)) for one in bad_answers.samples
        )
        yield self.finding(
            f"{bad_answers.count_in_last_pass} answers break off within a sentence and are {ratio:.1f} times as long as"
            " their references (median), which end with a full stop: the model did not stop, and the limit on new"
            " tokens cut them off",
            "check that each training row keeps its stop token within the length limit (cutoff_len, max_length),"
            " and that the stop token has a label (truetune run -- COMMAND shows the labels); and write"
            " finish_reason next to each answer",
            severity="error"
            if bad_answers.count_in_last_pass.bad == bad_answers.count_in_last_pass.of
            else "warning",
            evidence=["the file does not tell what ended the answers (no finish_reason)"],
            cases=cases_of_samples(bad_answers.samples),
            count=bad_answers.count_in_last_pass.bad,
            total=bad_answers.count_in_last_pass.of,
        )


def _is_last_line_unfinished_sentence(answer: str) -> bool:
    """Is the last line a sentence without an end?"""
    last = answer.rpartition("\n")[2].strip()
    return len(last.split()) >= MIN_WORDS and (last[-1].isalnum() or last[-1] == ",")
