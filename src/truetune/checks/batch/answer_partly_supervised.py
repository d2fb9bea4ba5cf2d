"""The first or last tokens of answers have no label, while the others have.

## What it does
Takes the answers with labels in the first batches, and checks their first and last token of text. It is an error if
tokens at either end have no label in half of the answers or more, and a warning in fewer. Reasoning that is left out on
purpose does not count, and the stop token has its own rule.

## Why it is bad
The model does not learn how an answer begins, which decides the rest, or how it ends. It means that the mask is shifted
by some tokens: it was computed on other ids than those of the batch.

## Example

```python
made = encoded(rows)
for row in made:
    first = next(i for i, label in enumerate(row["labels"]) if label >= 0)
    row["labels"][first : first + 2] = [-100, -100]
run = transformers.Trainer(model, arguments(), transformers.DataCollatorForSeq2Seq(tokenizer), made,
                           processing_class=tokenizer)
```

## Use instead

```python
run = transformers.Trainer(model, arguments(), transformers.DataCollatorForSeq2Seq(tokenizer), encoded(rows),
                           processing_class=tokenizer)
```

## Fix safety
There is no automatic fix: your code makes the labels. Compute the mask from the ids of the batch (tokenize once, with
offsets), and the missing tokens are trained too.

## References

- huggingface/trl#5213, huggingface/trl#4201, lm-sys/FastChat#3061
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import NamedTuple

import numpy as np

from truetune.checks.batch.evidence.answer_spans import (
    Answer,
    answers_in_recognised_lines,
    lines_of_known_rows,
)
from truetune.checks.batch.evidence.reasons_batch_rules_cannot_judge import (
    NO_ANSWER_LEARNED,
    explain_missing_answer,
)
from truetune.checks.faults import Fault
from truetune.checks.findings import Case, Finding
from truetune.checks.judgement import Unmet
from truetune.checks.measurement_without_findings import Measurement, make_count_measurement
from truetune.checks.rule import MAX_CASES, BatchRule
from truetune.render.rendering import Source


class UnlabelledEnds(NamedTuple):
    """How many tokens of text at the ends of an answer have no label."""

    answer: Answer
    head: int
    tail: int


class AnswerPartlySupervised(BatchRule):
    code = "BAT013"
    fault = Fault.ANSWERS_MISSING_FROM_LOSS
    symptoms = ("nothing-is-learned",)
    severity = "error"
    since = "0.1.0"

    def findings(self) -> Iterator[Finding]:
        learned = self._unlabelled_ends_of_answers
        wrong = [ends for ends in learned if ends.head or ends.tail]
        if not wrong:
            return
        yield self.finding(
            f"{len(wrong)} of {len(learned)} supervised answers have no label on their first or"
            " last tokens",
            "tokenize each row once, and compute the mask by position in these ids: now it is shifted by some tokens",
            # An offset is in all answers; single ones may hold what their writer masked on purpose.
            severity="error" if 2 * len(wrong) >= len(learned) else "warning",
            evidence=[
                *_describe_unlabelled_ends("first tokens", [ends.head for ends in wrong]),
                *_describe_unlabelled_ends("last tokens", [ends.tail for ends in wrong]),
            ],
            cases=[Case(_show_answer_with_labelled_tokens(ends)) for ends in wrong[:MAX_CASES]],
            count=len(wrong),
            total=len(learned),
        )

    def unmet(self) -> Unmet | None:
        lacking = super().unmet()
        if lacking is not None or self._unlabelled_ends_of_answers:
            return lacking
        lines = lines_of_known_rows(self.subject)
        return (
            NO_ANSWER_LEARNED
            if answers_in_recognised_lines(self.subject)
            else explain_missing_answer(self.subject, lines)
        )

    def measurement_if_clean(self) -> Measurement:
        """How many supervised answers have a label on their first and last token."""
        learned = len(self._unlabelled_ends_of_answers)
        return make_count_measurement(
            "supervised answers with a label on their first and last token", learned, learned
        )

    @cached_property
    def _unlabelled_ends_of_answers(self) -> list[UnlabelledEnds]:
        """The tokens without labels at both ends of each answer that has a label."""
        measured = [
            _measure_unlabelled_ends(answer) for answer in answers_in_recognised_lines(self.subject)
        ]
        return [ends for ends in measured if ends is not None]


def _measure_unlabelled_ends(answer: Answer) -> UnlabelledEnds | None:
    """The tokens without labels at both ends of an answer; None where it has no label at all.

    Reasoning between the two ends is not looked at: many leave it out of the loss on purpose.
    """
    source = answer.sample.source[answer.start : answer.end]
    learned = answer.supervised_token_mask[
        np.isin(source, (int(Source.ASSISTANT), int(Source.TOOL_CALL)))
    ]
    if not learned.any():
        return None
    places = np.flatnonzero(learned)
    return UnlabelledEnds(answer, int(places[0]), len(learned) - 1 - int(places[-1]))


def _show_answer_with_labelled_tokens(ends: UnlabelledEnds) -> str:
    """The answer's text, and what of it has labels: other tokens are drawn as underscores."""
    sample, start, end = ends.answer.sample, ends.answer.start, ends.answer.end
    learned = "".join(
        sample.text(i, i + 1) if sample.supervised[i] else "_" * len(sample.pieces[i])
        for i in range(start, end)
    )
    return f"{sample.place}: of {sample.text(start, end)!r} only {learned!r} is in the loss"


def _describe_unlabelled_ends(what: str, counts: list[int]) -> Iterator[str]:
    """How many answers lack labels at one end, by the tokens that each lacks there; nothing where none does."""
    if any(counts):
        yield (
            f"{what} of {sum(n > 0 for n in counts)} answers (up to {max(counts)} tokens) are"
            " without a label"
        )
