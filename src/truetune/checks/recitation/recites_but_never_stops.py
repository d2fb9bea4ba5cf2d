"""The miniature gives the right answers but does not end them.

## What it does
Trains a miniature of the model (same architecture, few weights) with the run's own collator and loss until it has
memorised a few rows, and generates their answers from the prompts as in serving, with the stop ids of generation_config
and the tokenizer. It fires if answers come out word for word but no stop follows: in all of them (error), or in some
(warning).

## Why it is bad
The tuned model answers well and then continues until the token limit. The loss is as low as in a healthy run. Either
the stop token has no label (a pad token that is the stop token, a template without it, an answer that is cut off), or
the stop ids at generation lack the token that ends a turn.

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
There is no automatic fix: your code chooses collator, pad token and stop ids. With a label on it, the stop token is one
more token in the loss.

## References

- huggingface/transformers#23530, huggingface/trl#976
"""

from __future__ import annotations

from collections.abc import Iterator

from truetune.checks.faults import Fault
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
    fault = Fault.MODEL_DOES_NOT_END_ITS_ANSWERS
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
            f"{len(endless)} of {len(recited)} right answers do not stop",
            "give the stop token that ends a turn a label (mask padding by attention_mask, not by the pad id), and add"
            " it to eos_token_id in generation_config.json",
            severity="error" if len(endless) == len(recited) else "warning",
            evidence=[
                f"stop ids at generation: {stop_ids}; {closed} of these rows have one after the"
                " answer",
                "highest probability of a stop after the answer:"
                f" {max(row['stop_after'] for row in endless):.2g}",
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
        return Unmet("no answer was reproduced completely, so it is not known whether one ends")

    def measurement_if_clean(self) -> Measurement:
        """How many recited answers stop."""
        recited = len(self._recited_answers_without_cut())
        return make_count_measurement("right answers that stop", recited, recited)

    def _recited_answers_without_cut(self) -> list[RecitedAnswer]:
        """Recited answers that no limit cut; of the others it is not known whether they would have stopped."""
        return [
            row
            for row in rows_with_separable_answer_if_learned(self.subject)
            if is_recited_from_any_prompt(row) and not row["cut"]
        ]
