"""The miniature recites answers and does not end them.

## What it does

Memorises a few rows with a miniature of the model, by the run's own collator and loss, and generates their answers
from the prompts as they will be served, with the stop ids of generation_config and the tokenizer. It fires where
answers come out word for word and no stop follows: in all of them (error), or in some (warning).

## Why it is bad

The tuned model answers well and then continues until the limit of tokens. The loss is as low as in a healthy run.
Either no label asks for the stop token (a pad token that is the stop token, a template without it, an answer that is
cut), or the stop ids at generation lack the token that ends a turn.

## Example

```python
tokenizer.pad_token = tokenizer.eos_token
collator = transformers.DataCollatorForLanguageModeling(tokenizer, mlm=False)
ids = [{"input_ids": row["input_ids"]} for row in encoded(rows)]
run = transformers.Trainer(model, arguments(), collator, ids, processing_class=tokenizer)
```

## Use instead

```python
collator = transformers.DataCollatorForSeq2Seq(tokenizer)
run = transformers.Trainer(model, arguments(), collator, encoded(rows), processing_class=tokenizer)
```

## Fix safety

There is no automatic fix: the collator, the pad token and the stop ids are chosen in the user's program.

## References

- huggingface/transformers#23530, huggingface/trl#976
"""

from __future__ import annotations

from collections.abc import Iterator

from truetune.checks.findings import Finding
from truetune.checks.judgement import Unmet
from truetune.checks.measurement_without_findings import Measurement, make_count_measurement
from truetune.checks.recitation.recitation_record import (
    RecitedAnswer,
    cases_of_recited_answers,
    explain_why_no_answers_are_judged,
    is_recited_from_any_prompt,
    read_recitation,
    rows_with_separable_answer_if_learned,
    stops_right_after_reference,
)
from truetune.checks.rule import RecitationRule


class RecitesButNeverStops(RecitationRule):
    code = "REC001"
    symptoms = ("never-stops",)
    severity = "error"
    stability = "stable"
    since = "0.1.0"

    def findings(self) -> Iterator[Finding]:
        recited = self._recited_answers_without_cut()
        endless = [
            row
            for row in recited
            if not (stops_right_after_reference(row) or stops_right_after_reference(row["trained"]))
        ]
        if not endless:
            return
        stop_ids = ", ".join(map(str, read_recitation(self.subject)["stops"])) or "none"
        # Tells the two causes apart: rows that hold no stop id, and stop ids that are no labels.
        closed = sum(row["closed"] for row in endless)
        yield self.finding(
            f"{len(endless)} of {len(recited)} recited answers do not stop",
            "let the stop token that ends a turn be in the loss, and among the stop ids of"
            " generation_config",
            severity="error" if len(endless) == len(recited) else "warning",
            evidence=[
                f"stop ids at generation: {stop_ids}; {closed} of these rows have one after the"
                " answer",
                "probability of a stop after the answer:"
                f" {max(row['stop_after'] for row in endless):.2g} at most",
            ],
            cases=cases_of_recited_answers(endless),
            count=len(endless),
            total=len(recited),
        )

    def unmet(self) -> Unmet | None:
        """Also unmet where no answer was recited whole."""
        unmet = super().unmet() or explain_why_no_answers_are_judged(self.subject)
        if unmet is not None or self._recited_answers_without_cut():
            return unmet
        return Unmet("no answer was recited whole, so that it is not known whether one ends")

    def measurement_if_clean(self) -> Measurement:
        """How many recited answers stop."""
        recited = len(self._recited_answers_without_cut())
        return make_count_measurement("recited answers that stop", recited, recited)

    def _recited_answers_without_cut(self) -> list[RecitedAnswer]:
        """Recited answers that no limit cut; of the others it is not known whether they would have stopped."""
        return [
            row
            for row in rows_with_separable_answer_if_learned(self.subject)
            if is_recited_from_any_prompt(row) and not row["cut"]
        ]
