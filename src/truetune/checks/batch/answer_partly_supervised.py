"""The first or last tokens of answers have no label, the others have.

## What it does

Takes the answers with labels in the first batches, and looks at their first and last token of text. It fires where
tokens at either end have none: in half of the answers or more (error), or in fewer (warning). Reasoning that is left
out on purpose is not counted, and the stop token has a rule of its own.

## Why it is bad

The model is never taught how an answer begins, which is the token that decides the rest, or how it ends. It means that
the mask is off by some tokens: it was counted on other ids than those of the batch.

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

There is no automatic fix: the labels are made in the user's program.

## References

- huggingface/trl#5213, huggingface/trl#4201, lm-sys/FastChat#3061
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import NamedTuple

import numpy as np

from truetune.checks.batch.answers import Answer, all_answers, recognised
from truetune.checks.batch.needs import NO_ANSWER_LEARNED, no_answer
from truetune.checks.findings import Case, Finding
from truetune.checks.judgement import Unmet
from truetune.checks.measurement import Measurement, counted
from truetune.checks.rule import MAX_CASES, BatchRule
from truetune.render.rendering import Source


class Missing(NamedTuple):
    """How many tokens of text at the ends of an answer have no label."""

    answer: Answer
    head: int
    tail: int


class AnswerPartlySupervised(BatchRule):
    code = "BAT013"
    severity = "error"
    since = "0.1.0"

    def findings(self) -> Iterator[Finding]:
        learned = self._learned
        wrong = [found for found in learned if found.head or found.tail]
        if not wrong:
            return
        yield self.finding(
            f"{len(wrong)} of {len(learned)} supervised answers have no label on their first or"
            " last tokens",
            "take the mask from the ids of the batch itself: tokenize once, and mark the places",
            severity="error" if 2 * len(wrong) >= len(learned) else "warning",
            evidence=[
                f"{text} of {sum(n > 0 for n in counts)} answers (up to {max(counts)} tokens) are"
                " without a label"
                for text, counts in (
                    ("first tokens", [found.head for found in wrong]),
                    ("last tokens", [found.tail for found in wrong]),
                )
                if any(counts)
            ],
            cases=[Case(_shown(found)) for found in wrong[:MAX_CASES]],
            count=len(wrong),
            total=len(learned),
        )

    def unmet(self) -> Unmet | None:
        if (lacking := super().unmet()) is not None or self._learned:
            return lacking
        lines = recognised(self.subject)
        return NO_ANSWER_LEARNED if all_answers(self.subject) else no_answer(self.subject, lines)

    def figure(self) -> Measurement:
        learned = len(self._learned)
        return counted(
            "supervised answers with a label on their first and last token", learned, learned
        )

    @cached_property
    def _learned(self) -> list[Missing]:
        """Of each answer with a label."""
        return [found for answer in all_answers(self.subject) if (found := _missing(answer))]


def _missing(answer: Answer) -> Missing | None:
    """None where the answer has no label at all."""
    source = answer.sample.source[answer.start : answer.end]
    known = answer.supervised[np.isin(source, (int(Source.ASSISTANT), int(Source.TOOL_CALL)))]
    if not known.any():
        return None
    places = np.flatnonzero(known)
    return Missing(answer, int(places[0]), len(known) - 1 - int(places[-1]))


def _shown(found: Missing) -> str:
    sample, start, end = found.answer.sample, found.answer.start, found.answer.end
    learned = "".join(
        sample.text(i, i + 1) if sample.supervised[i] else "_" * len(sample.pieces[i])
        for i in range(start, end)
    )
    return f"{sample.place}: of {sample.text(start, end)!r} the loss sees {learned!r}"
