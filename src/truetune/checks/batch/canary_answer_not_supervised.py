"""The answer of a marked row is not learned.

## What it does

Sends a copied row, in which each text holds a string of its own, through the trainer's own preparation and collator
(`canary=True`, `--canary`), and looks where these strings come out. It fires where no answer is in the loss, or a turn
of the assistant is in no batch.

## Why it is bad

Another column is learned as the answer, or turns are dropped. The loss falls as it should, often lower than with the
right column, and the model does something else.

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

There is no automatic fix: correct the formatting function or the column map.

## References

- hiyouga/LLaMA-Factory#7592, huggingface/open-r1#585, huggingface/trl#2915
"""

from __future__ import annotations

from collections.abc import Iterator

from truetune.checks.batch.canaries import LEARNED, LOST, READ, Text, answers, texts
from truetune.checks.batch.needs import NO_CANARY, NO_LABELS
from truetune.checks.findings import Case, Finding
from truetune.checks.judgement import Unmet
from truetune.checks.measurement import Measurement, counted
from truetune.checks.rule import BatchRule


class CanaryAnswerNotSupervised(BatchRule):
    code = "BAT037"
    severity = "error"
    since = "0.1.0"

    def findings(self) -> Iterator[Finding]:
        if all(sample.labels is None for sample in self.subject.samples):
            return
        every = texts(self.subject)
        wanted = answers(every)
        learned = [text for text in every if text.seen == LEARNED]
        unlearned = [text for text in wanted if text.seen in (LOST, READ)]
        lost = [text for text in wanted if text.seen == LOST and text.role]
        if wanted and len(unlearned) == len(wanted):
            instead = (
                f"; learned: {', '.join(text.path for text in learned)}"
                if learned
                else "; nothing is learned"
            )
            yield self._told(f"no answer of a marked row is learned{instead}", unlearned, wanted)
        elif lost:
            yield self._told(
                f"{len(lost)} of {len(wanted)} answers of a marked row are in no batch",
                lost,
                wanted,
            )
        elif every and not wanted and all(text.seen in (LOST, READ) for text in every):
            yield self._told("no text of a marked row is learned", every, every)

    def _told(self, message: str, texts: list[Text], total: list[Text]) -> Finding:
        return self.finding(
            message,
            "correct the formatting function or the column map, then look again with the canary",
            evidence=[text.shown for text in total],
            cases=[Case(text.shown) for text in texts],
            count=len(texts),
            total=len(total),
        )

    def unmet(self) -> Unmet | None:
        if (lacking := super().unmet()) is not None:
            return lacking
        if all(sample.labels is None for sample in self.subject.samples):
            return NO_LABELS
        return None if texts(self.subject) else NO_CANARY

    def figure(self) -> Measurement:
        every = texts(self.subject)
        wanted = answers(every)
        learned = sum(text.seen == LEARNED for text in wanted or every)
        what = "answers" if wanted else "texts"
        return counted(f"{what} of a marked row that are learned", learned, len(wanted or every))
