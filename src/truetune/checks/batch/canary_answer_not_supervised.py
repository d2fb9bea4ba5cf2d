"""The answer of a marked row is not in the loss.

## What it does
Sends a copied row, in which each text contains a unique string, through the trainer's own preparation and collator
(`canary=True`, `--canary`), and looks where these strings come out. It fires if no answer is in the loss, or if a turn
of the assistant is in no batch.

## Why it is bad
Another column is trained as the answer, or turns are dropped. The loss falls as usual, often lower than with the right
column, but the model learns something else.

## Example

```python
rows = [{"question": f"How many in box {i}?", "answer": f"There are {i}.", "hint": f"Count to {i}."} for i in range(8)]
given = datasets.Dataset.from_list(rows)
run = trl.SFTTrainer(model, args=arguments(trl.SFTConfig), train_dataset=given, processing_class=tokenizer,
                     formatting_func=lambda row: row["question"] + "\\n" + row["hint"])
canary = True
```

## Use instead

```python
rows = [{"question": f"How many in box {i}?", "answer": f"There are {i}.", "hint": f"Count to {i}."} for i in range(8)]
given = datasets.Dataset.from_list(rows)
run = trl.SFTTrainer(model, args=arguments(trl.SFTConfig), train_dataset=given, processing_class=tokenizer,
                     formatting_func=lambda row: row["question"] + "\\n" + row["answer"])
canary = True
```

## Fix safety
There is no automatic fix: correct the formatting function or the column map, and run the canary again. The loss is then
on another text.

## References

- hiyouga/LLaMA-Factory#7592, huggingface/open-r1#585, huggingface/trl#2915
"""

from __future__ import annotations

from collections.abc import Iterator

from truetune.checks.batch.evidence.fates_of_canary_texts import (
    CONTEXT,
    LEARNED,
    LOST,
    CanaryText,
    answers_of_canary,
    texts_of_canary,
)
from truetune.checks.batch.evidence.reasons_batch_rules_cannot_judge import NO_CANARY, NO_LABELS
from truetune.checks.faults import Fault
from truetune.checks.findings import Case, Finding
from truetune.checks.judgement import Unmet
from truetune.checks.measurement_without_findings import Measurement, make_count_measurement
from truetune.checks.rule import BatchRule


class CanaryAnswerNotSupervised(BatchRule):
    code = "BAT037"
    fault = Fault.ANSWERS_MISSING_FROM_LOSS
    symptoms = ("nothing-is-learned",)
    severity = "error"
    since = "0.1.0"

    def findings(self) -> Iterator[Finding]:
        if all(sample.labels is None for sample in self.subject.samples):
            return
        texts = texts_of_canary(self.subject)
        answers = answers_of_canary(texts)
        unlearned = _unlearned_texts(answers)
        lost = [text for text in answers if text.seen == LOST and text.role]
        if answers and len(unlearned) == len(answers):
            yield self._finding_on_fate_of_texts(
                f"no answer of a marked row is in the loss; {_describe_learned_texts(texts)}",
                unlearned,
                answers,
            )
        elif lost:
            yield self._finding_on_fate_of_texts(
                f"{len(lost)} of {len(answers)} answers of a marked row are in no batch",
                lost,
                answers,
            )
        # Nothing of the row is called an answer: as long as some text is learned, it may be one.
        elif texts and not answers and len(_unlearned_texts(texts)) == len(texts):
            yield self._finding_on_fate_of_texts(
                "no text of a marked row is in the loss", texts, texts
            )

    def _finding_on_fate_of_texts(
        self, message: str, texts: list[CanaryText], total: list[CanaryText]
    ) -> Finding:
        """A finding with what became of some texts as cases, and of all that they are compared with
        as evidence.
        """
        return self.finding(
            message,
            "correct the formatting function or the column map, then check again with truetune run --canary",
            evidence=[text.place_role_and_fate for text in total],
            cases=[Case(text.place_role_and_fate) for text in texts],
            count=len(texts),
            total=len(total),
        )

    def unmet(self) -> Unmet | None:
        lacking = super().unmet()
        if lacking is not None:
            return lacking
        if all(sample.labels is None for sample in self.subject.samples):
            return NO_LABELS
        return None if texts_of_canary(self.subject) else NO_CANARY

    def measurement_if_clean(self) -> Measurement:
        """How many answers of the marked row are learned; of its texts, where none is an answer."""
        every = texts_of_canary(self.subject)
        wanted = answers_of_canary(every)
        learned = sum(text.seen == LEARNED for text in wanted or every)
        what = "answers" if wanted else "texts"
        return make_count_measurement(
            f"{what} of a marked row that are in the loss", learned, len(wanted or every)
        )


def _describe_learned_texts(texts: list[CanaryText]) -> str:
    """`learned: messages[0].content`: the texts that took the answer's place"""
    learned = ", ".join(text.path for text in texts if text.seen == LEARNED)
    return f"in the loss: {learned}" if learned else "nothing is in the loss"


def _unlearned_texts(texts: list[CanaryText]) -> list[CanaryText]:
    """The texts that are only read, or that are in no batch.

    One that was cut off may have been learned otherwise.
    """
    return [text for text in texts if text.seen in (LOST, CONTEXT)]
