"""A text of a marked row is in no batch.

## What it does
Sends a copied row, in which each text contains a unique string, through the trainer's own preparation and collator
(`canary=True`, `--canary`). It warns if the string of a turn, or of a column that sounds like part of the prompt, is in
no batch. It is an error if the formatting function writes the string and it is missing: then the function is not used.

## Why it is bad
A dropped system prompt, an unmapped context or an ignored formatting function does not show in any log. The model
learns another task than the one in the file.

## Example

```python
rows = [{**row, "notes": f"Written down by keeper {i}"} for i, row in enumerate(rows)]
given = datasets.Dataset.from_list(rows)
run = trl.SFTTrainer(model, args=arguments(trl.SFTConfig), train_dataset=given, processing_class=tokenizer,
                     formatting_func=lambda row: "Notes: " + row["notes"])
canary = True
```

## Use instead

```python
rows = [{"notes": f"Written down by keeper {i}"} for i, row in enumerate(rows)]
given = datasets.Dataset.from_list(rows)
run = trl.SFTTrainer(model, args=arguments(trl.SFTConfig), train_dataset=given, processing_class=tokenizer,
                     formatting_func=lambda row: "Notes: " + row["notes"])
canary = True
```

## Fix safety
There is no automatic fix: remove the `messages` column if you want the formatting function to be used, or map the
column.

## References

- huggingface/trl#2915, huggingface/trl#3140, hiyouga/LLaMA-Factory#7592
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from truetune.checks.batch.evidence.fates_of_canary_texts import (
    LOST,
    CanaryText,
    answers_of_canary,
    texts_of_canary,
)
from truetune.checks.batch.evidence.reasons_batch_rules_cannot_judge import NO_CANARY
from truetune.checks.faults import Fault
from truetune.checks.findings import Case, Finding
from truetune.checks.judgement import Unmet
from truetune.checks.measurement_without_findings import Measurement, make_count_measurement
from truetune.checks.recognise_prose_and_media_columns import PROMPT_COLUMNS
from truetune.checks.rule import BatchRule


class CanaryFieldLost(BatchRule):
    code = "BAT038"
    fault = Fault.COLUMNS_MISSING_FROM_TRAINING_TEXT
    symptoms = ("nothing-is-learned",)
    severity = "error"
    stability = "stable"
    since = "0.1.0"

    def findings(self) -> Iterator[Finding]:
        every = texts_of_canary(self.subject)
        ignored = [text for text in every if text.formatted and text.seen == LOST]
        lost = [
            text
            for text in every
            if text.seen == LOST and self._should_be_learned_or_read(text, every)
        ]
        # A function that is not used loses all that it writes: that is one fault, and not one of
        # each column.
        if ignored:
            yield self.finding(
                f"the formatting function is not used: {len(ignored)} texts that it writes are in"
                " no batch",
                "remove the columns that the trainer prefers (messages, prompt, completion), or"
                " format the rows before you pass them to it",
                cases=[Case(text.place_role_and_fate) for text in ignored],
                count=len(ignored),
                total=len(every),
            )
        elif lost:
            yield self.finding(
                f"{len(lost)} of {len(every)} texts of a marked row are in no batch: "
                + ", ".join(text.path for text in lost),
                "map these columns or turns into the prompt, or remove them from the rows",
                severity="warning",
                cases=[Case(text.place_role_and_fate) for text in lost],
                count=len(lost),
                total=len(every),
            )

    @staticmethod
    def _should_be_learned_or_read(text: CanaryText, every: list[CanaryText]) -> bool:
        """Is a text a turn of a conversation that is used, or in a column whose name tells that it
        is to be read?
        """
        answered = answers_of_canary(every)
        if text in answered and all(answer.seen == LOST for answer in answered):
            return False
        if not any(other.column == text.column and other.seen != LOST for other in every):
            return text.column.lower() in PROMPT_COLUMNS
        return bool(text.role) and re.search(r"\]\.(content|value)", text.path) is not None

    def unmet(self) -> Unmet | None:
        return super().unmet() or (None if texts_of_canary(self.subject) else NO_CANARY)

    def measurement_if_clean(self) -> Measurement:
        """How many texts of the marked row reach a batch."""
        every = texts_of_canary(self.subject)
        return make_count_measurement(
            "texts of a marked row that are in a batch",
            sum(t.seen != LOST for t in every),
            len(every),
        )
